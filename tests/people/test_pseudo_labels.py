"""What the detector concluded by itself can be contradicted, sample by sample."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from monitor.people.class_catalog import list_classes
from monitor.people.class_corrections import merge
from monitor.people.class_pictures import drop_conclusions
from monitor.people.errors import NotPossible
from monitor.people.review_pseudo_labels import assigned_to, mark_wrong
from monitor.people.version_manifest import current_knowledge
from monitor.store import Store, check, drop_spools
from monitor.store.errors import NotFound
from monitor.store.exemplars import exemplars_of
from tests.people import world
from tests.store.building import settle_pool


@pytest.fixture
def dune(store: Store) -> str:
    world.ask(store, 20)
    return world.discover(store, "dune", 20)


def test_the_least_certain_come_first(store: Store, dune: str) -> None:
    found = assigned_to(store, dune)
    assert len(found) == 20
    pseudo = [one for one in found if one.by == "pseudo-label"]
    assert found[: len(pseudo)] == pseudo
    assert [one.confidence for one in pseudo] == sorted(one.confidence or 0 for one in pseudo)


def test_a_wrong_one_is_taken_out_and_the_class_fitted_anew(store: Store, dune: str) -> None:
    wrong = assigned_to(store, dune)[0]
    before = current_knowledge(store).classes[dune]
    done = mark_wrong(store, dune, [wrong.key], who="ada", operation="x")
    after = current_knowledge(store).classes[dune]
    assert done.version == 3
    assert (after.human, after.pseudo) == (before.human, before.pseudo - 1)
    assert wrong.key not in {one.key for one in assigned_to(store, dune)}
    view = next(view for view in list_classes(store) if view.id == dune)
    assert wrong.key not in {(one.source_id, one.image_id) for one in view.exemplars}
    assert mark_wrong(store, dune, [wrong.key], who="ada", operation="x") == done
    with store.reading() as tx:
        assert tx.counters.value("pseudo_labels", "", "contradicted") == 1
    assert [f for f in check(store) if f.code != "picture-unused"] == []


def test_several_are_taken_out_with_one_version(store: Store, dune: str) -> None:
    wrong = [one.key for one in assigned_to(store, dune)[:3]]
    done = mark_wrong(store, dune, [*wrong, wrong[0]], who="ada")
    assert done.what == "3 images taken out of dune"
    assert current_knowledge(store).classes[dune].pseudo == 14 - 3
    assert not {one.key for one in assigned_to(store, dune)} & set(wrong)
    with store.reading() as tx:
        assert tx.counters.value("pseudo_labels", "", "contradicted") == 3
        assert sum(e.kind == "pseudo_label.wrong" for e in tx.events.after(limit=100)) == 3


def test_what_people_answered_is_not_a_pseudo_label(store: Store, dune: str) -> None:
    person = assigned_to(store, dune)[-1]
    for key in (person.key, ("cam-1", "nope")):
        with pytest.raises(NotFound, match="no pseudo-label of 'dune'"):
            mark_wrong(store, dune, [key], who="ada")


def test_without_features_the_class_cannot_be_mended(store: Store, dune: str) -> None:
    settle_pool(store)
    drop_spools(store, before=datetime(2100, 1, 1, tzinfo=UTC))
    wrong = assigned_to(store, dune)[0]
    with pytest.raises(NotPossible, match="not kept any more"):
        mark_wrong(store, dune, [wrong.key], who="ada")


def test_a_class_merged_with_a_fitted_one_cannot_be_mended(store: Store, dune: str) -> None:
    merge(store, [dune], "c1", who="ada")
    wrong = assigned_to(store, "c1")[0]
    with pytest.raises(NotPossible, match="discovered images alone"):
        mark_wrong(store, "c1", [wrong.key], who="ada")


def test_pictures_of_conclusions_leave_old_classes_but_for_a_few(store: Store, dune: str) -> None:
    ago, ahead = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    with store.reading() as tx:
        shown = exemplars_of(tx, dune)
    assert len(shown) == 6
    assert drop_conclusions(store, ago, most=2) == 0
    assert drop_conclusions(store, ahead, most=2) == 4
    with store.reading() as tx:
        assert exemplars_of(tx, dune) == shown[4:]
    assert [f for f in check(store) if f.code != "picture-unused"] == []
