"""Classes and detector versions over HTTP."""

from __future__ import annotations

from dataclasses import asdict

from monitor.desk import wire_models as models
from monitor.desk.checked_request import Ask
from monitor.desk.novel_images import image_key
from monitor.people import version_history as versions
from monitor.people.answer_questions import find_class
from monitor.people.class_catalog import list_classes
from monitor.people.class_corrections import Changed, merge, rename, retire
from monitor.people.class_names import alike, clean_name
from monitor.people.class_pictures import pictures_of
from monitor.people.review_pseudo_labels import assigned_to, mark_wrong
from monitor.people.undo_change import impact_of, undo_change

SAMPLES = 400
"""Samples of a class in one answer, the least certain first: nobody looks at more."""


def classes(ask: Ask) -> models.ClassesOut:
    found = [models.ClassOut.model_validate(view) for view in list_classes(ask.store)]
    return models.ClassesOut(classes=found)


def similar(ask: Ask) -> models.SimilarOut:
    name = clean_name(ask.query.name)
    with ask.store.reading() as tx:
        names = [row.name for row in tx.classes.living()]
    return models.SimilarOut(similar=alike(name, names), exists=name in names)


def samples(ask: Ask) -> models.SamplesOut:
    class_id = ask.params["class_id"]
    with ask.store.reading() as tx:
        tx.classes.get(class_id)
        shown = {(one.source_id, one.image_id): one.thumbnail for one in pictures_of(tx, class_id)}
    found = assigned_to(ask.store, class_id)
    return models.SamplesOut(
        samples=[
            models.SampleOut(
                source_id=one.source_id,
                image_id=one.image_id,
                captured_at=one.captured_at,
                by=one.by,
                confidence=one.confidence,
                version=one.version,
                thumbnail=shown.get(one.key),
                picture=image_key(*one.key),
            )
            for one in found[:SAMPLES]
        ],
        total=len(found),
    )


def rename_class(ask: Ask) -> models.ChangedOut:
    body: models.Rename = ask.body
    return _changed(
        rename(
            ask.store,
            ask.params["class_id"],
            body.name,
            who=ask.person.name,
            operation=body.operation,
        )
    )


def merge_classes(ask: Ask) -> models.ChangedOut:
    body: models.Merge = ask.body
    with ask.store.reading() as tx:
        rows = {text: find_class(tx, text) for text in (*body.classes, body.into)}
    ids = {text: row.id if row is not None else text for text, row in rows.items()}
    return _changed(
        merge(
            ask.store,
            [ids[text] for text in body.classes],
            ids[body.into],
            who=ask.person.name,
            operation=body.operation,
        )
    )


def retire_class(ask: Ask) -> models.ChangedOut:
    class_id, operation = ask.params["class_id"], ask.body.operation
    return _changed(retire(ask.store, class_id, who=ask.person.name, operation=operation))


def undo(ask: Ask) -> models.SaidOut:
    """Take back one correction."""
    words = undo_change(ask.store, ask.body.operation, who=ask.person.name)
    return models.SaidOut(words=words)


def impact(ask: Ask) -> models.ImpactOut:
    """What hangs on a class, before it is changed."""
    found = impact_of(ask.store, ask.params["class_id"])
    return models.ImpactOut(
        name=found.name,
        recent=found.recent,
        of=found.of,
        questions=found.questions,
        retiring=found.retiring(),
        merging=found.merging(),
    )


def wrong_label(ask: Ask) -> models.ChangedOut:
    body: models.MarkWrong = ask.body
    return _changed(
        mark_wrong(
            ask.store,
            ask.params["class_id"],
            [(one.source_id, one.image_id) for one in body.images],
            who=ask.person.name,
            operation=body.operation,
        )
    )


def list_versions(ask: Ask) -> models.VersionsOut:
    found = [models.VersionOut.model_validate(one) for one in versions.list_versions(ask.store)]
    return models.VersionsOut(versions=found)


def show_version(ask: Ask) -> models.VersionOut:
    return models.VersionOut.model_validate(versions.show_version(ask.store, ask.number()))


def difference(ask: Ask) -> models.DifferenceOut:
    found = versions.compare(ask.store, ask.number("of"), ask.number("to"))
    return models.DifferenceOut(
        of=found.of,
        to=found.to,
        gained=list(found.gained),
        lost=list(found.lost),
        renamed=[list(pair) for pair in found.renamed],
        sentences=found.sentences(),
    )


def rollback(ask: Ask) -> models.InUseOut:
    found = versions.rollback(ask.store, ask.number(), who=ask.person.name, reason=ask.body.reason)
    return models.InUseOut(version=found.number, state=str(found.state))


def release(ask: Ask) -> models.InUseOut:
    found = versions.release(ask.store, ask.number(), who=ask.person.name, reason=ask.body.reason)
    return models.InUseOut(version=found.number, state=str(found.state))


def refuse(ask: Ask) -> models.InUseOut:
    found = versions.refuse(ask.store, ask.number(), who=ask.person.name, reason=ask.body.reason)
    return models.InUseOut(version=found.number, state=str(found.state))


def events(ask: Ask) -> models.EventsOut:
    with ask.store.reading() as tx:
        found = tx.events.after(ask.query.after, limit=ask.query.limit)
    return models.EventsOut(
        events=[models.EventOut(**{**asdict(one), "payload": dict(one.payload)}) for one in found]
    )


def _changed(changed: Changed) -> models.ChangedOut:
    return models.ChangedOut.model_validate(changed)
