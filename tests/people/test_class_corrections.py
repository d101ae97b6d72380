"""Corrections make versions, ids stay, and everything can be taken back."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.detector import Detector
from monitor.people import version_history as versions
from monitor.people.class_catalog import Standing, list_classes
from monitor.people.class_corrections import Changed, merge, publish_change, rename, retire
from monitor.people.errors import BadName, NotPossible
from monitor.people.version_manifest import current_knowledge
from monitor.store import Store, check
from monitor.store.errors import ClassNameTaken, NotFound, WrongState
from monitor.store.record_states import ClassOrigin, VersionState
from monitor.store.snapshots import load_snapshot
from monitor.store.store import Transaction


def names(store: Store) -> dict[str, str]:
    return {entry.id: entry.name for entry in current_knowledge(store).classes.values()}


def living(store: Store) -> dict[str, str]:
    with store.reading() as tx:
        return {row.id: row.name for row in tx.classes.living()}


def kinds(store: Store) -> list[str]:
    with store.reading() as tx:
        return [event.kind for event in tx.events.after()]


def test_renaming_keeps_the_id_and_every_score(store: Store) -> None:
    with store.reading() as tx:
        before = tx.versions.current()
    assert before is not None
    done = rename(store, "c2", "  lake ", who="ada")
    assert done == Changed("water renamed to lake", "c2", 2)
    assert names(store) == living(store) == {"c1": "forest", "c2": "lake"}
    probe = np.random.default_rng(0).normal(4, 3, (20, 4)).astype("f")
    with store.reading() as tx:
        after = tx.versions.current()
    assert after is not None
    one, two = (load_snapshot(store.folder, v.snapshot) for v in (before, after))
    np.testing.assert_array_equal(one.s0(probe), two.s0(probe))
    assert "class.renamed" in kinds(store)
    assert check(store) == []


def test_the_same_operation_twice_is_one_version(store: Store) -> None:
    first = rename(store, "c2", "lake", who="ada", operation="x")
    with store.reading() as tx:
        assert tx.classes.get("c2").name == "lake"
    again = rename(store, "c2", "lake", who="ada", operation="x")
    assert first.version == 2
    assert again.version is None
    assert merge(store, ["c1"], "c2", who="a", operation="y").version == 3
    with pytest.raises(WrongState, match="merged into c2"):
        merge(store, ["c1"], "c2", who="a", operation="z")


def test_a_taken_name_is_refused_with_advice(store: Store) -> None:
    with pytest.raises(ClassNameTaken, match="merge the two"):
        rename(store, "c2", "forest", who="ada")
    with pytest.raises(BadName):
        rename(store, "c2", " ", who="ada")
    with pytest.raises(NotFound):
        rename(store, "c9", "lava", who="ada")
    assert names(store) == {"c1": "forest", "c2": "water"}


def test_merging_makes_one_class_with_all_modes(store: Store) -> None:
    done = merge(store, ["c2", "c1"], "c1", who="ada")
    assert done.version == 2
    assert names(store) == living(store) == {"c1": "forest"}
    views = {view.id: view for view in list_classes(store)}
    assert views["c2"].standing is Standing.MERGED
    assert len(views["c1"].exemplars) == 8, "the pictures of both stand for it"
    assert check(store) == []


def test_merging_needs_two(store: Store) -> None:
    with pytest.raises(NotPossible, match="at least two"):
        merge(store, ["c1"], "c1", who="ada")


def test_a_known_class_does_not_vanish_into_an_unknown_one(store: Store) -> None:
    with store.transaction() as tx:
        lake = tx.classes.add("lake", ClassOrigin.PERSON)
    with pytest.raises(NotPossible, match="merge it into 'water' instead"):
        merge(store, ["c2"], lake.id, who="ada")
    assert merge(store, [lake.id], "c2", who="ada").version is None
    assert living(store) == {"c1": "forest", "c2": "water"}


def test_a_class_that_no_detector_knows_is_renamed_without_a_version(store: Store) -> None:
    with store.transaction() as tx:
        lake = tx.classes.add("lake", ClassOrigin.PERSON)
    assert rename(store, lake.id, "pond", who="ada").version is None
    assert living(store)[lake.id] == "pond"
    assert retire(store, lake.id, who="ada").version is None


def test_a_retired_class_is_news_again(store: Store) -> None:
    retire(store, "c2", who="ada")
    assert names(store) == {"c1": "forest"}
    with pytest.raises(NotPossible, match="only class"):
        retire(store, "c1", who="ada")
    with pytest.raises(WrongState, match="was retired"):
        rename(store, "c2", "lake", who="ada")


def test_a_rollback_brings_classes_back_as_they_were(store: Store) -> None:
    rename(store, "c1", "wood", who="ada")
    merge(store, ["c2"], "c1", who="ada")
    versions.rollback(store, 1, who="bob", reason="a mistake")
    assert names(store) == living(store) == {"c1": "forest", "c2": "water"}
    found = versions.list_versions(store)
    assert [(view.number, view.state, view.current) for view in found] == [
        (1, VersionState.PUBLISHED, True),
        (2, VersionState.ROLLED_BACK, False),
        (3, VersionState.ROLLED_BACK, False),
    ]
    assert kinds(store)[-1] == "detector.rolled_back"
    assert check(store) == []


def test_a_rollback_that_would_make_two_of_one_name_is_refused_whole(store: Store) -> None:
    retire(store, "c2", who="ada")
    with store.transaction() as tx:
        tx.classes.add("water", ClassOrigin.PERSON)
    with pytest.raises(ClassNameTaken):
        versions.rollback(store, 1, who="bob")
    assert names(store) == {"c1": "forest"}


def test_the_difference_says_what_people_will_notice(store: Store) -> None:
    rename(store, "c1", "wood", who="ada")
    retire(store, "c2", who="ada")
    back = versions.compare(store, 3, 1)
    assert (back.gained, back.lost, back.renamed) == (("water",), (), (("wood", "forest"),))
    assert "It will also know water." in back.sentences()
    on = versions.compare(store, 1, 3)
    assert "It will no longer know water: such images are new again." in on.sentences()
    assert versions.compare(store, 1, 1).sentences() == ["Nothing that it knows will change."]


def test_a_correction_survives_a_version_published_meanwhile(store: Store) -> None:
    def make(detector: Detector) -> Detector:
        if not interrupted:
            interrupted.append(True)
            rename(store, "c2", "lake", who="bob")
        return detector.renamed("c1", "wood")

    interrupted: list[bool] = []
    version = publish_change(
        store,
        key="x",
        make=make,
        reason="wood",
        who="ada",
        events=[],
        also=lambda tx: _rename(tx),
    )
    assert version.number == 3
    assert names(store) == living(store) == {"c1": "wood", "c2": "lake"}


def _rename(tx: Transaction) -> None:
    tx.classes.rename("c1", "wood")


def test_refusing_needs_a_reason(store: Store) -> None:
    with pytest.raises(NotPossible, match="say why"):
        versions.refuse(store, 1, who="ada", reason=" ")
    with pytest.raises(WrongState, match="not held"):
        versions.refuse(store, 1, who="ada", reason="no")
    with pytest.raises(WrongState, match="not held"):
        versions.release(store, 1, who="ada")
