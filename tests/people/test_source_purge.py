"""After a purge nothing in the state tells of the images: no id, no picture, no features."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import psycopg
import pytest

from monitor.people.review_pseudo_labels import assigned_to, mark_wrong
from monitor.store import Store, check, commit_version, purge
from monitor.store.backup import back_up, restore
from monitor.store.pool_transitions import FINISHED_POOLS, PoolEvent
from monitor.store.records import Question
from monitor.store.retention import drop_spool
from monitor.store.snapshots import load_snapshot
from monitor.store.verdict_columns import feature_matrix, read_table
from monitor.store.version_and_settled_commit import VersionUpdate
from tests.people import world
from tests.store.building import CAPTURED, settle_pool
from tests.store.postgres import server

LATER = CAPTURED + timedelta(days=1)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def lived(store: Store) -> list[Question]:
    """Questions with pictures, a class found in them, one of its images contradicted."""
    world.fit(store)
    questions = world.ask(store, 20)
    dune = world.discover(store, "dune", 20)
    settle_pool(store)
    wrong = next(one for one in assigned_to(store, dune) if one.by == "pseudo-label")
    mark_wrong(store, dune, [wrong.key], who="ada")
    with store.reading() as tx:
        assert tx.pools.get(1).state in FINISHED_POOLS
    return questions


def secrets_of(store: Store, source: str) -> list[bytes]:
    """Every id, picture and feature vector of the source, as bytes that a search would find."""
    found: list[bytes] = []
    with store.reading() as tx:
        members = tx.pools.members(1)
    for member in members:
        spool = read_table(store.folder, member.name)
        mine = np.array(spool.column("source_id").to_pylist()) == source
        found += [str(one).encode() for one in np.array(spool.column("image_id"))[mine]]
        found += [row.tobytes() for row in feature_matrix(spool.column("features"))[mine]]
    return found


def holding(root: Path, secrets: list[bytes]) -> set[str]:
    """Files that have any of it; Parquet is searched in its values too."""
    import pyarrow.parquet as pq

    found = set()
    for path in root.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            data += repr(table.to_pydict()).encode()
            if "features" in table.column_names:
                data += feature_matrix(table.column("features")).tobytes()
        if any(secret in data for secret in secrets):
            found.add(str(path.relative_to(root)))
    return found


def test_nothing_of_purged_images_is_left_in_the_state_or_in_a_backup(
    state: Path, tmp_path: Path
) -> None:
    with Store.open(state) as store:
        questions = lived(store)
        gone = secrets_of(store, "cam-1")
        with store.reading() as tx:
            asked = [tx.questions.get(one.id) for one in questions]
        gone += [one.image_id.encode() for one in asked if one.source_id == "cam-1"]
        pictures = [
            store.folder.read(f"thumbnails/{one.thumbnail[:2]}/{one.thumbnail}")
            for one in asked
            if one.source_id == "cam-1" and one.thumbnail
        ]
        assert pictures
        assert len(gone) > 40
        before = holding(state, gone + pictures)
        assert any(name.startswith("detectors/") for name in before)
        assert "conclad.db" in before or "conclad.db-wal" in before
        done = purge(store, "cam-1", before=LATER)
        assert (done.kept_pools, done.kept_versions, done.rewritten) == ((), (), True)
        assert done.questions == 10
        assert check(store) == []
        back_up(store, tmp_path / "copy")
    assert holding(state, gone + pictures) == set()
    with Store.open(tmp_path / "back") as back:
        restore(tmp_path / "copy", back)
    assert holding(tmp_path / "back", gone + pictures) == set()
    with Store.open(state) as store, store.reading() as tx:
        assert len(tx.questions.of_pool(1)) == 20, "the answers and their count stay"


def ids_of(store: Store) -> list[bytes]:
    with store.reading() as tx:
        return [q.image_id.encode() for q in tx.questions.of_pool(1) if q.source_id == "cam-1"]


def test_a_server_keeps_nothing_in_its_tables(state: Path) -> None:
    with server() as url, psycopg.connect(f"{url}/postgres", autocommit=True) as admin:
        [data] = admin.execute("SHOW data_directory").fetchone() or ("",)
        tables = Path(data, "base")
        with Store.open(f"{url}/postgres", files=state) as store:
            lived(store)
            gone = [*ids_of(store), *secrets_of(store, "cam-1")]
            admin.execute("CHECKPOINT")
            assert holding(tables, gone), "what is in the database is found on its disk"
            assert purge(store, "cam-1", before=LATER).rewritten
            assert check(store) == []
            admin.execute("CHECKPOINT")
            assert holding(tables, gone) == set()
            assert holding(state, gone) == set()


#: Purges, and dies in the middle of rewriting the database, after so many steps of SQLite's.
DYING = """
import os, signal, sqlite3, sys
from datetime import datetime
from monitor.store import Store, purge

connect = sqlite3.connect

