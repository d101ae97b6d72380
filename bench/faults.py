"""The fault matrix, each fault for a minute: python -m bench.faults [--seconds 60] [--only NAME …].

A run over a small feed is struck in its middle; afterwards verdicts, questions, classes, versions
and counters must be those of an undisturbed run, nothing may be quarantined, and the account must
add up. Databases, buckets, disks and Ray are real: PostgreSQL, an S3 server behind one that can
fail, a small file system that is filled, a head that is killed. ``people`` lets Hypothesis choose
what people do, many times. The quick ones are also in tests/actors/test_faults.py.

Disks and names can only be struck by root, who may mount; others leave those rows out and say so.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pyarrow import fs

from actors.run_monitor import run
from bench.chaos import TIMELESS, moved
from bench.strikes import (
    CLOCK_STRIKES,
    DEVICE_STRIKES,
    DISK_STRIKES,
    FEED_STRIKES,
    SERVER_STRIKES,
    Place,
    Strike,
    drop_sessions,
    faulty_engine,
    later,
    lock_file,
    make_read_only,
    shifted_clock,
    small_disk,
)
from monitor.backbones.engine import Engine, Images
from monitor.config import Config
from monitor.jobs.from_config import open_existing_store
from monitor.store import check
from monitor.store.counters_and_image_account import account
from tests.actors.driving import PATIENCE, driver, has_committed, until
from tests.actors.engines import Around, slow
from tests.actors.nodes import nodes
from tests.actors.story import expected_ids, outcome_of, tell_story, with_oracle
from tests.actors.test_people_at_any_moment import at_random
from tests.buckets import bucket_at
from tests.faulty_proxy import Mode, Proxy, proxy
from tests.store.conftest import make_database
from tests.store.postgres import server

#: The batch before which a fault strikes.
STRIKES = 4
#: Names that only this bench knows, and may forget.
DATABASE_HOST, BUCKET_HOST = "database.conclad.test", "bucket.conclad.test"
#: Set in the process whose mounts are its own.
OWN_MOUNTS = "CONCLAD_BENCH_OWN_MOUNTS"
#: After a fault has ended, until nothing of it is left.
SETTLED_SECONDS = 1.0
#: What people do in one example.
STEPS = 30
MODES: tuple[Mode, ...] = ("500", "expired", "slow", "half", "refused")


@dataclass(frozen=True, slots=True)
class Row:
    """A fault, and what the run that it strikes stands on."""

    strike: Strike
    store: str = "sqlite"
    feed: str = "folder"
    needs_root: bool = False


class Setting:
    """The servers that all rows share."""

    def __init__(self, folder: Path, postgresql: str, endpoint: str, bucket: Proxy) -> None:
        self.folder, self.postgresql, self.endpoint, self.bucket = (
            folder,
            postgresql,
            endpoint,
            bucket,
        )
        self.hosts = folder / "hosts"

    def address(self, host: str, place: Place) -> str:
        query = f"endpoint_override={host}:{self.bucket.port}&scheme=http&region=us-east-1"
        return f"s3://feed/{place.folder.name}?{query}"

    def forget_names(self, place: Place, seconds: float) -> None:
        """The resolver answers, and knows nobody."""
        known = self.hosts.read_text()
        self.hosts.write_text("127.0.0.1 localhost\n")
        if place.url is not None:
            drop_sessions(place, 0.1)  # a session that is open needs no name
        later(lambda: self.hosts.write_text(known), seconds)

    def fail_bucket(self, mode: Mode, place: Place, seconds: float) -> None:
        self.bucket.fail(mode, seconds)

    def rows(self) -> dict[str, Row]:
        return {
            **{name: Row(strike) for name, strike in (*FEED_STRIKES.items(),)},
            **{name: Row(strike, store="postgresql") for name, strike in SERVER_STRIKES.items()},
            "database-locked": Row(lock_file),
            **{name: Row(strike, needs_root=True) for name, strike in DISK_STRIKES.items()},
            "disk-read-only": Row(make_read_only, store="postgresql", needs_root=True),
            **{name: Row(strike) for name, strike in DEVICE_STRIKES.items()},
            **{name: Row(strike) for name, strike in CLOCK_STRIKES.items()},
            **{
                f"bucket-{mode}": Row(partial(self.fail_bucket, mode), feed="bucket")
                for mode in MODES
            },
            "names-of-the-database": Row(self.forget_names, store="named", needs_root=True),
            "names-of-the-bucket": Row(self.forget_names, feed="named", needs_root=True),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--examples", type=int, default=40, help="of what people do")
    given = parser.parse_args()
    with_own_mounts()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # of the bucket, every request
    with setting() as found:
        story = with_oracle(tell_story(found.folder / "story", *TIMELESS).config)
        undisturbed = struck(found, story, "undisturbed", Row(lambda place, seconds: None), 0.0)
        matrix: dict[str, Callable[[], dict[str, Any]]] = {
            name: partial(struck, found, story, name, row, given.seconds)
            for name, row in found.rows().items()
            if not row.needs_root or os.environ.get(OWN_MOUNTS)
        }
        matrix["ray-head"] = partial(without_a_head, found, story, given.seconds)
        matrix["people"] = partial(people, found, given.examples, undisturbed)
        for name in found.rows():
            if name not in matrix:
                print(f"{name:22} left out: needs root", flush=True)
        failed = []
        for name in given.only or matrix:
            began = time.monotonic()
            found_now = matrix[name]()
            differing = [key for key in undisturbed if found_now[key] != undisturbed[key]]
            failed += [name] if differing else []
            word = f"DIFFERENT: {', '.join(differing)}" if differing else "as undisturbed"
            print(f"{name:22} {word}, {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        raise SystemExit(f"different: {', '.join(failed)}")


def with_own_mounts() -> None:
    """As root, start again with mounts that nobody else sees."""
    if os.geteuid() or os.environ.get(OWN_MOUNTS) or not shutil.which("unshare"):
        return
    os.environ[OWN_MOUNTS] = "1"
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m"]
    os.execvp("unshare", [*command, "bench.faults", *sys.argv[1:]])


@contextmanager
def setting() -> Iterator[Setting]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        base = stack.enter_context(server())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        template = stack.enter_context(bucket_at("s3", "feed", patch))
        (endpoint,) = parse_qs(urlsplit(template).query)["endpoint_override"]
        host, _, port = endpoint.partition(":")
        behind = stack.enter_context(proxy(host, int(port)))
        found = Setting(folder, base, template, behind)
        if os.environ.get(OWN_MOUNTS):
            resolver = folder / "resolv.conf"
            resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
            found.hosts.write_text(f"127.0.0.1 localhost {DATABASE_HOST} {BUCKET_HOST}\n")
            for ours, place in ((found.hosts, "/etc/hosts"), (resolver, "/etc/resolv.conf")):
                subprocess.run(["mount", "--bind", str(ours), place], check=True)
        yield found


def struck(setting: Setting, story: Config, name: str, row: Row, seconds: float) -> dict[str, Any]:
    """One run on a copy of the story, and what it came to."""
    url = None if row.store == "sqlite" else make_database(setting.postgresql)
    place = Place(setting.folder / name, url)
    shutil.copytree(story.feed.path, place.feed)
    with small_disk(place):
        mine = moved(story, place)
        if row.store == "named":
            assert url is not None
            named = mine.state.model_copy(update={"url": url.replace("127.0.0.1", DATABASE_HOST)})
            mine = mine.model_copy(update={"state": named})
        mine = fed_from(mine, setting, place, row.feed)
        calls = iter(range(1, 1_000_000))
        struck_at: list[float] = []

        def engine(config: Config) -> Engine:
            inner = faulty_engine(place, 0.0, config)

            def before(_: Images) -> None:
                if next(calls) == STRIKES:
                    struck_at.append(time.monotonic())
                    row.strike(place, seconds)

            return Around(inner, before)

        summary = run(
            mine,
            once=True,
            open_engine=engine,
            clock=partial(shifted_clock, place) if name in CLOCK_STRIKES else None,
            listener=lambda message: (
                print(f"    {message.kind}: {message.text[:130]}", flush=True)
                if message.kind.endswith((".unavailable", ".back", "quarantined", "changed"))
                else None
            ),
        )
        # A run may be through before the fault is over; what it left is looked at afterwards.
        time.sleep(max(0.0, struck_at[0] + seconds + SETTLED_SECONDS - time.monotonic()))
        assert summary.unaccounted == summary.pending == summary.quarantined["images"] == 0
        assert sum(summary.images.values()) == len(expected_ids())
        return state_of(replace_host(mine, url))


def replace_host(config: Config, url: str | None) -> Config:
    """By number again: the names may still be forgotten."""
    return config.model_copy(update={"state": config.state.model_copy(update={"url": url})})


def fed_from(config: Config, setting: Setting, place: Place, kind: str) -> Config:
    path = str(place.feed)
    if kind != "folder":
        plain, root = fs.FileSystem.from_uri(setting.endpoint.format("feed"))
        for file in sorted(place.feed.iterdir()):
            with plain.open_output_stream(f"{root}/{place.folder.name}/{file.name}") as sink:
                sink.write(file.read_bytes())
        path = setting.address("127.0.0.1" if kind == "bucket" else BUCKET_HOST, place)
    return config.model_copy(update={"feed": config.feed.model_copy(update={"path": path})})


def state_of(config: Config) -> dict[str, Any]:
    with open_existing_store(config) as store:
        assert not [finding for finding in check(store) if finding.severity == "error"]
        with store.reading() as tx:
            assert account(tx).unaccounted == 0
        return outcome_of(store)


def without_a_head(setting: Setting, story: Config, seconds: float) -> dict[str, Any]:
    """A monitor on a cluster whose head is killed, and is back after a while."""
    place = Place(setting.folder / "ray-head")
    shutil.copytree(story.feed.path, place.feed)
    mine = fed_from(moved(story, place), setting, place, "folder")
    with nodes(cpus=2) as cluster:
        run_section = mine.run.model_copy(update={"address": cluster.address})
        there = mine.model_copy(update={"run": run_section})
        with driver(there, engine=slow) as process:
            until(place.state, has_committed(2), process)
            cluster.lose_head()
            time.sleep(seconds)
            cluster.start_head()
            process.join(PATIENCE)
            assert process.exitcode == 0, f"the monitor ended with {process.exitcode}"
    return state_of(mine)


def people(setting: Setting, examples: int, undisturbed: dict[str, Any]) -> dict[str, Any]:
    """What people do at any moment, many times; raises where the monitor stops or a pool hangs."""
    begun = tell_story(setting.folder / "people").config
    run(begun, once=True)
    for stolen in (0.5, 0.0):
        with pytest.MonkeyPatch.context() as patch:
            at_random(begun, patch, stolen, examples=examples, steps=STEPS)
    return undisturbed


if __name__ == "__main__":
    main()
