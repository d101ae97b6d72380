"""Stores on both databases, each test on a fresh one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from monitor.store import Store
from tests.store.postgres import server

DATABASES = ("sqlite", "postgresql")

_numbers = itertools.count(1)


class Clock:
    """A clock that stands still until it is told to move."""

    def __init__(self) -> None:
        self.now = datetime(2024, 5, 17, 6, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)


@dataclass(frozen=True)
class Place:
    """Where a store is; opening it again is what another process would do."""

    where: str
    files: str

    def open(self, clock: Callable[[], datetime] | None = None) -> Store:
        return Store.open(self.where, files=self.files, clock=clock)


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    with server() as url:
        yield url


def make_place(request: pytest.FixtureRequest, database: str, folder: Path) -> Place:
    files = folder / f"state-{next(_numbers)}"
    files.mkdir()
    if database == "sqlite":
        return Place(str(files), str(files))
    base = request.getfixturevalue("postgresql_url")
    # A schema each: a hundred times cheaper than a database each, and just as separate.
    name = f"t{next(_numbers)}"
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return Place(f"{base}/postgres?options=-csearch_path%3D{name}", str(files))


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def places(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Callable[[], Place]:
    """Makes fresh, empty places on the database under test."""
    return lambda: make_place(request, database, tmp_path)


@pytest.fixture
def place(places: Callable[[], Place]) -> Place:
    return places()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(place: Place, clock: Clock) -> Iterator[Store]:
    with place.open(clock) as opened:
        yield opened
