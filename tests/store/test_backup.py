"""A backup taken at any moment is whole, and comes back as it was, into either database."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli.root import run
from monitor.store import Store, check, compact
from monitor.store.backup import NOTE, back_up, restore
from monitor.store.errors import BackupIncomplete, RestoreRefused
from monitor.store.record_states import ClassOrigin
from tests.store.building import commit_batch, dump, plan_feed, scored
from tests.store.conftest import Place, Prepare
from tests.store.test_integrity_check import VERDICTS, fill


def filled(store: Store) -> None:
    fill(store)
    with store.transaction() as tx:
        # One that points at a later row, which a plain copy in order would trip over.
        first = tx.classes.ensure("aa", ClassOrigin.PERSON)
        last = tx.classes.ensure("zz", ClassOrigin.PERSON)
        tx.classes.merge(min(first.id, last.id), max(first.id, last.id))


def without_note(state: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in state.items() if name != NOTE}


def test_what_comes_back_is_what_was_there(
    prepared: Callable[[Prepare], Place], places: Callable[[], Place], tmp_path: Path
) -> None:
    with prepared(filled).open() as store:
        before = dump(store)
        made = back_up(store, tmp_path / "copy")
        assert dump(store) == before
    with places().open() as empty:
        back = restore(tmp_path / "copy", empty)
        assert dump(empty) == before
        assert [f for f in check(empty) if f.severity == "error"] == []
    assert (back.at, back.files) == (made.at, made.files)
    assert made.files == len(before) - sum(isinstance(rows, list) for rows in before.values())


def test_a_backup_is_a_state_that_can_be_read(
    prepared: Callable[[Prepare], Place], tmp_path: Path
) -> None:
    with prepared(filled).open() as store:
        before = dump(store)
        back_up(store, tmp_path / "copy")
    assert not list((tmp_path / "copy").glob("*-wal")), "one file, ready to be moved"
    with Store.open(tmp_path / "copy") as copy:
        assert without_note(dump(copy)) == before


def test_state_moves_to_the_other_database(
    prepared: Callable[[Prepare], Place],
    database: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    from tests.store.conftest import make_place

    other = "postgresql" if database == "sqlite" else "sqlite"
    with prepared(filled).open() as store:
        before = dump(store)
        back_up(store, tmp_path / "copy")
    with make_place(request, other, tmp_path).open() as moved:
        restore(tmp_path / "copy", moved)
        assert dump(moved) == before


def test_a_second_backup_costs_what_is_new(
    prepared: Callable[[Prepare], Place], tmp_path: Path
) -> None:
    with prepared(filled).open() as store:
        first = back_up(store, tmp_path / "copy")
        again = back_up(store, tmp_path / "copy")
        assert (again.files, again.bytes) == (first.files, 0)
        batches = plan_feed(store, "feed/more.parquet", rows=4)
        commit_batch(store, scored(batches[0], file="feed/more.parquet"))
        more = back_up(store, tmp_path / "copy")
        assert more.files == first.files + 1
        assert 0 < more.bytes < first.bytes
        before = dump(store)
    with Store.open(tmp_path / "copy") as copy:
        assert without_note(dump(copy)) == before


def test_a_backup_while_the_monitor_works_is_whole(place: Place, tmp_path: Path) -> None:
    rounds = 3
    store = place.open()
    batches = plan_feed(store, rows=400, size=4)
    begun, stop = threading.Event(), threading.Event()

    def work() -> None:
        with place.open() as own:
            for number, batch in enumerate(batches):
                commit_batch(own, scored(batch))
                if number % 20 == 19:
                    compact(own, "verdicts", owner="test", least_files=2)
                begun.set()
                if stop.is_set():
                    return

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(60)
    try:
        seen = []
        for _ in range(rounds):
            back_up(store, tmp_path / "copy")
            with Store.open(tmp_path / "copy") as copy:
                assert [f for f in check(copy) if f.severity == "error"] == []
                with copy.reading() as tx:
                    seen.append(tx.counters.value("images", "cam-1", "known"))
    finally:
        stop.set()
        worker.join(60)
        store.close()
    assert seen == sorted(seen)
    assert seen[0] > 0


def test_nothing_is_overwritten(
    prepared: Callable[[Prepare], Place], place: Place, tmp_path: Path
) -> None:
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "holiday.jpg").write_bytes(b"?")
    with prepared(filled).open() as store:
        with pytest.raises(BackupIncomplete, match="no backup"):
            back_up(store, foreign)
        back_up(store, tmp_path / "copy")
        before = dump(store)
        with pytest.raises(RestoreRefused, match="already holds state"):
            restore(tmp_path / "copy", store)
        assert dump(store) == before


def test_an_interrupted_backup_is_not_restored(
    prepared: Callable[[Prepare], Place], place: Place, tmp_path: Path
) -> None:
    with prepared(filled).open() as store:
        back_up(store, tmp_path / "copy")
    (tmp_path / "copy" / NOTE).unlink()
    with place.open() as empty, pytest.raises(RestoreRefused, match="no complete backup"):
        restore(tmp_path / "copy", empty)


def test_a_damaged_backup_says_so(
    prepared: Callable[[Prepare], Place], place: Place, tmp_path: Path
) -> None:
    with prepared(filled).open() as store:
        back_up(store, tmp_path / "copy")
    damaged = tmp_path / "copy" / VERDICTS
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with place.open() as empty, pytest.raises(RestoreRefused, match="damaged"):
        restore(tmp_path / "copy", empty)


def test_damage_in_the_state_itself_stops_the_backup(
    prepared: Callable[[Prepare], Place], tmp_path: Path
) -> None:
    with prepared(filled).open() as store:
        store.folder.delete(VERDICTS)
        with pytest.raises(BackupIncomplete, match="store check"):
            back_up(store, tmp_path / "copy")
    assert not (tmp_path / "copy" / NOTE).exists()


def test_the_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open("state") as store:
        fill(store)
        before = dump(store)
    assert run(["store", "backup", "copy", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert run(["store", "restore", "copy", "--set", "state.dir=again"]) == 0
    assert f"{made['files']} files" in capsys.readouterr().out
    with Store.open("again") as again:
        assert dump(again) == before
    assert run(["store", "restore", "copy"]) == 2
    assert "already holds state" in capsys.readouterr().err
