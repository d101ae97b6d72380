"""Pictures that stand for a class: kept with it, and gone with their source."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitor.store import Store, check, commit_version, drop_thumbnails, purge
from monitor.store.errors import ClassNameTaken
from monitor.store.exemplars import (
    Exemplar,
    all_exemplars,
    exemplars_of,
    get_thumbnail,
    keep_exemplars,
    put_thumbnail,
)
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import ClassOrigin
from monitor.store.snapshot_manifest import read_meta
from monitor.store.store import Transaction
from monitor.store.version_and_settled_commit import VersionUpdate
from tests.store.building import CAPTURED, plan_feed, sample, small_detector
from tests.store.conftest import Clock

LATER = CAPTURED + timedelta(days=1)


def test_what_is_kept_comes_back(store: Store) -> None:
    kept = [
        Exemplar("ab" * 32),
        Exemplar("cd" * 32, "pseudo-label", "cam-1", "7", CAPTURED, 0.75),
    ]
    with store.transaction() as tx:
        keep_exemplars(tx, "c1", kept)
        tx.notes.set("exemplars", "c2", ["ef" * 32])
    with store.reading() as tx:
        assert exemplars_of(tx, "c1") == kept
        assert all_exemplars(tx) == {"c1": kept, "c2": [Exemplar("ef" * 32)]}
        assert exemplars_of(tx, "c3") == []


def test_a_picture_stays_while_a_class_shows_it(store: Store, clock: Clock) -> None:
    plan_feed(store)
    digest = put_thumbnail(store.folder, b"shown twice")
    with store.transaction() as tx:
        pool = tx.pools.open()
        tx.pools.apply(pool.id, PoolEvent.FILLED)
        tx.pools.begin_asking(pool.id, budget=1, detector_version=1)
        tx.questions.open(pool.id, 1, [sample(1, 0, thumbnail=digest)])
        keep_exemplars(tx, "c1", [Exemplar(digest, "person", "cam-1", "image-1-0", CAPTURED)])
        tx.questions.close_round(pool.id, 1)
    clock.advance(days=1)
    assert drop_thumbnails(store, before=clock.now) == 0
    assert get_thumbnail(store.folder, digest) == b"shown twice"
    assert check(store) == []
    assert purge(store, "cam-1", before=LATER).thumbnails == 1
    assert store.folder.list("thumbnails") == []
    with store.reading() as tx:
        assert exemplars_of(tx, "c1") == []


def test_a_picture_of_the_fit_belongs_to_no_source(store: Store) -> None:
    with store.transaction() as tx:
        keep_exemplars(tx, "c1", [Exemplar(put_thumbnail(store.folder, b"labelled"))])
    assert purge(store, "cam-1", before=LATER).thumbnails == 0
    assert check(store) == []


def test_a_missing_picture_is_named(store: Store) -> None:
    with store.transaction() as tx:
        keep_exemplars(tx, "c1", [Exemplar("ab" * 32)])
    [finding] = check(store)
    assert finding.code == "picture-missing"


def test_a_version_takes_along_what_else_must_happen(store: Store) -> None:
    def rename(tx: Transaction) -> None:
        tx.classes.rename("c1", "lake")

    detector = small_detector()
    with store.transaction() as tx:
        tx.classes.add("water", ClassOrigin.FIT, class_id="c1")
        tx.classes.add("dune", ClassOrigin.FIT, class_id="c2")
    version = commit_version(store, VersionUpdate("one", detector, None, also=rename))
    assert read_meta(store.folder, version.snapshot, sha256=version.sha256)["classes"][0]["id"]
    with pytest.raises(ClassNameTaken):
        commit_version(
            store,
            VersionUpdate("two", detector, 1, also=lambda tx: _rename_to_taken(tx)),
        )
    with store.reading() as tx:
        assert tx.classes.get("c1").name == "lake"
        assert len(tx.versions.all()) == 1


def _rename_to_taken(tx: Transaction) -> None:
    tx.classes.rename("c1", "dune")


def test_a_class_comes_back_under_its_old_name_if_that_is_free(store: Store) -> None:
    with store.transaction() as tx:
        for class_id, name in (("c1", "water"), ("c2", "forest"), ("c3", "sand")):
            tx.classes.add(name, ClassOrigin.FIT, class_id=class_id)
        tx.classes.merge("c1", "c2")
        tx.classes.retire("c3")
        assert tx.classes.revive("c1", "water").living
        assert tx.classes.revive("c3", "sand").living
        tx.classes.rename("c2", "wood")
        tx.classes.rename("c3", "forest")
        assert tx.classes.revive("c2", "forest").name == "wood"
        tx.classes.retire("c1")
        tx.classes.rename("c2", "water")
        with pytest.raises(ClassNameTaken):
            tx.classes.revive("c1", "water")
