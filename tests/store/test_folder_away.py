"""A state whose folder is renamed or not mounted is waited for; nothing is made in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.errors import ErrorKind, kind_of
from monitor.store import Store
from monitor.store.errors import DiskUnavailable, StoreUnreachable
from monitor.store.verdict_columns import read_table
from tests.store.conftest import DATABASES, Place, make_place


@pytest.fixture(params=DATABASES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return make_place(request, request.param, tmp_path)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with place.open() as opened:
        opened.folder.write("verdicts/a.bin", b"a")
        yield opened


def assert_is_away(store: Store, files: Path) -> None:
    for act in (
        lambda: store.folder.write("rejected/b.bin", b"b"),
        lambda: store.folder.read("verdicts/a.bin"),
        lambda: store.folder.size("verdicts/a.bin"),
        lambda: store.folder.list("verdicts"),
        lambda: store.folder.delete("verdicts/a.bin"),
        lambda: read_table(store.folder, "verdicts/a.bin"),
    ):
        with pytest.raises(DiskUnavailable, match="is away") as caught:
            act()
        assert kind_of(caught.value) is ErrorKind.DISK
    assert not files.exists() or not list(files.iterdir()), "nothing is made in its place"


def test_a_folder_that_was_renamed_is_away_until_it_is_back(store: Store, place: Place) -> None:
    files = Path(place.files)
    files.rename(files.with_name("elsewhere"))
    assert_is_away(store, files)
    files.with_name("elsewhere").rename(files)
    store.folder.write("rejected/b.bin", b"b")
    assert store.folder.read("verdicts/a.bin") == b"a"


def test_an_empty_folder_where_it_was_mounted_is_not_it(store: Store, place: Place) -> None:
    files = Path(place.files)
    files.rename(files.with_name("elsewhere"))
    files.mkdir()
    assert_is_away(store, files)
    files.rmdir()
    files.with_name("elsewhere").rename(files)
    assert store.folder.read("verdicts/a.bin") == b"a"


def test_a_new_connection_makes_no_new_database(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Store.open(state) as store:
        store.close()  # the next one connects anew
        state.rename(tmp_path / "away")
        state.mkdir()
        with pytest.raises(StoreUnreachable), store.transaction() as tx:
            tx.pools.open()
        assert list(state.iterdir()) == []
        state.rmdir()
        (tmp_path / "away").rename(state)
        with store.transaction() as tx:
            assert tx.pools.open().id == 1


def test_a_missing_file_of_a_folder_that_is_there_is_just_missing(store: Store) -> None:
    with pytest.raises(FileNotFoundError):
        store.folder.read("verdicts/none.bin")
    assert store.folder.size("verdicts/none.bin") is None
    assert store.folder.list("nothing") == []
