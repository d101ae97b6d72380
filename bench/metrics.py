"""What metrics cost: a scrape of a thousand sources, and the counters of a batch.

    python -m bench.metrics [--sources 1000] [--batches 200]

Prints the size of the page and the time of a scrape, and how much longer a commit takes because
it also counts what the metrics show.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from monitor.config.telemetry_section import MetricsSection
from monitor.store import ScoredBatch, Store, commit_batches
from monitor.store.records import Batch, Count, FileStat
from monitor.store.verdict_columns import REJECTED, VERDICTS, table
from monitor.telemetry import exporter as exporter_module
from monitor.telemetry.exporter import Exporter
from monitor.telemetry.metric_catalog import BORDERS

REASONS = ("truncated", "not an image", "too many pixels")
IMAGES = 256


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sources", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Store.open(f"{folder}/a") as store:
        scrape(store, arguments.sources)
    with tempfile.TemporaryDirectory() as folder, Store.open(f"{folder}/b") as store:
        batches(store, arguments.batches)


def scrape(store: Store, sources: int) -> None:
    names = [f"site-{number // 40:02d}-camera-{number % 40:02d}" for number in range(sources)]
    with store.transaction() as tx:
        now = datetime.now(UTC).isoformat()
        for name in names:
            tx.counters.add(_counts(name, list(np.linspace(0.2, 5.0, 1000))))
            tx.counters.add([Count("images", name, o, 1e6) for o in ("known", "novel", "rejected")])
            tx.counters.add([Count("rejected", name, reason, 12) for reason in REASONS])
            tx.notes.set("source", name, {"last_captured_at": now, "last_commit_at": now})
            tx.notes.set("drift", name, {"verdict": {"level": 0.3, "strength": 0.1}})
    exporter_module.CACHE_SECONDS = 0.0  # every scrape is a fresh look
    with Exporter(store, MetricsSection(port=0, sources_most=sources)) as exporter:
        assert exporter.url is not None
        seconds, busy = [], []
        for _ in range(7):
            began, worked = time.perf_counter(), time.process_time()
            with urllib.request.urlopen(exporter.url) as answer:
                page = answer.read()
            seconds.append(time.perf_counter() - began)
            busy.append(time.process_time() - worked)
    lines = page.count(b"\n")
    print(f"{sources:,} sources: page {len(page) / 1e6:.2f} MB, {lines:,} lines")
    print(
        f"scrape {statistics.median(busy):.2f} s of processor time, "
        f"{statistics.median(seconds):.2f} s by the clock (medians of {len(seconds)}; the clock "
        "also counts what else this machine does)"
    )
    assert len(page) < 5e6, "the page is larger than 5 MB"


def batches(store: Store, number: int) -> None:
    """The same commits with and without the counters, by turns so that both meet the same disk."""
    rng = np.random.default_rng(0)
    plain: list[float] = []
    counted: list[float] = []
    for turn in range(number):
        for seconds, counts in ((plain, False), (counted, True)):
            name = f"feed/{turn:06d}-{counts}.parquet"
            with store.transaction() as tx:
                (file,) = tx.files.register([FileStat(name, size=1)]).new
                (batch,) = tx.files.plan(file.id, IMAGES, [(0, IMAGES)])
            ratios = rng.gamma(4.0, 0.15, IMAGES)
            began = time.perf_counter()
            commit_batches(store, [_scored(batch, name, ratios, counts)])
            seconds.append(time.perf_counter() - began)
    before, after = statistics.median(plain), statistics.median(counted)
    print(
        f"commit of {IMAGES} images: {before * 1e3:.1f} ms without counters, "
        f"{after * 1e3:.1f} ms with ({after / before - 1:+.1%}, medians of {number})"
    )


def _scored(
    batch: Batch, name: str, ratios: np.ndarray[tuple[int], np.dtype[np.float64]], counts: bool
) -> ScoredBatch:
    rows = range(len(ratios))
    return ScoredBatch(
        batch_id=batch.id,
        detector_version=1,
        verdicts=table(
            VERDICTS,
            {
                "image_id": [f"{name}:{row}" for row in rows],
                "source_id": ["camera-1"] * len(ratios),
                "score": ratios,
                "score_ratio": ratios,
                "verdict": ["novel" if ratio > 1 else "known" for ratio in ratios],
                "p_known": np.full(len(ratios), 0.5, np.float32),
                "nearest_class": ["c1"] * len(ratios),
                "detector_version": [1] * len(ratios),
                "file": [name] * len(ratios),
                "row": list(rows),
            },
        ),
        rejected=table(REJECTED, {"file": [], "row": [], "reason": []}),
        counts=_counts("camera-1", ratios.tolist()) if counts else (),
    )


def _counts(source: str, ratios: Sequence[float]) -> list[Count]:
    borders = np.asarray([float(border) for border in BORDERS])
    buckets = np.bincount(np.searchsorted(borders, ratios), minlength=len(BORDERS))
    return [
        Count("batches", "", "done", 1),
        Count("above", source, "", float(sum(ratio > 1 for ratio in ratios))),
        Count("expected_above", source, "", 0.02 * len(ratios)),
        Count("score_ratio_sum", source, "", float(sum(ratios))),
        *(
            Count("score_ratio", source, border, float(count))
            for border, count in zip(BORDERS, buckets, strict=True)
        ),
    ]


if __name__ == "__main__":
    main()
