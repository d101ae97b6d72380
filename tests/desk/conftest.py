"""A state with questions, and the desk in front of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.app import build
from monitor.desk.request_guard import Guard
from monitor.desk.roles_and_tokens import Role, add_token
from monitor.store import Store
from tests.desk.browser import DESKTOP, Browser, chromium, config_of, served
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


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty questions about a feed of which forest and water are known."""
    return world.make(tmp_path_factory.mktemp("fresh") / "state", 20)


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


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def browser(driver: webdriver.Chrome, state: Path) -> Iterator[Browser]:
    """The desk of ``state`` in a browser; a page that complained on its console has failed."""
    with served(config_of(state, f"feed.path={state.parent / 'feed'}")) as url:
        found = Browser(driver, url)
        found.resize(DESKTOP)
        yield found
        complaints = found.complaints()
        # Before its server goes: a page that is left open would ask for it during the next test.
        driver.get("about:blank")
        assert complaints == []
