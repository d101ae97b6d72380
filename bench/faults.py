"""The faults that take minutes: python -m bench.faults [--seconds 60] [--only NAME].

One monitor in one process, with its database on a PostgreSQL of its own. Each fault strikes in the
middle of a run; afterwards verdicts, questions, classes, versions and counters must be those of an
undisturbed run, nothing may be set aside, and the account must add up. The quick ones are in
tests/actors/test_faults.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from actors.run_monitor import run
from monitor.backbones.engine import Images
from monitor.config import Config
from monitor.jobs.from_config import open_engine_of
from monitor.store import Store, check
from monitor.store.backup import back_up, restore
from tests.actors.crashing import at
from tests.actors.engines import Around
from tests.actors.story import expected_ids, outcome_of, tell_story, with_oracle
from tests.store.conftest import make_database
from tests.store.postgres import server

#: The batch before which a fault strikes.
STRIKES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", choices=FAULTS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server() as base:
        config = with_oracle(tell_story(Path(folder) / "story").config)
        undisturbed = _run(config, base, Path(folder) / "undisturbed", lambda url, feed: None)
        for name in [given.only] if given.only else FAULTS:
            began = time.monotonic()
            strike = FAULTS[name]

            def at_last(url: str, feed: Path, strike: Strike = strike) -> None:
                strike(url, feed, given.seconds)

            found = _run(config, base, Path(folder) / name, at_last)
            same = "identical" if found == undisturbed else "DIFFERENT"
            print(f"{name:16} {same}, {time.monotonic() - began:.0f} s", flush=True)
            if found != undisturbed:
                raise SystemExit(1)


def _run(
    config: Config, base: str, folder: Path, strike: Callable[[str, Path], None]
) -> dict[str, Any]:
    """One run on a copy of the story, and what it came to."""
    folder.mkdir()
    shutil.copytree(config.feed.path, folder / "feed")
    url = make_database(base)
    with Store.open(config.state.dir) as store:
        back_up(store, folder / "backup")
    with Store.open(url, files=folder / "files") as store:
        restore(folder / "backup", store)
    mine = at(config, folder / "files")
    mine = mine.model_copy(
        update={
            "state": mine.state.model_copy(update={"url": url}),
            "feed": mine.feed.model_copy(update={"path": str(folder / "feed")}),
        }
    )
    calls = iter(range(1, 1_000_000))

    def before(_: Images) -> None:
        if next(calls) == STRIKES:
            strike(url, folder / "feed")

    summary = run(
        mine,
        once=True,
        open_engine=lambda found: Around(open_engine_of(found), before),
        listener=lambda message: (
            print(f"    {message.kind}: {message.text[:110]}", flush=True)
            if message.kind.endswith((".unavailable", ".back"))
            else None
        ),
    )
    assert summary.unaccounted == summary.pending == summary.set_aside["images"] == 0
    assert sum(summary.images.values()) == len(expected_ids())
    with Store.open(url, files=folder / "files") as store:
        assert not [finding for finding in check(store) if finding.severity == "error"]
        return outcome_of(store)


Strike = Callable[[str, Path, float], None]


def _later(action: Callable[[], object], seconds: float) -> None:
    threading.Timer(seconds, action).start()


def _processes(url: str) -> list[int]:
    """All processes of the server: its head, and one for each session."""
    with psycopg.connect(f"{url.rpartition('/')[0]}/postgres", autocommit=True) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE pid IS NOT NULL")
        sessions = [int(row[0]) for row in rows]
    head = int(Path(f"/proc/{sessions[0]}/stat").read_text().rpartition(")")[2].split()[1])
    return [head, *(pid for pid in sessions if Path(f"/proc/{pid}").exists())]


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with _gone_is_fine():
            os.kill(pid, number)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return


def _freeze(url: str, feed: Path, seconds: float) -> None:
    pids = _processes(url)
    _signal(pids, signal.SIGSTOP)
    _later(lambda: _signal(pids, signal.SIGCONT), seconds)


def _lag(url: str, feed: Path, seconds: float) -> None:
    """It answers, half a second late, again and again."""
    pids = _processes(url)
    end = time.monotonic() + seconds

    def stutter() -> None:
        while time.monotonic() < end:
            _signal(pids, signal.SIGSTOP)
            time.sleep(0.5)
            _signal(pids, signal.SIGCONT)
            time.sleep(0.5)

    threading.Thread(target=stutter, daemon=True).start()


def _drop(url: str, feed: Path, seconds: float) -> None:
    """Every session is ended, again and again, as by a server that restarts in a loop."""
    end = time.monotonic() + seconds

    def storm() -> None:
        while time.monotonic() < end:
            with psycopg.connect(f"{url.rpartition('/')[0]}/postgres", autocommit=True) as ours:
                ours.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            time.sleep(0.5)

    threading.Thread(target=storm, daemon=True).start()


def _hide_feed(url: str, feed: Path, seconds: float) -> None:
    away = feed.with_name("away")
    feed.rename(away)
    _later(lambda: away.rename(feed), seconds)


FAULTS: dict[str, Strike] = {
    "frozen-database": _freeze,
    "lagging-database": _lag,
    "dropped-sessions": _drop,
    "feed-away": _hide_feed,
}


if __name__ == "__main__":
    main()
