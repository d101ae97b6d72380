"""A state with questions, and the desk in front of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.app import build
from monitor.desk.guard import Guard
from monitor.desk.tokens import Role, add_token
from monitor.store import Store
from tests.desk.client import Client
from tests.people import world

Tokens = dict[str, str]


@pytest.fixture(scope="session")
def mould(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once and copied: twenty questions, a discovered class, and a second version."""
    folder = tmp_path_factory.mktemp("desk") / "state"
    with Store.open(folder) as store:
        world.fit(store)
        world.ask(store, 20)
        world.discover(store, "dune", 20)
        world.ask(store, 20, pool=2)
    return folder


@pytest.fixture
def state(mould: Path, tmp_path: Path) -> Path:
    return shutil.copytree(mould, tmp_path / "state")


@pytest.fixture
def store(state: Path) -> Iterator[Store]:
    with Store.open(state) as opened:
        yield opened


@pytest.fixture
def desk(store: Store) -> Guard:
    """Without tokens: open to everybody on this machine."""
    return build(store, DeskConfig())


@pytest.fixture
def tokens(store: Store) -> Tokens:
    """One of each role; with them, nobody comes in without."""
    return {role.word: add_token(store, f"the {role.word}", role) for role in list(Role)[1:]}


@pytest.fixture
def client(desk: Guard) -> Client:
    return Client(desk)
