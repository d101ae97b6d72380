"""Is the backbone the only cost? python -m bench.throughput [device|backbone|nodes] ...

``device``    a stand-in for a GPU, which computes so many images a second and leaves the processor
              free: what share of that does the whole monitor commit?
``backbone``  the embedded backbone on this machine's processor: images a second of ``conclad run``
              against ``conclad score`` on the same files, turn by turn.
``nodes``     two stand-ins on two nodes of a cluster against one.

``backbone`` takes the images of ``--data``; without it those of ../shared/data, or where they are
not, scenes of its own. Starting up is not counted; the clock runs from when the actors are ready
to the last commit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from sqlalchemy import func, select

from actors.run_monitor import run
from bench.drawn import write_scenes
from bench.standins import blobs, configuration, paced_engine, put_into_use, write_numbered
from monitor.backbones.engine import Engine
from monitor.config import Config
from monitor.jobs.fit_detector import fit
from monitor.jobs.score_files import score
from monitor.novelty.detector import Detector
from monitor.store import Store
from monitor.store.tables import batches
from tests.actors.nodes import nodes

ROWS_PER_FILE = 1000
#: A batch of the stand-in: small, so that filling and emptying the pipe hardly counts.
ROWS = 64
#: Enough to fit every class of the data.
LABELLED = 400
#: Where the data of the evaluation lies on our machines.
BESIDE = Path("../shared/data/eurosat.parquet")


def committed_per_second(state: str) -> float:
    """Images that were committed, by the time from when all workers are up to the last commit."""
    with Store.open(state) as store, store.reading() as tx:
        began = max(e.at for e in tx.events.after(limit=10**6) if e.kind == "monitor.started")
        last, rows = tx.connection.execute(
            select(func.max(batches.c.settled_at), func.sum(batches.c.rows)).where(
                batches.c.settled_at.is_not(None)
            )
        ).one()
    assert isinstance(last, datetime)
    return float(rows) / (last - began).total_seconds()


def stand_in(
    folder: Path, images: int, *overrides: str
) -> tuple[Config, Callable[[float, int], Callable[[Config], Engine]]]:
    """A feed of numbered images of ten known classes, and engines for them."""
    features, names = blobs(10, 20_000)
    np.save(folder / "features.npy", features)
    config = configuration(folder, *overrides)
    engine = paced_engine(folder / "features.npy", 1.0, 64, config)
    detector = Detector.fit(features[:4000], names[:4000], fingerprint=engine.fingerprint)
    put_into_use(Path(config.state.dir), detector)
    for start in range(0, images, ROWS_PER_FILE):
        count = min(ROWS_PER_FILE, images - start)
        numbers = range(start, start + count)
        write_numbered(folder / "feed" / f"{start:09d}.parquet", numbers, first_id=start)
    return config, lambda rate, batch: partial(paced_engine, folder / "features.npy", rate, batch)


def device(rate: float, seconds: float, address: str) -> float:
    """The share of a device's rate that the whole monitor commits."""
    with tempfile.TemporaryDirectory() as temporary:
        config, engine = stand_in(
            Path(temporary),
            int(rate * seconds),
            f"run.address={address}",
            "run.embedder_cpus=1",
            f"feed.batch_rows={ROWS}",
        )
        run(config, once=True, open_engine=engine(rate, ROWS))
        found = committed_per_second(config.state.dir)
    print(f"device of {rate:g} images/s: {found:.0f} committed, {found / rate:.3f} of it")
    return found / rate


def two_nodes(rate: float, seconds: float) -> float:
    """What a second embedder on a second node adds, as a factor."""
    found = []
    with nodes(cpus=2) as cluster:
        for _ in range(2):
            cluster.add(site=1)
        for embedders in (1, 2):
            with tempfile.TemporaryDirectory() as temporary:
                config, engine = stand_in(
                    Path(temporary),
                    int(rate * seconds * embedders),
                    f"run.address={cluster.address}",
                    f"run.embedders={embedders}",
                    "run.embedder_cpus=0",
                    "run.embedder_resources={site: 1}",
                    f"feed.batch_rows={ROWS}",
                )
                run(config, once=True, open_engine=engine(rate, ROWS))
                found.append(committed_per_second(config.state.dir))
            print(f"{embedders} of {rate:g} images/s: {found[-1]:.0f} committed")
    print(f"two nodes against one: {found[1] / found[0]:.2f} times")
    return found[1] / found[0]


def backbone(data: Path, images: int, turns: int, address: str) -> float:
    """The monitor's images a second against those of ``conclad score``, turn by turn."""
    whole = pq.read_table(data)
    ratios = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        labelled = folder / "labelled.parquet"
        pq.write_table(whole.slice(0, LABELLED), labelled)
        # As many threads for both, whatever OMP_NUM_THREADS says to one of them.
        threads = f"backbone.threads={len(os.sched_getaffinity(0))}"
        ours = ("backbone.name=embedded", "backbone.engine=auto", threads, f"run.address={address}")
        # One pool, and it stays open: what is compared is embedding and scoring.
        fit(configuration(folder, *ours), [labelled], cache=folder / "cache")
        (folder / "state").rename(folder / "fitted")
        for turn in range(turns):
            feed, state = folder / f"feed-{turn}", folder / f"state-{turn}"
            feed.mkdir()
            pq.write_table(whole.slice(LABELLED + turn * images, images), feed / "a.parquet")
            shutil.copytree(folder / "fitted", state)
            config = configuration(
                folder, *ours, f"feed.path={feed}", f"state.dir={state}", f"pools.size={images * 2}"
            )
            # Who goes first changes, as the machine's other work does.
            order = (_score, _run) if turn % 2 else (_run, _score)
            speed = {job: job(config) for job in order}
            ratios.append(speed[_run] / speed[_score])
            print(
                f"turn {turn}: run {speed[_run]:.1f} images/s, score {speed[_score]:.1f}, "
                f"ratio {ratios[-1]:.2f}",
                flush=True,
            )
    print(f"conclad run against conclad score: {statistics.median(ratios):.2f} (median)")
    return statistics.median(ratios)


def _data(folder: Path, images: int) -> Path:
    """Real images where there are some, else scenes; which of them is said."""
    if BESIDE.is_file():
        return BESIDE
    print(f"no {BESIDE}: drawing {images} scenes; --data takes images of yours", flush=True)
    return write_scenes(folder / "scenes.parquet", images)


def _run(config: Config) -> float:
    run(config, once=True)
    return committed_per_second(config.state.dir)


def _score(config: Config) -> float:
    found = score(config, [config.feed.path], Path(config.state.dir) / "scored")
    assert found.images_per_second is not None
    return found.images_per_second


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["device", "nodes", "backbone"])
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--address", default="local")
    parser.add_argument("--data", type=Path, help="labelled Parquet")
    given = parser.parse_args(arguments)
    if unknown := set(given.what) - {"device", "nodes", "backbone"}:
        parser.error(f"{', '.join(sorted(unknown))}: choose from device, nodes, backbone")
    if given.data is not None and not given.data.is_file():
        parser.error(f"--data: {given.data} is no file; leave it out to draw scenes")
    if "device" in given.what:
        device(given.rate, given.seconds, given.address)
    if "nodes" in given.what:
        two_nodes(given.rate, given.seconds)
    if "backbone" in given.what:
        with tempfile.TemporaryDirectory() as temporary:
            needed = LABELLED + given.images * given.turns
            data = given.data or _data(Path(temporary), needed)
            backbone(data, given.images, given.turns, given.address)


if __name__ == "__main__":
    main()
