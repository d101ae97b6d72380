"""Plays every feed of a live plan once; an interrupted run goes on where it stopped.

A record is safe on disk before the next begins. It is taken again only for the same plan, data,
code and libraries.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from monitor.evaluation.labelled_features import LabelledFeatures, check_distinct
from monitor.evaluation.live_monitor import Steps
from monitor.evaluation.live_plan import LivePlan
from monitor.evaluation.live_record import LiveCell, Record, run_live_cell
from monitor.evaluation.results_store import (
    claim,
    code_digest,
    library_versions,
    read_json,
    write_json,
)

# Called after every feed with: what it was, how many are done, how many there are, what happened
# ("done", "kept" from an earlier run, "failed"), and the seconds left by estimate.
Progress = Callable[[str, int, int, str, float | None], None]
Datasets = Mapping[tuple[str, str], LabelledFeatures]

# Every figure depends on these. By name: what is above this package may not be imported here.
_CODE = (
    "monitor.novelty",
    "monitor.pipeline.pool_inspection",
    "monitor.pipeline.pool_steps",
    "monitor.evaluation.plan_cell",
    "monitor.evaluation.every_label",
    "monitor.evaluation.shift_baselines",
    "monitor.evaluation.live_record",
    "monitor.evaluation.live_feed",
    "monitor.evaluation.live_monitor",
    "monitor.evaluation.live_baselines",
    "monitor.evaluation.live_plan",
    "monitor.evaluation.live_pools",
)


@dataclass(frozen=True, slots=True)
class LiveOutcome:
    """All records of a plan, and the reason for each feed that has none."""

    records: list[Record]
    failures: Mapping[str, str]
    meta: Mapping[str, Any]


def run_live(
    plan: LivePlan,
    datasets: Sequence[LabelledFeatures],
    out: Path,
    steps: Steps,
    *,
    jobs: int = 1,
    force: bool = False,
    progress: Progress = lambda key, done, total, status, left: None,
) -> LiveOutcome:
    """Compute what is missing under ``out`` and write ``live.json`` there.

    Whatever can be refused is refused before anything is written or computed.
    """
    check_distinct(datasets)
    plan = plan.checked()
    for data in datasets:
        plan.classes_of(data.labels, data.dataset)
    by_key = {(data.dataset, data.backbone): data for data in datasets}
    described = {
        "live": plan.feed_settings(),
        "seeds": list(plan.seeds),
        "data": {f"{d.dataset}/{d.backbone}": d.digest for d in datasets},
    }
    claim(out, described, force=force)
    cells = [
        LiveCell(data.dataset, data.backbone, share, seed, budget)
        for data in datasets
        for seed in plan.seeds
        for share in plan.shares
        for budget in plan.budgets
    ]
    kept = _Kept(out / "cells", plan, by_key, steps)
    found = {cell: record for cell in cells if (record := kept.read(cell)) is not None}
    failures: dict[str, str] = {}
    for number, cell in enumerate(found, start=1):
        progress(cell.key, number, len(cells), "kept", None)
    missing = [cell for cell in cells if cell not in found]
    began, before = time.perf_counter(), len(found)
    for cell, result in _computed(missing, plan, by_key, steps, jobs):
        if isinstance(result, str):
            failures[cell.key] = result
        else:
            kept.write(cell, result)
            found[cell] = result
        done = len(found) + len(failures)
        left = (time.perf_counter() - began) / (done - before) * (len(cells) - done)
        status = "failed" if isinstance(result, str) else _told(result)
        progress(cell.key, done, len(cells), status, left)
    outcome = LiveOutcome(
        records=[found[cell] for cell in cells if cell in found],
        failures=failures,
        meta={
            "plan": {**described, "shares": list(plan.shares), "budgets": list(plan.budgets)},
            "versions": library_versions(),
        },
    )
    meta = {**outcome.meta, "failures": failures}
    write_json(out / "live.json", {"records": outcome.records, "meta": meta})
    return outcome


def _told(record: Record) -> str:
    if not record["present"]:
        return f"{record['needless_rounds']} needless rounds in {record['clean_pools']} pools"
    if record["noticed_in"] is None:
        return "never noticed"
    return f"noticed in pool {record['noticed_in']} by {record['noticed_by']}"


@dataclass(frozen=True, slots=True)
class _Kept:
    """The record of each feed, as a file that only the same measurement believes."""

    folder: Path
    plan: LivePlan
    datasets: Datasets
    steps: Steps

    def read(self, cell: LiveCell) -> Record | None:
        stored = read_json(self._path(cell))
        if not isinstance(stored, dict) or stored.get("digest") != self._digest(cell):
            return None
        record: Record = stored["record"]
        return record

    def write(self, cell: LiveCell, record: Record) -> None:
        write_json(self._path(cell), {"digest": self._digest(cell), "record": record})

    def _path(self, cell: LiveCell) -> Path:
        # The key's slashes make folders; a readable tree helps who looks for one feed.
        parts = cell.key.split("/")
        safe = ["".join(c if c.isalnum() or c in "-_" else "_" for c in part) for part in parts]
        return self.folder.joinpath("live", *safe[:-1], f"{safe[-1]}.json")

    def _digest(self, cell: LiveCell) -> str:
        parts = {
            "cell": asdict(cell),
            "plan": self.plan.feed_settings(),
            "budget": self.steps.budget(self.plan.pool, cell.budget),
            "data": self.datasets[cell.dataset, cell.backbone].digest,
            "code": code_digest(_CODE),
            "libraries": library_versions(),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _computed(
    cells: Sequence[LiveCell], plan: LivePlan, datasets: Datasets, steps: Steps, jobs: int
) -> Iterator[tuple[LiveCell, Record | str]]:
    """Every feed with one thread, whatever the number of processes: figures do not depend on it."""
    if jobs == 1 or len(cells) < 2:
        with threadpool_limits(1):
            for cell in cells:
                yield cell, _attempt(cell, plan, datasets, steps)
        return
    with ProcessPoolExecutor(
        max_workers=min(jobs, len(cells)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare_worker,
        initargs=(plan, datasets, steps),
    ) as pool:
        futures = {pool.submit(_work, cell): cell for cell in cells}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            # On Ctrl-C let the running feeds end, and start no others.
            pool.shutdown(wait=True, cancel_futures=True)


def _attempt(cell: LiveCell, plan: LivePlan, datasets: Datasets, steps: Steps) -> Record | str:
    """The record of a feed, or why there is none."""
    try:
        return run_live_cell(cell, plan, datasets[cell.dataset, cell.backbone], steps)
    except Exception as error:  # noqa: BLE001 - one feed that fails must not lose the others
        return f"{type(error).__name__}: {error}"


_given: dict[str, Any] = {}


def _prepare_worker(plan: LivePlan, datasets: Datasets, steps: Steps) -> None:
    threadpool_limits(1)
    _given.update(plan=plan, datasets=datasets, steps=steps)


def _work(cell: LiveCell) -> Record | str:
    return _attempt(cell, _given["plan"], _given["datasets"], _given["steps"])
