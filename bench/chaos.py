"""Kill actors and drivers for as long as a feed lasts: python -m bench.chaos [--images 20000].

A real Ray of three nodes on this machine, one of which is lost half way. Afterwards every image
must have exactly one verdict, nobody may have been asked twice, and the budgets must be exact. And
not only that: verdicts, questions, classes, versions by their hashes, counters and events must be
those of a run over a copy of the feed that nobody disturbed, which goes on beside it.

With ``--all`` the faults are of every kind, and several at once: actors, drivers and nodes are
killed, drivers frozen and stopped, Ray's head is lost for up to a minute; the feed's folder is away
or empty, its files are touched; the database is frozen, lags, drops its sessions (PostgreSQL) or is
locked (``--store sqlite``); the disk of the state is full, or has no inode left (as root, who may
mount a small one); the device has no memory, or is broken until its worker is replaced; the clock
jumps a day ahead or back. They come in storms of up to four, with a ``--pause`` between, and the
feed is paced to last about ``--minutes``, the faults included. With ``--address none`` it is one
process, and what is killed is that.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import tempfile
from contextlib import ExitStack
from multiprocessing.context import SpawnProcess
from pathlib import Path

from bench.all_faults import AllFaults
from bench.deaths import check, make_feed, rage
from bench.strikes import Place, small_disk
from monitor.config import Config
from monitor.jobs.from_config import open_existing_store
from monitor.store import Store
from monitor.store.backup import back_up, restore
from tests.actors.crashing import at
from tests.actors.engines import slow
from tests.actors.nodes import nodes
from tests.actors.story import outcome, outcome_of
from tests.store.conftest import make_database
from tests.store.postgres import server

#: Batches that are embedded side by side by two embedders, and how many images each has.
AT_ONCE, ROWS = 4, 32
ON_CLUSTER = ("run.embedders=2", "run.embedder_cpus=0", "run.embedder_resources={site: 1}")
#: Time does nothing to a pool, so that a run that takes an hour comes to what a short one does.
TIMELESS = ("pools.age_hours=100000", "pools.look_minutes=1000000", "labels.per_week=100000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int)
    parser.add_argument(
        "--pause", type=float, nargs=2, metavar="SECONDS", help="2 6, with --all 15 45"
    )
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="faults of every kind")
    parser.add_argument("--minutes", type=float, default=60.0, help="with --all: about")
    parser.add_argument("--address", choices=("cluster", "none"), default="cluster")
    parser.add_argument("--store", choices=("postgresql", "sqlite"), default="postgresql")
    given = parser.parse_args()
    images = given.images or (50_000 if given.all else 20_000)
    shortest, longest = given.pause or ((15.0, 45.0) if given.all else (2.0, 6.0))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        # Without a cluster there are no actors, nodes and heads to lose, only drivers.
        cluster = stack.enter_context(nodes(cpus=1)) if given.address == "cluster" else None
        config = make_feed(
            folder,
            images,
            *(ON_CLUSTER if cluster else ()),
            f"run.address={cluster.address if cluster else 'none'}",
            "pools.size=1000",
            "labels.budget=0.02",
            f"feed.batch_rows={ROWS}",
            *(TIMELESS if given.all else ()),
        )
        calm = beside(config, folder / "calm")
        stack.callback(calm.kill)
        if given.all:
            base = stack.enter_context(server()) if given.store == "postgresql" else None
            place = Place(folder, make_database(base) if base else None)
            has_disk = stack.enter_context(small_disk(place))
            config = moved(config, place)
            if not has_disk:
                print("the disk is not struck: only root may mount a small one", flush=True)
            faults = AllFaults(
                config,
                place,
                cluster,
                disk=has_disk,
                pause=(shortest, longest),
                seed=given.seed,
                images=images,
                seconds=given.minutes * 60,
                rows_at_once=ROWS * (AT_ONCE if cluster else 1),
            )
            took = faults.run(say=lambda text: print(text, flush=True))
            toll = ", ".join(f"{n} {kind}" for kind, n in sorted(faults.toll.items()))
            print(
                f"{sum(faults.toll.values())} faults in {took / 60:.0f} minutes: {toll}",
                flush=True,
            )
        else:
            assert cluster is not None, "without --all only what is on a cluster is killed"
            killed = rage(
                config,
                cluster,
                pause=(shortest, longest),
                seed=given.seed,
                # A second for each batch: the feed lasts long enough for many to die.
                engine=slow,
                lose_node_at=images // 2,
                say=lambda text: print(text, flush=True),
            )
            actors = ", ".join(f"{n} {role}" for role, n in sorted(killed.actors.items()))
            print(
                f"killed: {actors}, {killed.drivers} drivers, {killed.nodes} node in "
                f"{killed.seconds:.0f} s",
                flush=True,
            )
        found = check(config, images)
        calm.join()
        assert calm.exitcode == 0, f"the calm run ended with {calm.exitcode}"
        differing = compare(config, folder / "calm" / "state")
    print(
        f"{found['images']} images have one verdict each, {found['labels']} labels asked once "
        f"each, classes: {', '.join(found['classes'])}"
    )
    print(f"as in calm weather: {'everything' if not differing else f'not {differing}'}")
    if differing:
        raise SystemExit(1)


def moved(config: Config, place: Place) -> Config:
    """The same state on a disk, and with a database, that can be struck."""
    with Store.open(config.state.dir) as store:
        back_up(store, place.folder / "backup")
    with Store.open(place.url or place.state, files=place.state) as store:
        restore(place.folder / "backup", store)
    there = at(config, place.state)
    state = there.state.model_copy(update={"url": place.url})
    return there.model_copy(update={"state": state})


def beside(config: Config, folder: Path) -> SpawnProcess:
    """A run over copies of state and feed, in one process that nobody disturbs."""
    shutil.copytree(config.state.dir, folder / "state")
    shutil.copytree(config.feed.path, folder / "feed")
    undisturbed = at(config, folder / "state")
    changes = {
        "run": config.run.model_copy(update={"address": "none"}),
        "feed": config.feed.model_copy(update={"path": str(folder / "feed")}),
    }
    process = multiprocessing.get_context("spawn").Process(
        target=run_calm, args=(undisturbed.model_copy(update=changes),)
    )
    process.start()
    return process


def run_calm(config: Config) -> None:
    from actors.run_monitor import run

    os.nice(10)
    run(config, once=True)


def compare(config: Config, state: Path) -> str:
    """What differs from the run that nobody disturbed."""
    with open_existing_store(config) as store:
        wild = outcome_of(store)
    calm = outcome(state)
    return ", ".join(name for name in calm if wild[name] != calm[name])


if __name__ == "__main__":
    main()