def dying(path):
    connection = connect(path)
    steps = iter(range(int(sys.argv[2])))
    connection.set_progress_handler(
        lambda: 0 if next(steps, None) is not None else os.kill(os.getpid(), signal.SIGKILL), 10
    )
    return connection

with Store.open(sys.argv[1]) as store:
    sqlite3.connect = dying
    purge(store, "cam-1", before=datetime.fromisoformat(sys.argv[3]))
"""


@pytest.mark.parametrize("steps", [0, 40, 400])
def test_a_purge_that_dies_while_the_database_is_rewritten_is_finished_by_the_next(
    state: Path, steps: int
) -> None:
    with Store.open(state) as store:
        lived(store)
        gone = [*ids_of(store), *secrets_of(store, "cam-1")]
    died = subprocess.run(
        [sys.executable, "-c", DYING, str(state), str(steps), LATER.isoformat()], timeout=120
    )
    assert died.returncode == -signal.SIGKILL
    with Store.open(state) as store:
        assert check(store) == []
        assert purge(store, "cam-1", before=LATER).rewritten
        assert check(store) == []
    assert holding(state, gone) == set()


def test_detectors_lose_the_images_and_keep_the_class(state: Path) -> None:
    with Store.open(state) as store:
        lived(store)
        purge(store, "cam-1", before=LATER)
        with store.reading() as tx:
            versions, current = tx.versions.all(), tx.versions.current()
        assert current is not None
        assert current.number == versions[-1].number
        assert "purged" in (current.reason or "")
        for version in versions:
            detector = load_snapshot(store.folder, version.snapshot, sha256=version.sha256)
            names = [known.name for known in detector.classes]
            assert ("dune" in names) == (version.number > 1)


def learn_a_look(store: Store, source: str) -> list[bytes]:
    """A version whose forest keeps images of a shifted source that no discovery names."""
    world.fit(store)
    world.ask(store, 20)
    with store.transaction() as tx:
        current = tx.versions.current()
        [member] = tx.pools.members(1)
        tx.pools.apply(1, PoolEvent.ROUND_CLOSED)
        tx.questions.close_round(1, 1)
    assert current is not None
    spool = read_table(store.folder, member.name)
    mine = np.array(spool.column("source_id").to_pylist()) == source
    held = feature_matrix(spool.column("features"))[mine][:4]
    detector = load_snapshot(store.folder, current.snapshot, sha256=current.sha256)
    forest = detector.find("c1")
    grown = replace(
        forest,
        modes=(*forest.modes, replace(forest.modes[0], mean=forest.modes[0].mean + 2)),
        references=np.concatenate([forest.references, held]),
        own=np.concatenate([forest.own, forest.own[:4]]),
        said=np.concatenate([forest.said, np.zeros(4, bool)]),
    )
    classes = [grown if known.id == "c1" else known for known in detector.classes]
    learnt = {"id": "c1", "name": "forest", "samples": 4, "distance": 0.1}
    update = VersionUpdate(
        "pool:1:adapted",
        detector.with_known(classes),
        current.number,
        pool_id=1,
        evidence={"adapted": {source: [learnt]}},
    )
    commit_version(store, update)
    settle_pool(store)
    return [row.tobytes() for row in held]


@pytest.mark.parametrize("spooled", [True, False], ids=["pool kept", "pool let go"])
def test_a_look_that_was_learnt_from_a_source_is_forgotten_with_it(
    state: Path, spooled: bool
) -> None:
    with Store.open(state) as store:
        gone = learn_a_look(store, "cam-1")
        if not spooled:
            drop_spool(store, 1)
        before = holding(state, gone)
        assert any(name.startswith("detectors/") for name in before)
        early = purge(store, "cam-1", before=CAPTURED - timedelta(days=1))
        assert sum(early.rows.values()) == 0
        assert holding(state, gone) == before, "images of later stay"
        purge(store, "cam-1", before=LATER)
        assert check(store) == []
        with store.reading() as tx:
            current = tx.versions.current()
        assert current is not None
        detector = load_snapshot(store.folder, current.snapshot, sha256=current.sha256)
        assert len(detector.find("c1").modes) == 2, "the look itself stays"
    assert holding(state, gone) == set()


def test_a_purge_again_finds_nothing_and_publishes_nothing(state: Path) -> None:
    with Store.open(state) as store:
        lived(store)
        purge(store, "cam-1", before=LATER)
        with store.reading() as tx:
            versions = tx.versions.all()
        again = purge(store, "cam-1", before=LATER)
        assert (sum(again.rows.values()), again.questions, again.thumbnails) == (0, 0, 0)
        with store.reading() as tx:
            assert tx.versions.all() == versions


def test_other_sources_keep_theirs(state: Path) -> None:
    with Store.open(state) as store:
        lived(store)
        purge(store, "cam-1", before=LATER)
        with store.reading() as tx:
            kept = [one for one in tx.questions.of_pool(1) if one.source_id == "cam-2"]
        assert len(kept) == 10
        assert all(one.image_id and one.thumbnail for one in kept)
