"""Two groups of sources that share one embedder: do they lose anything, and who gets how much?

    .venv/bin/python -m bench.groups [--images 12000] [--rate 400] [--shares 1 3] [--deaths 0]

A cluster of two nodes, one of which has the one device, a stand-in that computes so many images a
second. First one group alone works off a feed, then two do side by side, each in a process of its
own. Counted are committed images, while all groups of a run have work. With ``--deaths`` the
process of the device dies so many times in each run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sqlalchemy import select

from actors.run_monitor import run
from bench.standins import blobs, configuration, mortal_engine, put_into_use, write_numbered
from monitor.config import Config
from monitor.novelty.detector import Detector
from monitor.store import Store
from monitor.store.tables import batches
from tests.actors.nodes import nodes

ROWS = 32
#: Images of a file.
EACH = 8 * ROWS
_processes = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Images a second of each group while all of them had work, and images in all."""

    rates: Mapping[str, float]
    images: Mapping[str, int]

    @property
    def together(self) -> float:
        return sum(self.rates.values())


def measure(
    folder: Path,
    shares: Mapping[str, float],
    *,
    images: int,
    rate: float,
    address: str,
    deaths: int = 0,
) -> GroupRates:
    """Let groups work off a feed each, side by side, while their embedder dies so many times."""
    features, names = blobs(10, 4000)
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "features.npy"
    np.save(table, features)
    graves = folder / "graves"
    graves.mkdir()
    engine = partial(mortal_engine, table, rate, ROWS, graves, deaths)
    monitors = []
    states = {group: folder / group / "state" for group in shares}
    for number, (group, share) in enumerate(shares.items()):
        config = _config(folder, group, share, address)
        Path(config.feed.path).mkdir()
        write_feed(folder / group / "ready", images, first_id=number * images, source=group)
        fingerprint = engine(config).fingerprint
        put_into_use(Path(config.state.dir), Detector.fit(features, names, fingerprint=fingerprint))
        monitors.append(_processes.Process(target=_run, args=(config, engine)))
    for monitor in monitors:
        monitor.start()
    # All have work from the same moment on, however long each took to start.
    _wait(monitors, lambda: all(map(_has_started, states.values())))
    for group in shares:
        (folder / group / "ready").rename(folder / group / "feed" / "all")
    whole = images // EACH * EACH
    _wait(monitors, lambda: all(_judged(state) >= whole for state in states.values()))
    for monitor in monitors:
        monitor.terminate()
        monitor.join()
    assert len(list(graves.iterdir())) == deaths, "it did not die as often as it should"
    return rates_of(states)


def _wait(monitors: Sequence[Any], until: Callable[[], bool]) -> None:
    while not until():
        codes = [monitor.exitcode for monitor in monitors]
        assert codes == [None] * len(codes), f"a monitor ended: {codes}"
        time.sleep(0.5)


def _has_started(state: Path) -> bool:
    with Store.open(state) as store, store.reading() as tx:
        return any(event.kind == "monitor.started" for event in tx.events.after(limit=100))


def _judged(state: Path) -> int:
    return sum(rows for _, rows in _settled(state))


def rates_of(states: Mapping[str, Path]) -> GroupRates:
    settled = {group: _settled(state) for group, state in states.items()}
    begins = max(moments[0][0] for moments in settled.values())
    ends = min(moments[-1][0] for moments in settled.values())
    seconds = (ends - begins).total_seconds()
    return GroupRates(
        {
            group: sum(rows for at, rows in moments if begins < at <= ends) / seconds
            for group, moments in settled.items()
        },
        {group: sum(rows for _, rows in moments) for group, moments in settled.items()},
    )


def _settled(state: Path) -> list[tuple[datetime, int]]:
    with Store.open(state) as store, store.reading() as tx:
        columns = batches.c.settled_at, batches.c.known + batches.c.novel
        done = select(*columns).where(batches.c.settled_at.is_not(None))
        rows = tx.connection.execute(done.order_by(batches.c.settled_at)).all()
    return [(at, int(count)) for at, count in rows]


def _config(folder: Path, group: str, share: float, address: str) -> Config:
    (folder / group).mkdir(parents=True)
    config = configuration(
        folder / group,
        f"run.address={address}",
        f"run.embedder_share={share}",
        "run.embedders=1",
        "run.embedder_cpus=0",
        "run.embedder_resources={device: 1}",
        "backbone.threads=1",
        f"feed.batch_rows={ROWS}",
        # Nobody is there to ask, and pools are none of this.
        "pools.false_rounds_per_month=0",
        "labels.trickle_per_week=0",
    )
    return config.model_copy(update={"group": group})


def write_feed(feed: Path, images: int, *, first_id: int, source: str) -> None:
    for number in range(images // EACH):
        first = first_id + number * EACH
        numbers = [n % 4000 for n in range(first, first + EACH)]
        write_numbered(feed / f"{number:05d}.parquet", numbers, first_id=first, source=source)


def _run(config: Config, engine: partial[object]) -> None:
    run(config, open_engine=engine)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=12_000, help="of each group")
    parser.add_argument("--rate", type=float, default=400.0, help="images a second of the device")
    parser.add_argument("--shares", type=float, nargs=2, default=[1.0, 3.0])
    parser.add_argument("--deaths", type=int, default=0, help="of the device's process, a run")
    given = parser.parse_args(arguments)
    with nodes(cpus=2) as cluster, tempfile.TemporaryDirectory(prefix="groups-") as place:
        cluster.add(cpus=1, device=1)
        of = partial(
            measure,
            images=given.images,
            rate=given.rate,
            address=cluster.address,
            deaths=given.deaths,
        )
        alone = of(Path(place, "alone"), {"harbour": 1.0})
        both = of(Path(place, "both"), dict(zip(("harbour", "forest"), given.shares, strict=True)))
    print(f"one group alone: {alone.together:.0f} images/s of {given.rate:.0f}")
    shown = ", ".join(
        f"{group} {rate:.0f} ({rate / both.together:.0%}, share {share / sum(given.shares):.0%})"
        for (group, rate), share in zip(both.rates.items(), given.shares, strict=True)
    )
    print(
        f"two groups: {both.together:.0f} images/s, {both.together / alone.together:.2f} of one "
        f"alone; {shown}"
    )


if __name__ == "__main__":
    main()
