"""The state is its owner's alone: no other user reads it, and a copy of it opens no desk."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.app import build
from monitor.desk.roles_and_tokens import Role, add_token
from monitor.desk.sessions import session_key
from monitor.store import Store, compact, purge
from monitor.store.backup import back_up, restore
from monitor.store.file_modes import close_paths, is_wide, wide_paths
from tests.desk.client import Client
from tests.people import world


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): f"{path.stat().st_mode & 0o777:o}"
        for path in (root, *root.rglob("*"))
    }


@pytest.mark.usefixtures("_open_umask")
def test_whatever_the_umask_files_are_their_owners(tmp_path: Path) -> None:
    state, copy, back = tmp_path / "a" / "state", tmp_path / "b" / "copy", tmp_path / "back"
    with Store.open(state) as store:
        world.fit(store)
        world.ask(store, 20)
        world.discover(store, "dune", 20)
        world.ask(store, 20, pool=2)
        add_token(store, "ada", Role.ADMIN)
        Client(build(store, DeskConfig())).get("/")
        compact(store, "verdicts", owner="me", least_files=2)
        purge(store, "cam-1", before=datetime(2020, 1, 1, tzinfo=UTC))
        back_up(store, copy)
        found = modes(state)
        assert {"conclad.db", "conclad.db-wal", "conclad.db-shm", "desk-key"} <= set(found)
    with Store.open(back) as empty:
        restore(copy, empty)
        for root in (tmp_path / "a", tmp_path / "b", back):
            files = {name for name in modes(root) if (root / name).is_file()}
            assert {mode for name, mode in modes(root).items() if name in files} == {"600"}
            assert {mode for name, mode in modes(root).items() if name not in files} == {"700"}


def test_wider_rights_are_found_and_taken_away(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (state / "conclad.db").chmod(0o644)
    (state / "thumbnails").chmod(0o755)
    with Store.open(state) as store:
        assert "conclad doctor --repair" in caplog.text
        assert {path.name for path in wide_paths(state)} >= {"conclad.db", "thumbnails"}
        assert close_paths(wide_paths(state)) == []
        assert list(wide_paths(state)) == []
        assert not is_wide(state / "conclad.db")
        with store.reading() as tx:
            assert tx.questions.get(1).image_id
    caplog.clear()
    Store.open(state).close()
    assert caplog.text == ""


def test_a_folder_that_all_may_write_to_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever made it first may swap the database, and with it everybody's tokens."""
    waiting = tmp_path / "state"
    waiting.mkdir()
    waiting.chmod(0o777)
    Store.open(waiting).close()
    assert f"{waiting}: every user of this machine may replace" in caplog.text
    assert close_paths(wide_paths(waiting)) == []
    caplog.clear()
    Store.open(waiting).close()
    assert caplog.text == ""


def signed_in(store: Store, token: str) -> Client:
    browser = Client(build(store, DeskConfig()))
    assert browser.form("/sign-in", f"token={token}").status == 303
    assert browser.get("/api/pulse").status == 200
    return browser


def test_a_stolen_backup_opens_no_desk(store: Store, tmp_path: Path) -> None:
    """What lies in a backup lets nobody in: not here, and not where it is restored."""
    browser = signed_in(store, add_token(store, "ada", Role.ADMIN))
    key = session_key(store)
    back_up(store, tmp_path / "copy")
    held = b"".join(path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file())
    assert key not in held
    assert key.hex().encode() not in held
    assert not (tmp_path / "copy" / "desk-key").exists()
    # Whatever looks like a cookie or a token in the copy, tried as both.
    words = set(re.findall(r"[A-Za-z0-9_-]{43,64}", held.decode("latin-1")))
    with closing(sqlite3.connect(tmp_path / "copy" / "conclad.db")) as copy:
        rows = copy.execute("SELECT key FROM notes WHERE room = 'desk_sessions'").fetchall()
    names = {str(row[0]) for row in rows}
    assert len(names) == 1
    for word in {*names, *(name[:43] for name in names), *sorted(words)[:50]}:
        # A desk of its own for each: many wrong tokens from one address would be slowed down.
        desk = build(store, DeskConfig())
        thief = Client(desk, token=word)
        assert thief.get("/api/pulse").status == 401
        thief = Client(desk)
        thief.cookie = f"conclad_desk={word}"
        assert thief.get("/api/pulse").status == 401
    with Store.open(tmp_path / "elsewhere") as other:
        restore(tmp_path / "copy", other)
        again = Client(build(other, DeskConfig()))
        again.cookie = browser.cookie
        assert again.get("/api/pulse").status == 401, "whoever signed out since stays out"


def test_a_copied_database_without_its_key_knows_no_session(
    store: Store, state: Path, tmp_path: Path
) -> None:
    browser = signed_in(store, add_token(store, "ada", Role.READER))
    shutil.copytree(state, tmp_path / "taken", ignore=shutil.ignore_patterns("desk-key"))
    with Store.open(tmp_path / "taken") as taken:
        again = Client(build(taken, DeskConfig()))
        again.cookie = browser.cookie
        assert again.get("/api/pulse").status == 401


def test_a_restarted_desk_signs_nobody_out(store: Store) -> None:
    browser = signed_in(store, add_token(store, "ada", Role.READER))
    again = Client(build(store, DeskConfig()))
    again.cookie = browser.cookie
    assert again.get("/api/pulse").status == 200
