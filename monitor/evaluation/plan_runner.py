"""Runs a plan: every cell once, in parallel, each result safe on disk before the next begins.

Cells run in fresh processes with one BLAS thread each, whatever the number of jobs, so that
figures do not depend on it. Features are shared between processes through memory-mapped files.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monitor.errors import ConcladError
from monitor.evaluation.labelled_features import LabelledFeatures, check_distinct
from monitor.evaluation.methods.registry import entry_for, make_method
from monitor.evaluation.plan_cell import Cell, Record, run_cell
from monitor.evaluation.plans import EvaluationPlan
from monitor.evaluation.protocol import build_stream, labels_for
from monitor.evaluation.results_store import (
    cell_digest,
    claim,
    describe,
    library_versions,
    load_cell,
    save_cell,
    write_json,
)

DataKey = tuple[str, str]
# Called after every cell with: the cell, how many are done, how many there are, what happened
# ("done", "kept" from an earlier run, "failed"), and the seconds left by estimate.
Progress = Callable[[Cell, int, int, str, float | None], None]


@dataclass(frozen=True, slots=True)
class PlanResult:
    """All records of a plan, and the reason for each cell that has none.

    >>> PlanResult(records=[], failures={}, meta={}).failures
    {}
    """

    records: list[Record]
    failures: Mapping[str, str]
    meta: Mapping[str, Any]


def run_plan(
    plan: EvaluationPlan,
    datasets: Sequence[LabelledFeatures],
    out: Path,
    *,
    jobs: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> PlanResult:
    """Compute what is missing under ``out`` and write ``results.json`` there.

    Whatever can be refused is refused before anything is written or computed.
    """
    check_distinct(datasets)
    plan = plan.checked()
    by_key = {(data.dataset, data.backbone): data for data in datasets}
    _check_streams(plan, datasets)
    cells = list(_cells(plan, datasets))
    for name in plan.methods:
        make_method(name)
    described = describe(plan, datasets)
    claim(out, described, force=force)

    digests = {cell: cell_digest(cell, plan, by_key[cell.dataset, cell.backbone]) for cell in cells}
    finished: dict[Cell, list[Record]] = {}
    failures: dict[Cell, str] = {}
    report = _Reporter(len(cells), jobs, progress)
    for cell in cells:
        kept = load_cell(out, cell, digests[cell])
        if kept is not None:
            finished[cell] = kept
            report(cell, "kept", 0.0)
    missing = [cell for cell in cells if cell not in finished]
    for cell, result, seconds in _compute(missing, plan, by_key, jobs):
        if isinstance(result, str):
            failures[cell] = result
        else:
            save_cell(out, cell, digests[cell], result)
            finished[cell] = result
        report(cell, "failed" if isinstance(result, str) else "done", seconds)

    records = [record for cell in cells for record in _spread(finished.get(cell, []), plan)]
    outcome = PlanResult(
        records=records,
        failures={cell.key: reason for cell, reason in failures.items()},
        meta={"plan": described, "versions": library_versions()},
    )
    write_json(
        out / "results.json",
        {
            "records": outcome.records,
            "meta": {**outcome.meta, "failures": dict(outcome.failures)},
        },
    )
    return outcome


def _check_streams(plan: EvaluationPlan, datasets: Sequence[LabelledFeatures]) -> None:
    """Every stream can be made, and every budget paid from its pools."""
    for data in datasets:
        for increment in plan.increments:
            try:
                # Sizes do not depend on the seed: one stream stands for all.
                stream = build_stream(data.labels, plan.stream_settings(increment), min(plan.seeds))
                for task in stream.tasks:
                    for budget in plan.budgets:
                        labels_for(budget, len(task.pool))
            except ConcladError as error:
                raise type(error)(f"{data.dataset}: {error}") from None


def _cells(plan: EvaluationPlan, datasets: Sequence[LabelledFeatures]) -> Iterator[Cell]:
    for data in datasets:
        for increment in plan.increments:
            for name in plan.methods:
                labels = entry_for(name).labels
                budgets = plan.budgets if labels == "spends" else (None,)
                for budget in budgets:
                    for seed in plan.seeds:
                        yield Cell(
                            data.dataset, data.backbone, name, labels, increment, budget, seed
                        )


def _spread(records: Sequence[Record], plan: EvaluationPlan) -> Iterator[Record]:
    """Repeat the records of a method without a budget for every budget of the plan."""
    for record in records:
        if record["budget"] is not None:
            yield record
        else:
            for budget in plan.budgets:
                yield {**record, "budget": budget}


def _compute(
    cells: Sequence[Cell],
    plan: EvaluationPlan,
    by_key: Mapping[DataKey, LabelledFeatures],
    jobs: int,
) -> Iterator[tuple[Cell, list[Record] | str, float]]:
    if not cells:
        return
    with tempfile.TemporaryDirectory(prefix="conclad-evaluate-") as folder:
        shared = _share(by_key, Path(folder))
        orphans: list[Cell] = []
        for cell, result, seconds in _in_processes(cells, plan, shared, jobs):
            if isinstance(result, BrokenProcessPool):
                orphans.append(cell)
            else:
                yield cell, result, seconds
        # A worker that dies takes the whole pool with it, guilty and innocent cells alike:
        # run each of them alone, and only the one that dies again has failed.
        for cell in orphans:
            for _, result, seconds in _in_processes([cell], plan, shared, 1):
                died = isinstance(result, BrokenProcessPool)
                yield cell, "the worker process died" if died else result, seconds


def _in_processes(
    cells: Sequence[Cell],
    plan: EvaluationPlan,
    shared: Mapping[DataKey, tuple[str, str]],
    jobs: int,
) -> Iterator[tuple[Cell, Any, float]]:
    with ProcessPoolExecutor(
        max_workers=min(jobs, len(cells)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare_worker,
    ) as pool:
        futures: dict[Future[tuple[list[Record] | str, float]], Cell] = {
            pool.submit(_work, cell, plan, shared[cell.dataset, cell.backbone]): cell
            for cell in cells
        }
        try:
            for future in as_completed(futures):
                try:
                    result, seconds = future.result()
                    yield futures[future], result, seconds
                except BrokenProcessPool as broken:
                    yield futures[future], broken, 0.0
        finally:
            # On Ctrl-C let the running cells end, and start no others.
            pool.shutdown(wait=True, cancel_futures=True)


def _share(
    by_key: Mapping[DataKey, LabelledFeatures], folder: Path
) -> dict[DataKey, tuple[str, str]]:
    shared = {}
    for number, (key, data) in enumerate(by_key.items()):
        features, labels = folder / f"{number}-features.npy", folder / f"{number}-labels.npy"
        np.save(features, data.features, allow_pickle=False)
        np.save(labels, np.asarray(data.labels, dtype=np.str_), allow_pickle=False)
        shared[key] = (str(features), str(labels))
    return shared


def _prepare_worker() -> None:
    from threadpoolctl import threadpool_limits

    # Left to themselves two workers on two cores start four threads and wait for each other.
    # The variable is for libraries that are loaded later.
    threadpool_limits(1)
    os.environ["OMP_NUM_THREADS"] = "1"


def _work(
    cell: Cell, plan: EvaluationPlan, paths: tuple[str, str]
) -> tuple[list[Record] | str, float]:
    """In a worker: the records of a cell, or why there are none."""
    began = time.perf_counter()
    result: list[Record] | str
    try:
        features = np.load(paths[0], mmap_mode="r", allow_pickle=False)
        labels = np.load(paths[1], allow_pickle=False).tolist()
        stream = build_stream(labels, plan.stream_settings(cell.increment), cell.seed)
        method = make_method(cell.method, cell.dataset)
        if "torch" in sys.modules:
            # Not every method needs torch, and importing it takes longer than some of them run.
            sys.modules["torch"].set_num_threads(1)
        result = run_cell(cell, method, features, labels, stream)
    except Exception as error:  # noqa: BLE001 - one broken method must not lose the others
        result = f"{type(error).__name__}: {error}"
    return result, time.perf_counter() - began


class _Reporter:
    """Counts cells and guesses how long the rest will take from how long they took so far."""

    def __init__(self, total: int, jobs: int, progress: Progress | None) -> None:
        self._total, self._jobs, self._progress = total, jobs, progress
        self._done = 0
        self._times: list[float] = []

    def __call__(self, cell: Cell, status: str, seconds: float) -> None:
        self._done += 1
        if status != "kept":
            self._times.append(seconds)
        if self._progress is not None:
            self._progress(cell, self._done, self._total, status, self._left())

    def _left(self) -> float | None:
        if not self._times:
            return None
        mean = sum(self._times) / len(self._times)
        return mean * (self._total - self._done) / self._jobs
