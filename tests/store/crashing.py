"""Work that a test lets die at a fault point, in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.context import ForkServerContext

from monitor.people.resettle_corrections import resettle_corrections
from monitor.store import (
    Store,
    VersionUpdate,
    commit_batches,
    commit_settled,
    commit_version,
    compact,
    drop_spools,
    purge,
    recover,
    release_version,
)
from monitor.store.atomic_files import VARIABLE
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Count, Occurrence, OutputFile, PoolMember
from monitor.store.scored_batches import SpoolPlace, spool_features
from monitor.store.snapshots import publish_snapshot
from monitor.store.version_and_settled_commit import NewClass
from tests.store.building import (
    commit_batch,
    discoveries,
    plan_feed,
    scored,
    settle_pool,
    settled_rows,
    small_detector,
)

MOMENT = datetime(2024, 5, 17, 6, 0, tzinfo=UTC)
LATER = MOMENT + timedelta(days=1)


def frozen_clock() -> datetime:
    """The same in every process and every run, so that whole states can be compared."""
    return MOMENT


def open_store(where: str, files: str) -> Store:
    return Store.open(where, files=files, clock=frozen_clock)


# Each kind of work: what must stand before, and the work itself, which can be done again.


def prepare_commit(store: Store) -> None:
    plan_feed(store)
    with store.transaction() as tx:
        tx.pools.open()


_NAMES = [["a", "b", "c"], ["d", "b", "e"], ["f", "g", "a"]]


def commit(store: Store) -> None:
    recover(store)
    with store.reading() as tx:
        pending = tx.batches.pending(10)
    for batch in pending:
        commit_batch(store, scored(batch, images=_NAMES[batch.id - 1], rejected=1, pool=1))


def commit_group(store: Store) -> None:
    """All that is left at once, over a gap first; then the batch in the gap."""
    recover(store)
    with store.reading() as tx:
        pending = tx.batches.pending(10)
    group = [b for b in pending if b.id != 2] or pending
    commit_batches(store, [scored(b, images=_NAMES[b.id - 1], rejected=1, pool=1) for b in group])
    if group != pending:
        commit_group(store)


def commit_spooled(store: Store) -> None:
    """Features of every other batch are staged by a worker, one of them with a duplicate in it."""
    recover(store)
    with store.reading() as tx:
        pending = tx.batches.pending(10)
    place = SpoolPlace.open(store.folder, least_bytes=0)
    found = [scored(b, images=_NAMES[b.id - 1], rejected=1, pool=1) for b in pending]
    commit_batches(store, [spool_features(b, place if b.batch_id != 1 else None) for b in found])
    place.close()


def prepare_recovery(store: Store) -> None:
    """One process died after its transaction and another before: files without names."""
    prepare_commit(store)
    with store.reading() as tx:
        first = tx.batches.pending(1)[0]
    commit_batch(store, scored(first, rejected=1, pool=1))
    with store.reading() as tx:
        files: list[OutputFile | PoolMember] = [*tx.outputs.all(), *tx.pools.members(1)]
    for file in files:
        os.replace(store.folder.path(file.name), store.folder.path(str(file.staged)))
    store.folder.write("staging/.verdicts-b000000000002.parquet.00.tmp", b"half")


def recovery(store: Store) -> None:
    recover(store)


def prepare_nothing(store: Store) -> None:
    pass


def snapshot(store: Store) -> None:
    publish_snapshot(store.folder, "detectors/v000001", small_detector())


def prepare_version(store: Store) -> None:
    prepare_commit(store)
    commit(store)
    first = VersionUpdate(
        "fit:1", small_detector(), None, [NewClass("class-1", "water", ClassOrigin.FIT)]
    )
    commit_version(store, first)
    with store.transaction() as tx:
        tx.pools.apply(1, PoolEvent.FILLED)
        tx.pools.begin_asking(1, budget=5, detector_version=1)


def version(store: Store) -> None:
    commit_version(store, _second(held=False))


def prepare_release(store: Store) -> None:
    prepare_version(store)
    commit_version(store, _second(held=True))


def release(store: Store) -> None:
    with store.reading() as tx:
        if tx.versions.get(2).state.value != "held":
            return
    release_version(store, 2, who="ada", reason="looks right")


def _second(held: bool) -> VersionUpdate:
    return VersionUpdate(
        key="pool:1",
        detector=small_detector(1),
        parent=1,
        classes=[NewClass("class-9", "dune", ClassOrigin.PERSON)],
        discoveries=discoveries(1),
        pool_id=1,
        held=held,
    )


def prepare_compact(store: Store) -> None:
    for batch in plan_feed(store, rows=40):
        commit_batch(store, scored(batch))


def compaction(store: Store) -> None:
    compact(store, "verdicts", owner="test", least_files=2)


def prepare_purge(store: Store) -> None:
    prepare_version(store)
    version(store)
    settle_pool(store)


def prepare_settle(store: Store) -> None:
    prepare_version(store)
    version(store)


def settling(store: Store) -> None:
    """All of the pool, then one image of it again."""
    recover(store)
    for revision, images in ((1, []), (2, ["c"])):
        commit_settled(
            store,
            1,
            revision,
            settled_rows(store, 1, revision, images=images),
            reason="the pool has ended",
            counts=[Count("settled", "", "", 1)],
            events=[Occurrence("pool.settled", {"revision": revision})],
            also=lambda tx: tx.notes.set("settle", "last", tx.settlements.next_number()),
        )


def prepare_resettle(store: Store) -> None:
    prepare_settle(store)
    settle_pool(store)
    with store.transaction() as tx:
        tx.classes.rename("class-9", "desert")
        tx.events.append("class.renamed", {"class_id": "class-9"})


def resettling(store: Store) -> None:
    """What people corrected after the pool was settled."""
    recover(store)
    while resettle_corrections(store).more:
        pass


def prepare_compact_settled(store: Store) -> None:
    prepare_settle(store)
    settling(store)
    settle_pool(store, 1, 3)


def compaction_of_settled(store: Store) -> None:
    compact(store, "settled", owner="test", least_files=2)


def purging(store: Store) -> None:
    purge(store, "cam-1", before=LATER)


def dropping(store: Store) -> None:
    drop_spools(store, before=LATER)


#: By the prefix of the fault points, up to a colon: (what must stand, the work).
WORK: dict[str, tuple[Callable[[Store], None], Callable[[Store], None]]] = {
    "commit.": (prepare_commit, commit),
    "commit.:spooled": (prepare_commit, commit_spooled),
    "spool.": (prepare_commit, commit_spooled),
    "commit.:group": (prepare_commit, commit_group),
    "recover.": (prepare_recovery, recovery),
    "snapshot.": (prepare_nothing, snapshot),
    "version.": (prepare_version, version),
    "release.": (prepare_release, release),
    "compact.": (prepare_compact, compaction),
    "compact.:settled": (prepare_compact_settled, compaction_of_settled),
    "settle.": (prepare_settle, settling),
    "settle.:again": (prepare_resettle, resettling),
    "purge.": (prepare_purge, purging),
    "retention.": (prepare_purge, dropping),
    "migrate.": (prepare_nothing, prepare_nothing),
}


def _child(prefix: str, where: str, files: str, fault: str) -> None:
    os.environ[VARIABLE] = fault
    with open_store(where, files) as store:
        WORK[prefix][1](store)


def run_and_die(prefix: str, where: str, files: str, fault: str) -> bool:
    """Do the work in a child with this fault; True if it died of it."""
    process = forkserver().Process(target=_child, args=(prefix, where, files, fault))
    process.start()
    process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        raise AssertionError(f"{fault}: the child failed with {process.exitcode}")
    return process.exitcode == -signal.SIGKILL


#: Also what a child would import by itself, each time: the program that runs the tests, and
#: the driver that is looked up when a URL names it.
_PRELOAD = ["pytest", "sqlalchemy.dialects.postgresql.psycopg", "psycopg", "tests.store.crashing"]


def forkserver() -> ForkServerContext:
    """Children are forked from a server without threads that has imported everything once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    return context
