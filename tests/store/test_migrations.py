"""Old state is brought forward, newer state is left alone, and two starters do it once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text

from monitor.store import Store, check, commit_batch
from monitor.store.database import Database, database_url
from monitor.store.errors import SchemaTooNew
from monitor.store.migrations import MIGRATIONS, Migration, migrate
from monitor.store.schema import SCHEMA_VERSION
from tests.store.building import plan_feed, scored
from tests.store.conftest import Place

NOW = datetime(2024, 5, 17, tzinfo=UTC)
LAYOUTS = Path(__file__).parent / "layouts"

_DIGEST = {"sqlite": "x'00ff'", "postgresql": r"'\x00ff'"}
_VERDICTS = "verdicts/b000000000001.parquet"


@pytest.fixture
def place(places: Callable[[], Place]) -> Place:
    """Without any tables: making them is what these tests are about."""
    return places()


def make_first_layout(place: Place, database: str) -> None:
    """State as the first release left it, with something in it."""
    opened = Database(database_url(place.where))
    statements = (LAYOUTS / f"layout-1-{database}.sql").read_text().split(";\n")
    with opened.write() as connection:
        for statement in statements:
            if statement.strip():
                connection.execute(text(statement))
        moment = "'2024-05-17 00:00:00.000000'"
        connection.execute(text(f"INSERT INTO schema_version VALUES (1, {moment})"))
        for statement in (
            "INSERT INTO files (id, path, size, state, tries, first_seen_at, updated_at) VALUES "
            f"(1, 'feed/old.parquet', 10, 'new', 0, {moment}, {moment}), "
            f"(2, 'feed/done.parquet', 10, 'done', 0, {moment}, {moment})",
            "INSERT INTO batches (id, file_id, first_row, rows, state, tries, detector_version, "
            "known, novel, rejected, duplicates, settled_at) "
            f"VALUES (1, 2, 0, 3, 'done', 1, 1, 3, 0, 0, 0, {moment})",
            "INSERT INTO seen (digest, batch_id, seen_at) "
            f"VALUES ({_DIGEST[database]}, 1, {moment})",
            "INSERT INTO outputs (kind, first, last, generation, name, rows, purged, size, sha256, "
            f"committed_at) VALUES ('verdicts', 1, 1, 0, '{_VERDICTS}', 3, 0, 5, 'x', {moment})",
            "INSERT INTO pools (id, group_name, state, size, above, seed, round, budget, asked, "
            f"evidence, opened_at) VALUES (1, '', 'filling', 3, 0, 0, 0, 0, 0, '{{}}', {moment})",
            "INSERT INTO pool_members (pool_id, batch_id, name, rows, size, sha256) "
            "VALUES (1, 1, 'features/pool-000000001/b000000000001.parquet', 3, 5, 'x')",
        ):
            connection.exec_driver_sql(statement)
    opened.close()


def layout(connection: Connection) -> dict[str, Any]:
    """Tables, columns, indexes and keys as the database sees them."""
    found = inspect(connection)
    return {
        table: {
            "columns": {
                c["name"]: (str(c["type"]), c["nullable"]) for c in found.get_columns(table)
            },
            "indexes": {
                i["name"]: (i["column_names"], i["unique"]) for i in found.get_indexes(table)
            },
            "primary": found.get_pk_constraint(table)["constrained_columns"],
            "foreign": sorted(str(k["constrained_columns"]) for k in found.get_foreign_keys(table)),
            "unique": sorted(str(u["column_names"]) for u in found.get_unique_constraints(table)),
        }
        for table in found.get_table_names()
    }


def test_the_first_layout_migrates_to_exactly_the_present_one(
    place: Place, database: str, places: Any
) -> None:
    make_first_layout(place, database)
    with place.open() as old, places().open() as fresh:
        with old.database.read() as one, fresh.database.read() as other:
            assert layout(one) == layout(other)
        with old.transaction() as tx:
            (file,) = tx.files.by_paths(["feed/old.parquet"])
            assert file.first_seen_at == NOW
            tx.files.plan(file.id, 4, [(0, 4)])
            (batch,) = tx.batches.pending(1)
        commit_batch(old, scored(batch))
        assert {finding.code for finding in check(old)} == {"file-missing"}


def test_what_the_first_layout_held_is_still_there(place: Place, database: str) -> None:
    make_first_layout(place, database)
    with place.open() as store, store.transaction() as tx:
        (output,) = tx.outputs.all()
        assert (output.name, output.rows, output.staged) == (_VERDICTS, 3, None)
        (member,) = tx.pools.members(1)
        assert (member.batch_id, member.last_batch, member.rows) == (1, 1, 3)
        assert tx.seen.lookup([b"\x00\xff"]) == {b"\x00\xff": 1}
        assert tx.seen.prune(NOW.replace(year=2025)) == 1


def test_steps_are_numbered_without_gaps_up_to_the_present() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(2, SCHEMA_VERSION + 1))


def add_colour(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE files ADD COLUMN colour TEXT"))


def fail(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE files ADD COLUMN taste TEXT"))
    raise RuntimeError("the power goes")


def columns(store: Store) -> set[str]:
    with store.database.read() as connection:
        return {column["name"] for column in inspect(connection).get_columns("files")}


def test_a_step_is_applied_once_and_whole(place: Place, database: str) -> None:
    make_first_layout(place, database)
    with place.open() as store:
        one, two = SCHEMA_VERSION + 1, SCHEMA_VERSION + 2
        broken = [Migration(one, "colour", add_colour), Migration(two, "taste", fail)]
        with pytest.raises(RuntimeError):
            migrate(store.database.write, NOW, where="here", steps=broken, target=two)
        assert "colour" in columns(store)
        assert "taste" not in columns(store)
        mended = [broken[0], Migration(two, "nothing", lambda connection: None)]
        assert migrate(store.database.write, NOW, where="here", steps=mended, target=two) == one
        assert migrate(store.database.write, NOW, where="here", steps=mended, target=two) == two


def test_newer_state_is_refused_and_left_alone(place: Place) -> None:
    with place.open() as store, store.database.write() as connection:
        connection.execute(
            text("INSERT INTO schema_version VALUES (99, '2024-05-17 00:00:00.000000')")
        )
    with pytest.raises(
        SchemaTooNew, match=f"layout 99, this conclad knows layouts up to {SCHEMA_VERSION}"
    ):
        place.open()


def test_two_processes_that_start_together(place: Place) -> None:
    problems: list[BaseException] = []
    gate = threading.Barrier(4)

    def start() -> None:
        gate.wait()
        try:
            place.open().close()
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with place.open() as store:
        assert plan_feed(store)
