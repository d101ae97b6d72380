"""Stores on both databases, each test on one of its own."""

from __future__ import annotations

import itertools
import shutil
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


Prepare = Callable[[Store], None]


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
    # A schema each: cheaper than a database each, and just as separate.
    name = f"t{next(_numbers)}"
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return Place(f"{base}/postgres?options=-csearch_path%3D{name}", str(files))


def make_database(base: str, source: Place | None = None) -> str:
    """A PostgreSQL database of its own, empty or as a copy; returns its URL."""
    name = f"d{next(_numbers)}"
    template = f" TEMPLATE {_name(source.where)}" if source else ""
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}{template}".encode())
    return f"{base}/{name}"


def drop_database(url: str) -> None:
    base = url.rpartition("/")[0]
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {_name(url)} WITH (FORCE)".encode())


def _name(url: str) -> str:
    return url.rpartition("/")[2]


class Moulds:
    """States that were prepared once and are then copied: most tests begin with one of few."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[str, Prepare], Place] = {}

    def get(self, database: str, base: str | None, prepare: Prepare) -> Place:
        key = (database, prepare)
        if key not in self._made:
            files = self._folder / f"mould-{next(_numbers)}"
            files.mkdir()
            place = Place(make_database(base) if base else str(files), str(files))
            with place.open(Clock()) as store:
                prepare(store)
            self._made[key] = place
        return self._made[key]


@pytest.fixture(scope="session")
def moulds(tmp_path_factory: pytest.TempPathFactory) -> Moulds:
    return Moulds(tmp_path_factory.mktemp("moulds"))


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def places(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Callable[[], Place]:
    """Makes fresh, empty places on the database under test."""
    return lambda: make_place(request, database, tmp_path)


@pytest.fixture
def prepared(
    request: pytest.FixtureRequest, database: str, moulds: Moulds, tmp_path: Path
) -> Iterator[Callable[[Prepare], Place]]:
    """Makes copies of a state to which something was done; each copy is the test's own."""
    base = request.getfixturevalue("postgresql_url") if database == "postgresql" else None
    databases: list[str] = []

    def copy(prepare: Prepare) -> Place:
        mould = moulds.get(database, base, prepare)
        files = tmp_path / f"state-{next(_numbers)}"
        shutil.copytree(mould.files, files)
        if base is None:
            return Place(str(files), str(files))
        databases.append(make_database(base, mould))
        return Place(databases[-1], str(files))

    yield copy
    for url in databases:
        drop_database(url)


def nothing(store: Store) -> None:
    """The tables are there and empty."""


@pytest.fixture
def place(prepared: Callable[[Prepare], Place]) -> Place:
    return prepared(nothing)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(place: Place, clock: Clock) -> Iterator[Store]:
    with place.open(clock) as opened:
        yield opened
