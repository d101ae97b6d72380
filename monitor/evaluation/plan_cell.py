"""One cell of an evaluation: one method on one stream, a record per task."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.evaluation.errors import MethodOutputError
from monitor.evaluation.methods.base import (
    GENERIC_NEW,
    FloatArray,
    Method,
    Observation,
    ScoreArray,
)
from monitor.evaluation.methods.registry import Labels
from monitor.evaluation.oracle import Oracle
from monitor.evaluation.protocol import BoolArray, Stream, Task, labels_for
from monitor.novelty.class_separation import auroc

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """What is computed at once: a method on a dataset with one budget, increment and seed.

    ``budget`` is None for methods that do not spend one; their records are repeated for every
    budget of the plan.

    >>> Cell("eurosat", "embedded", "er", "spends", 2, 0.00625, 0).key
    'eurosat/embedded/er/increment-2/budget-0.00625/seed-0'
    """

    dataset: str
    backbone: str
    method: str
    labels: Labels
    increment: int
    budget: float | None
    seed: int

    @property
    def key(self) -> str:
        budget = "any" if self.budget is None else f"{self.budget:g}"
        return (
            f"{self.dataset}/{self.backbone}/{self.method}/"
            f"increment-{self.increment}/budget-{budget}/seed-{self.seed}"
        )


def run_cell(
    cell: Cell, method: Method, features: FloatArray, labels: Sequence[str], stream: Stream
) -> list[Record]:
    """Take the method through the stream and measure it after every task, before it updates."""
    names = np.asarray(labels, dtype=np.str_)
    began = time.perf_counter()
    method.start(features[stream.initial], names[stream.initial].tolist(), stream.seed)
    start_seconds = time.perf_counter() - began
    records: list[Record] = []
    for task in stream.tasks:
        records.append(_run_task(cell, method, features, names, task, start_seconds))
    return records


def _run_task(
    cell: Cell,
    method: Method,
    features: FloatArray,
    names: np.ndarray[Any, np.dtype[np.str_]],
    task: Task,
    start_seconds: float,
) -> Record:
    pool_names = names[task.pool].tolist()
    budget = _labels_allowed(cell, len(task.pool))
    oracle = Oracle(pool_names, budget)
    began = time.perf_counter()
    seen = method.observe(features[task.pool], oracle.ask, budget)
    scores = np.asarray(method.score(features[task.test]), dtype=np.float64)
    threshold = method.threshold()
    method.update()
    seconds = time.perf_counter() - began
    _check_scores(scores, cell, task)
    return {
        "dataset": cell.dataset,
        "backbone": cell.backbone,
        "method": cell.method,
        "increment": cell.increment,
        "budget": cell.budget,
        "seed": cell.seed,
        "task": task.number,
        "auroc": auroc(scores[task.test_new], scores[~task.test_new]),
        "classes_present": len(task.new_classes),
        "classes_found": len(set(task.new_classes).intersection(seen.found)),
        "pseudo_purity": _purity(seen, pool_names, task.pool_new),
        "false_novel_rate": _rate_above(scores[~task.test_new], threshold),
        "labels_used": oracle.used,
        "seconds": round(seconds, 4),
        "labels_allowed": budget,
        "pseudo_labels": len(seen.pseudo),
        "true_novel_rate": _rate_above(scores[task.test_new], threshold),
        # Classes of earlier tasks that were missed then and learnt now.
        "classes_found_late": len(set(task.old_classes).intersection(seen.found)),
        "classes_known": len(task.old_classes),
        "iterations": seen.iterations,
        "pool_size": len(task.pool),
        "test_size": len(task.test),
        "ratio": task.ratio,
        "test_ratio": task.test_ratio,
        "reuse": task.reuse,
        "start_seconds": round(start_seconds, 4),
        "new_classes": list(task.new_classes),
        "found": list(seen.found),
        "evidence": dict(seen.evidence),
    }


def _labels_allowed(cell: Cell, pool_size: int) -> int:
    if cell.labels == "everything":
        return pool_size
    return 0 if cell.budget is None else labels_for(cell.budget, pool_size)


def _check_scores(scores: ScoreArray, cell: Cell, task: Task) -> None:
    if scores.shape != task.test.shape or not np.isfinite(scores).all():
        raise MethodOutputError(
            f"{cell.key}, task {task.number}: expected {len(task.test)} finite scores, got shape "
            f"{scores.shape} with {int((~np.isfinite(scores)).sum())} that are not finite; "
            f"correct the method's score"
        )


def _purity(seen: Observation, pool_names: Sequence[str], pool_new: BoolArray) -> float | None:
    """The share of pseudo-labels that are right; for nameless ones, the share truly new."""
    if not seen.pseudo:
        return None
    right = [
        bool(pool_new[i]) if name == GENERIC_NEW else pool_names[i] == name
        for i, name in seen.pseudo.items()
    ]
    return math.fsum(right) / len(right)


def _rate_above(scores: ScoreArray, threshold: float | None) -> float | None:
    return None if threshold is None else float(np.mean(scores > threshold))
