"""Workers stage features; the commit names their files, and never loses or doubles a row."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from monitor.store import Store, check, commit_batches, recover
from monitor.store.atomic_files import Folder
from monitor.store.records import Batch
from monitor.store.scored_batches import (
    FeaturesMissing,
    ScoredBatch,
    SpooledFeatures,
    SpoolPlace,
    discard,
    spool_features,
)
from monitor.store.verdict_columns import read_table
from tests.store.building import plan_feed, scored


@pytest.fixture
def batches(store: Store) -> list[Batch]:
    found = plan_feed(store)
    with store.transaction() as tx:
        tx.pools.open()
    return list(found)


def spooled(store: Store, batch: Batch, **how: object) -> ScoredBatch:
    """As a worker gives it back, from another process."""
    place: SpoolPlace = pickle.loads(pickle.dumps(SpoolPlace(store.folder, least_bytes=0)))  # noqa: S301 - our own bytes
    found = spool_features(scored(batch, pool=1, **how), place)  # type: ignore[arg-type]
    assert isinstance(found.features, SpooledFeatures)
    return found


def rows_of(store: Store) -> list[list[int]]:
    with store.reading() as tx:
        members = tx.pools.members(1)
    return [read_table(store.folder, m.name).column("row").to_pylist() for m in members]


def test_a_staged_file_joins_the_pool_as_it_is(store: Store, batches: list[Batch]) -> None:
    """Neighbours that came through memory share a file; what workers staged stands alone."""
    first, second, third = batches
    commit_batches(
        store, [scored(first, pool=1), spooled(store, second), scored(third, pool=1, rejected=1)]
    )
    assert rows_of(store) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    with store.reading() as tx:
        pool = tx.pools.get(1)
    assert (pool.size, pool.above) == (11, 5)
    assert store.folder.list("staging") == []
    assert check(store) == []


def test_duplicates_leave_a_staged_file(store: Store, batches: list[Batch]) -> None:
    first, second, _ = batches
    names = ["a", "b", "c", "d"]
    commit_batches(
        store,
        [spooled(store, first, images=names), spooled(store, second, images=["e", "b", "f", "a"])],
    )
    assert rows_of(store) == [[0, 1, 2, 3], [4, 6]]
    assert store.folder.list("staging") == []
    assert check(store) == []


def test_features_that_are_gone_are_told_and_nothing_is_committed(
    store: Store, batches: list[Batch]
) -> None:
    first, second, _ = batches
    found = [spooled(store, first), spooled(store, second)]
    discard(store.folder, found[1])
    with pytest.raises(FeaturesMissing) as told:
        commit_batches(store, found)
    assert told.value.batches == [2]
    with store.reading() as tx:
        assert len(tx.batches.pending(10)) == 3
    commit_batches(store, [found[0], spooled(store, second)])
    assert rows_of(store) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_what_nobody_committed_goes_with_the_next_start(store: Store, batches: list[Batch]) -> None:
    found = spooled(store, batches[0])
    assert isinstance(found.features, SpooledFeatures)
    assert recover(store).removed == (found.features.temporary,)
    assert store.folder.list("staging") == []


def test_small_features_and_places_out_of_sight_are_left_alone(
    store: Store, batches: list[Batch], tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = scored(batches[0], pool=1)
    place = SpoolPlace.open(store.folder)
    assert spool_features(whole, place) is whole, "smaller than a file is worth"
    elsewhere = Folder.local(tmp_path_factory.mktemp("another-machine"))
    far = replace(place, folder=elsewhere, least_bytes=0)
    assert spool_features(whole, far) is whole, "the same path on another machine"
    assert isinstance(
        spool_features(whole, replace(place, least_bytes=0)).features, SpooledFeatures
    )
    place.close()
