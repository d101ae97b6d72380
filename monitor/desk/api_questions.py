"""Questions and answers over HTTP."""

from __future__ import annotations

import json
from dataclasses import asdict

from starlette.responses import PlainTextResponse, Response

from monitor.desk import wire_models as models
from monitor.desk.checked_request import Ask
from monitor.desk.question_queue import lease, stamp
from monitor.desk.roles_and_tokens import Role
from monitor.people.answer_questions import Said, Word, give, take_back, take_back_last
from monitor.people.exchange.csv_jsonl import to_csv, to_jsonl
from monitor.people.exchange.label_studio import to_tasks
from monitor.people.exchange.parsed_answers import take_in
from monitor.people.exchange.question_records import QuestionRecord, read_questions
from monitor.people.exchange.read_answers import read_answers
from monitor.store.exemplars import get_thumbnail

_ENDINGS = {"csv": "a.csv", "jsonl": "a.jsonl", "label-studio": "a.json"}


def list_questions(ask: Ask) -> models.QuestionsOut:
    found = read_questions(ask.store, ask.query.which)
    return models.QuestionsOut(questions=[_question(one) for one in found])


def lease_questions(ask: Ask) -> models.LeasedOut:
    seconds = ask.config.lease_seconds
    found = lease(ask.store, ask.person.name, limit=ask.body.limit, seconds=seconds)
    return models.LeasedOut(question_ids=[one.id for one in found], lease_seconds=seconds)


def release_questions(ask: Ask) -> models.LeasedOut:
    with ask.store.transaction() as tx:
        tx.questions.release(ask.person.name)
    return models.LeasedOut(question_ids=[], lease_seconds=0)


def give_answers(ask: Ask) -> models.ReceiptsOut:
    body: models.GiveAnswers = ask.body
    said = [Said(one.question_id, Word(one.answer), one.class_) for one in body.answers]
    receipts = give(ask.store, said, who=ask.person.name, action=body.action)
    with ask.store.reading() as tx:
        left = tx.counts.open_questions()
    return models.ReceiptsOut(
        receipts=[models.ReceiptOut.model_validate(one) for one in receipts], open=left
    )


def undo(ask: Ask) -> models.UndoneOut:
    body: models.Undo = ask.body
    who = ask.person.name
    if body.question_id is None:
        found = take_back_last(ask.store, who=who, action=body.action, of=body.of)
    else:
        anybodys = ask.person.role >= Role.ADMIN
        back = take_back(
            ask.store, body.question_id, who=who, action=body.action, anybodys=anybodys
        )
        found = [back]
    return models.UndoneOut(question_ids=[one.question_id for one in found])


def pulse(ask: Ask) -> models.PulseOut:
    with ask.store.reading() as tx:
        current = tx.versions.current()
        return models.PulseOut(
            stamp=stamp(tx),
            open=tx.counts.open_questions(),
            version=None if current is None else current.number,
        )


def thumbnail(ask: Ask) -> Response:
    data = get_thumbnail(ask.store.folder, ask.params["digest"])
    # The name is the hash of the content, so what was seen once never changes.
    headers = {"cache-control": "private, max-age=31536000, immutable"}
    return Response(data, media_type="image/jpeg", headers=headers)


def export(ask: Ask) -> Response:
    kind = ask.params["kind"]
    found = read_questions(ask.store, ask.query.which)
    if kind == "csv":
        return PlainTextResponse(to_csv(found), media_type="text/csv")
    if kind == "jsonl":
        return PlainTextResponse(to_jsonl(found), media_type="application/x-ndjson")
    address = ask.config.address or f"http://{ask.config.host}:{ask.config.port}"
    tasks = json.dumps(to_tasks(found, base_url=address), ensure_ascii=False)
    return Response(tasks, media_type="application/json")


def import_answers(ask: Ask) -> models.ImportedOut:
    parsed = read_answers(_ENDINGS[ask.params["kind"]], ask.body)
    done = take_in(
        ask.store,
        parsed,
        who=ask.person.name,
        content=ask.body,
        turn=ask.turn,
        is_wanted=lambda: not ask.is_gone(),
    )
    return models.ImportedOut(
        counts=done.counts,
        records=[
            {
                "where": where,
                **models.ReceiptOut.model_validate(receipt).model_dump(),
            }
            for where, receipt in done.receipts
        ],
        problems=[asdict(problem) for problem in done.problems],
    )


def health(ask: Ask) -> models.HealthOut:
    """Reads the store, so that a desk without one does not call itself healthy."""
    with ask.store.reading() as tx:
        tx.counts.open_questions()
    return models.HealthOut(status="ok")


def _question(question: QuestionRecord) -> models.QuestionOut:
    return models.QuestionOut.model_validate(question.record())
