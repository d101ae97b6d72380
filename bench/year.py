"""A year of a feed by an injected clock: what a state's database, files and memory grow to.

    .venv/bin/python -m bench.year [--days 365] [--pools 2] [--rate 1000] [--sources 1000]

Each simulated day brings some pools of images through the real commit, settlement, merging and
retention. What the year leaves is divided by what it is kept for, reckoned up to a feed of
``--rate`` images a second, and compared with what docs/scale.md promises; so is the memory of the
process, at the end of each quarter.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from sqlalchemy import text

from monitor.config import Config
from monitor.store import ScoredBatch, Store, commit_batches, compact, drop_spools
from monitor.store.growth_limits import SLICES, forget_old
from monitor.store.pool_transitions import PoolEvent
from monitor.store.records import FileStat, Occurrence
from monitor.store.verdict_columns import REJECTED, SETTLED, VERDICTS, features_schema, table
from monitor.store.version_and_settled_commit import commit_settled

ROWS = 256
BATCHES = 8
DAY = timedelta(days=1)
BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
#: Bytes, as docs/scale.md gives them, and for how long they are kept.
PROMISED: Mapping[str, tuple[float, str]] = {
    "verdicts and settled verdicts, an image": (24, "for good"),
    "a digest": (30, "keep_digests_days"),
    "a batch in the ledger, with its file and outputs": (120, "for good"),
    "the record of a pool, with its settlement": (1300, "for good"),
    "the events of a pool": (1300, "keep_events_days"),
}
#: Megabytes of a process that commits, settles, merges and forgets, whatever the age of its state.
PROMISED_MEMORY = 220
QUARTERS = 4
TABLES: Mapping[str, tuple[str, ...]] = {
    "a digest": ("seen",),
    "a batch in the ledger, with its file and outputs": ("batches", "files", "outputs"),
    "the record of a pool, with its settlement": ("pools", "pool_members", "settlements"),
    "the events of a pool": ("events",),
}


class Feed:
    """A feed that brings whole pools, and the clock that its store goes by."""

    def __init__(self, folder: Path, sources: int) -> None:
        self.now = BEGINS
        self.store = Store.open(folder, clock=lambda: self.now)
        self._names = np.asarray([f"cam-{i:05d}" for i in range(sources)], dtype=object)
        self._rng = np.random.default_rng(0)
        self.pools = 0

    def bring_pool(self) -> None:
        """Commit a pool of images in which nothing is new, and settle it."""
        count = BATCHES * ROWS
        with self.store.transaction() as tx:
            path = f"feed/{self.now:%Y%m%d}-{self.pools:09}.parquet"
            (file,) = tx.files.register([FileStat(path, 1, 1)]).new
            cuts = [(n * ROWS, ROWS) for n in range(BATCHES)]
            planned = tx.files.plan(file.id, count, cuts)
            pool = tx.pools.open().id
        sources = self._rng.choice(self._names, count)
        ids = [f"frame-{self.pools:09}-{row:05}" for row in range(count)]
        batches = [
            self._scored(
                batch.id, pool, path, ids[cut : cut + ROWS], sources[cut : cut + ROWS], cut
            )
            for batch, (cut, _) in zip(planned, cuts, strict=True)
        ]
        commit_batches(self.store, batches)
        evidence = {
            "images": count,
            "novel": dict.fromkeys(sorted(set(sources.tolist()))[:20], 1),
            "strength": dict.fromkeys(sorted(set(sources.tolist()))[:20], 0.123),
            "chance": 0.5,
            "level": 0.001,
        }
        with self.store.transaction() as tx:
            tx.pools.apply(pool, PoolEvent.FILLED)
            tx.pools.apply(pool, PoolEvent.FOUND_CALM, evidence=evidence)
            tx.events.append("pool.quiet", {"pool": pool, **evidence})
        settled = {
            "image_id": ids,
            "source_id": sources.tolist(),
            "captured_at": [self.now] * count,
            "verdict": ["known"] * count,
            "class_id": ["class-1"] * count,
            "class_name": ["water"] * count,
            "probability": self._rng.random(count, dtype=np.float32).round(3),
            "by": ["pool"] * count,
            "pool": [pool] * count,
            "detector_version": [1] * count,
            "revision": [1] * count,
        }
        payload = {"pool": pool, "images": count, "verdicts": {"known": count}, "new": {}}
        commit_settled(
            self.store,
            pool,
            1,
            table(SETTLED, settled),
            reason="the pool is over",
            events=[Occurrence("pool.settled", payload)],
        )
        self.pools += 1

    def _scored(
        self, batch: int, pool: int, path: str, ids: list[str], sources: np.ndarray, first: int
    ) -> ScoredBatch:
        ratios = self._rng.random(ROWS, dtype=np.float32)
        common = {
            "image_id": ids,
            "source_id": sources.tolist(),
            "captured_at": [self.now] * ROWS,
            "score": ratios,
            "score_ratio": ratios,
            "nearest_class": ["class-1"] * ROWS,
            "file": [path] * ROWS,
            "row": list(range(first, first + ROWS)),
        }
        judged = {
            "p_known": ratios,
            "verdict": ["known"] * ROWS,
            "nearest_class_name": ["water"] * ROWS,
            "detector_version": [1] * ROWS,
        }
        # Features go with their pool after a day: their width is of no matter here.
        features = self._rng.random((ROWS, 4), dtype=np.float32)
        return ScoredBatch(
            batch_id=batch,
            detector_version=1,
            verdicts=table(VERDICTS, {**common, **judged}),
            rejected=table(REJECTED, {name: [] for name in REJECTED.names}),
            features=table(features_schema(4), {**common, "features": features}),
            pool_id=pool,
            exceedance=0.05,
        )

    def end_day(self, config: Config) -> None:
        """What a running monitor does by itself."""
        for kind in ("verdicts", "rejected", "settled"):
            compact(self.store, kind, owner="year")
        drop_spools(self.store, before=self.now - timedelta(hours=config.pools.keep_features_hours))
        forget_old(
            self.store,
            digests=timedelta(days=config.state.keep_digests_days),
            events=timedelta(days=config.state.keep_events_days),
            slices=SLICES,
        )
        self.now += DAY

    def bytes_by_table(self) -> dict[str, int]:
        """Of tables with their indexes; a page that was freed counts for nobody."""
        with self.store.reading() as tx:
            rows = tx.connection.execute(
                text(
                    "SELECT m.tbl_name, sum(d.pgsize) FROM dbstat d "
                    "JOIN sqlite_master m ON m.name = d.name GROUP BY m.tbl_name"
                )
            )
            return {str(name): int(size) for name, size in rows}

    def bytes_of_files(self) -> int:
        kinds = ("verdicts", "settled", "rejected", "features", "staging")
        return sum(e.size for e in self.store.folder.list() if e.name.partition("/")[0] in kinds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--pools", type=int, default=2, help="of 2,048 images, each day")
    parser.add_argument("--sources", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=1000.0, help="images a second to reckon with")
    given = parser.parse_args()
    config = Config()
    with tempfile.TemporaryDirectory(prefix="year-") as place:
        feed = Feed(Path(place), given.sources)
        memory = [megabytes()]
        for day in range(given.days):
            for _ in range(given.pools):
                feed.bring_pool()
            feed.end_day(config)
            if (day + 1) * QUARTERS // given.days > day * QUARTERS // given.days:
                memory.append(megabytes())
        report(feed, given.days, given.pools, given.rate, config)
        first, *quarters = memory
        print(
            f"memory: {first} MB at the start, {', '.join(map(str, quarters))} MB after each "
            f"quarter, promised {PROMISED_MEMORY}: {quarters[-1] / PROMISED_MEMORY:.2f}"
        )
        feed.store.close()


def megabytes() -> int:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def report(feed: Feed, days: int, pools: int, rate: float, config: Config) -> None:
    sizes = feed.bytes_by_table()
    kept_days = {"for good": days, **{k: min(days, v) for k, v in config.state if "keep" in k}}
    images = pools * BATCHES * ROWS
    units = {
        "verdicts and settled verdicts, an image": images,
        "a digest": images,
        "a batch in the ledger, with its file and outputs": pools * BATCHES,
        "the record of a pool, with its settlement": pools,
        "the events of a pool": pools,
    }
    whole = promised = 0.0
    for what, (promise, kept) in PROMISED.items():
        found = (
            sum(sizes.get(name, 0) for name in TABLES[what])
            if what in TABLES
            else feed.bytes_of_files()
        )
        each = found / kept_days[kept] / units[what]
        # Of a feed so fast, after a year: what is kept for good has then gathered for 365 days.
        last = 365 if kept == "for good" else kept_days[kept]
        a_year = each * units[what] * last * rate * 86_400 / images
        whole += a_year
        promised += a_year * promise / each
        print(
            f"{what:>50}: {each:8.1f} bytes (promised {promise:.0f}), {kept}; "
            f"after a year at {rate:,.0f} images/s: {a_year / 1e9:8.1f} GB"
        )
    print(f"in all {whole / 1e9:,.0f} GB, promised {promised / 1e9:,.0f}: {whole / promised:.2f}")


if __name__ == "__main__":
    main()
