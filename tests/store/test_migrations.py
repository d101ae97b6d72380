"""Old state is brought forward, newer state is left alone, and two starters do it once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, Insert, insert, inspect, text

from monitor.desk.history_sentences import read_timeline
from monitor.people.teach_images import called_no_image, unteach
from monitor.store import Store, check
from monitor.store.database import Database, database_url
from monitor.store.errors import SchemaTooNew, SchemaTooOld
from monitor.store.migrations import MIGRATIONS, Migration, migrate
from monitor.store.record_states import FileState
from monitor.store.records import Count
from monitor.store.tables import (
    SCHEMA_VERSION,
    counter_steps,
    events,
    files,
    metadata,
    notes,
    schema_version,
    settlements,
)
from tests.store.building import commit_batch, plan_feed, scored
from tests.store.conftest import Place

NOW = datetime(2024, 5, 17, tzinfo=UTC)


@pytest.fixture
def place(places: Callable[[], Place]) -> Place:
    """Without any tables: making them is what these tests are about."""
    return places()


def make_older_layout(place: Place, number: int = SCHEMA_VERSION - 1) -> None:
    """State as a conclad one layout ago could have left it: without settlements."""
    opened = Database(database_url(place.where))
    with opened.write() as connection:
        metadata.create_all(connection)
        settlements.drop(connection)
        connection.execute(insert(schema_version).values(number=number, applied_at=NOW))
        connection.execute(
            insert(files).values(
                id=1,
                path="feed/old.parquet",
                size=10,
                state=FileState.NEW,
                tries=0,
                first_seen_at=NOW,
                updated_at=NOW,
            )
        )
    opened.close()


def make_first_release(place: Place, *contents: Insert) -> None:
    """State of layout 5, with nothing in it but ``contents``."""
    opened = Database(database_url(place.where))
    with opened.write() as connection:
        metadata.create_all(connection)
        counter_steps.drop(connection)
        connection.execute(insert(schema_version).values(number=5, applied_at=NOW))
        for one in contents:
            connection.execute(one)
    opened.close()


def walk(place: Place, steps: Sequence[Migration], target: int = SCHEMA_VERSION) -> int:
    opened = Database(database_url(place.where))
    try:
        return migrate(opened.write, NOW, where="here", steps=steps, target=target)
    finally:
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


STEP = Migration(SCHEMA_VERSION, "settlements", lambda c: settlements.create(c))


def test_an_older_layout_migrates_to_exactly_the_present_one(place: Place, places: Any) -> None:
    make_older_layout(place)
    assert walk(place, [STEP]) == SCHEMA_VERSION - 1
    with place.open() as old, places().open() as fresh:
        with old.database.read() as one, fresh.database.read() as other:
            assert layout(one) == layout(other)
        with old.transaction() as tx:
            (file,) = tx.files.by_paths(["feed/old.parquet"])
            assert file.first_seen_at == NOW
            tx.files.plan(file.id, 4, [(0, 4)])
            (batch,) = tx.batches.pending(1)
        commit_batch(old, scored(batch))
        assert check(old) == []


def test_a_layout_that_no_step_begins_with_is_refused_and_left_alone(place: Place) -> None:
    unknown = SCHEMA_VERSION - len(MIGRATIONS) - 1
    make_older_layout(place, unknown)
    with pytest.raises(SchemaTooOld, match=r"a new state folder .* conclad fit") as caught:
        place.open()
    assert f"layout {unknown}" in str(caught.value)
    opened = Database(database_url(place.where))
    with opened.read() as connection:
        assert not inspect(connection).has_table("settlements")
    opened.close()


def test_state_of_the_first_release_gets_a_place_for_the_steps_of_many_sources(
    place: Place, places: Any
) -> None:
    make_first_release(place)
    with place.open() as old, places().open() as fresh:
        with old.database.read() as one, fresh.database.read() as other:
            assert layout(one) == layout(other)
        with old.transaction() as tx:
            tx.counters.add(Count("images", f"cam-{n}", "known", 1) for n in range(2000))
            assert len(tx.counters.all()) == 2000


def test_what_was_called_no_image_at_the_first_release_stays_so_and_can_be_taken_back(
    place: Place,
) -> None:
    images = frozenset(f"{number:064x}" for number in range(2))
    mark = {"who": "ada", "action": "lesson-1"}
    make_first_release(
        place,
        *(
            insert(notes).values(room="set_aside", key=key, value=mark, updated_at=NOW)
            for key in images
        ),
        insert(events).values(
            id=1, at=NOW, kind="images.set_aside", payload={"count": 2, "who": "ada"}
        ),
    )
    with place.open() as store:
        with store.reading() as tx:
            assert called_no_image(tx) == images
        assert [entry.text for entry in read_timeline(store)] == [
            "2 images marked as not an image (ada)"
        ]
        assert unteach(store, "lesson-1", who="ada", action="undo-1") == "2 images are back"
        with store.reading() as tx:
            assert not called_no_image(tx)


def test_steps_are_numbered_without_gaps_up_to_the_present() -> None:
    first = SCHEMA_VERSION - len(MIGRATIONS) + 1
    assert [step.number for step in MIGRATIONS] == list(range(first, SCHEMA_VERSION + 1))


def add_colour(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE files ADD COLUMN colour TEXT"))


def fail(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE files ADD COLUMN taste TEXT"))
    raise RuntimeError("the power goes")


def columns(store: Store) -> set[str]:
    with store.database.read() as connection:
        return {column["name"] for column in inspect(connection).get_columns("files")}


def test_a_step_is_applied_once_and_whole(place: Place) -> None:
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
