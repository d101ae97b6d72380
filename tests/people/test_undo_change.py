"""Corrections can be taken back, with a version or without one."""

from __future__ import annotations

import pytest

from monitor.people.class_catalog import list_classes
from monitor.people.class_corrections import merge, rename, retire
from monitor.people.errors import NotPossible
from monitor.people.undo_change import impact_of, undo_change
from monitor.people.version_history import list_versions
from monitor.people.version_manifest import current_knowledge
from monitor.store import Store
from monitor.store.record_states import ClassOrigin
from tests.people import world


def test_a_merge_is_taken_back_and_its_reason_stays(store: Store) -> None:
    merge(store, ["c1"], "c2", who="ada", operation="merge-01")
    assert set(current_knowledge(store).classes) == {"c2"}
    undo_change(store, "merge-01", who="ada")
    assert set(current_knowledge(store).classes) == {"c1", "c2"}
    [_, taken] = list_versions(store)
    assert taken.reason == "forest merged into water"
    assert taken.taken_back == "ada took back: forest merged into water"
    with pytest.raises(NotPossible, match="taken back"):
        undo_change(store, "merge-01", who="ada")


def test_what_others_have_followed_is_not_taken_back_alone(store: Store) -> None:
    rename(store, "c1", "wood", who="ada", operation="rename-1")
    rename(store, "c2", "lake", who="ada", operation="rename-2")
    with pytest.raises(NotPossible, match="history page"):
        undo_change(store, "rename-1", who="ada")


def test_names_that_no_detector_knows_yet_are_taken_back_as_well(store: Store) -> None:
    with store.transaction() as tx:
        one = tx.classes.add("dune", ClassOrigin.PERSON).id
        two = tx.classes.add("sand", ClassOrigin.PERSON).id
    merge(store, [one], two, who="ada", operation="merge-02")
    undo_change(store, "merge-02", who="ada")
    retire(store, two, who="ada", operation="retire-2")
    undo_change(store, "retire-2", who="ada")
    rename(store, one, "dunes", who="ada", operation="rename-3")
    undo_change(store, "rename-3", who="ada")
    with store.reading() as tx:
        assert {row.name for row in tx.classes.living()} == {"forest", "water", "dune", "sand"}
    with pytest.raises(NotPossible, match="no such change"):
        undo_change(store, "rename-3", who="ada")


def test_counts_stay_true_after_a_merge(store: Store) -> None:
    from monitor.people.answer_questions import Said, Word, give

    first, second, *_ = world.ask(store, 8)
    give(store, [Said(first.id, Word.CLASS, "dune")], who="ada", action="a1")
    give(store, [Said(second.id, Word.CLASS, "sand")], who="ada", action="a2")
    ids = {view.name: view.id for view in list_classes(store)}
    merge(store, [ids["sand"]], ids["dune"], who="ada")
    assert {v.name: v.answers for v in list_classes(store)}["dune"] == 2


def test_what_hangs_on_a_class_is_said_before(store: Store) -> None:
    world.ask(store, 8)
    found = impact_of(store, "c2")
    assert found.questions == 2
    assert found.of == 4
    assert any("will look new again" in one for one in found.retiring())
