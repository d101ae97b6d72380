"""A run can be stopped, gone on with, spread over processes, and hurt, without losing figures."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.evaluation.errors import (
    NotEnoughClassesError,
    OutputInUseError,
    PoolTooSmallError,
)
from monitor.evaluation.labelled_features import labelled_features
from monitor.evaluation.plan_cell import Cell
from monitor.evaluation.plan_runner import PlanResult, run_plan
from monitor.evaluation.plans import EvaluationPlan
from tests.evaluation.samples import digits, synthetic

PLAN = EvaluationPlan(
    initial=2, increments=(2,), budgets=(0.05, 0.1), seeds=(0, 1), methods=("dfm", "incdfm-p85")
)
REQUIRED = {
    "dataset", "backbone", "method", "increment", "budget", "seed", "task", "auroc",
    "classes_present", "classes_found", "pseudo_purity", "false_novel_rate", "labels_used",
    "seconds",
}  # fmt: skip


def timeless(outcome: PlanResult) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in record.items() if not key.endswith("seconds")}
        for record in outcome.records
    ]


class Watch:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, cell: Cell, done: int, total: int, status: str, left: float | None) -> None:
        self.seen.append((cell.key, status))
        assert done == len(self.seen) <= total

    def count(self, status: str) -> int:
        return sum(1 for _, seen in self.seen if seen == status)


def test_one_record_per_method_budget_seed_and_task(tmp_path: Path) -> None:
    outcome = run_plan(PLAN, [synthetic()], tmp_path / "out")
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert written["records"] == outcome.records
    keys = {(r["method"], r["budget"], r["seed"], r["task"]) for r in outcome.records}
    assert len(keys) == len(outcome.records) == 2 * 2 * 2 * 2
    for record in outcome.records:
        assert set(record) >= REQUIRED
        assert 0 <= record["auroc"] <= 1
        assert record["labels_used"] == 0


def test_a_second_run_computes_nothing_and_more_seeds_only_what_is_new(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run_plan(PLAN, [synthetic()], out)
    again, more = Watch(), Watch()
    second = run_plan(PLAN, [synthetic()], out, progress=again)
    assert (again.count("kept"), again.count("done")) == (4, 0)
    assert second.records == first.records
    run_plan(PLAN.with_changes(seeds=(0, 1, 2)), [synthetic()], out, progress=more)
    assert (more.count("kept"), more.count("done")) == (4, 2)


def test_a_torn_cell_is_computed_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run_plan(PLAN, [synthetic()], out)
    torn = sorted((out / "cells").rglob("*.json"))[0]
    torn.write_text(torn.read_text()[:40])
    watch = Watch()
    second = run_plan(PLAN, [synthetic()], out, progress=watch)
    assert (watch.count("kept"), watch.count("done")) == (3, 1)
    assert timeless(second) == timeless(first)


def test_figures_do_not_depend_on_the_number_of_jobs(tmp_path: Path) -> None:
    plan = PLAN.with_changes(methods=("incdfm", "er-pnew"), budgets=(0.1,), seeds=(3, 4))
    one = run_plan(plan, [digits()], tmp_path / "one", jobs=1)
    two = run_plan(plan, [digits()], tmp_path / "two", jobs=2)
    assert timeless(one) == timeless(two)
    assert all(r["labels_used"] > 0 for r in one.records if r["method"] == "er-pnew")


def test_results_of_another_plan_or_other_data_are_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_plan(PLAN, [synthetic()], out)
    before = (out / "results.json").read_bytes()
    with pytest.raises(OutputInUseError, match="other initial"):
        run_plan(PLAN.with_changes(initial=3), [synthetic()], out)
    with pytest.raises(OutputInUseError, match="other seeds"):
        run_plan(PLAN.with_changes(seeds=(5,)), [synthetic()], out)
    with pytest.raises(OutputInUseError, match="other data"):
        run_plan(PLAN, [synthetic(each=30)], out)
    assert (out / "results.json").read_bytes() == before
    forced = run_plan(PLAN.with_changes(seeds=(5,)), [synthetic()], out, force=True)
    assert {record["seed"] for record in forced.records} == {5}


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputInUseError, match="holds no evaluation"):
        run_plan(PLAN, [synthetic()], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_is_refused_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(NotEnoughClassesError, match="synthetic: 5 initial classes"):
        run_plan(PLAN.with_changes(initial=5), [synthetic()], tmp_path / "out")
    with pytest.raises(PoolTooSmallError, match="synthetic"):
        run_plan(PLAN.with_changes(budgets=(3.0,)), [synthetic()], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_failing_cell_costs_only_itself(tmp_path: Path) -> None:
    # Squares of these overflow float32: the subspaces give up, the rest of the run must not.
    huge = labelled_features(
        "huge", "none", synthetic().features * np.float32(1e25), synthetic().labels
    )
    outcome = run_plan(
        PLAN.with_changes(methods=("dfm",)), [huge, synthetic()], tmp_path / "out", jobs=2
    )
    assert {record["dataset"] for record in outcome.records} == {"synthetic"}
    assert len(outcome.failures) == 2
    assert all(key.startswith("huge/") for key in outcome.failures)
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert written["meta"]["failures"] == dict(outcome.failures)


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    killed: list[multiprocessing.process.BaseProcess] = []

    def kill_once(cell: Cell, done: int, total: int, status: str, left: float | None) -> None:
        if not killed:
            for child in multiprocessing.active_children():
                child.kill()
                killed.append(child)

    hurt = run_plan(PLAN, [synthetic()], tmp_path / "hurt", jobs=2, progress=kill_once)
    whole = run_plan(PLAN, [synthetic()], tmp_path / "whole")
    assert killed
    assert not hurt.failures
    assert timeless(hurt) == timeless(whole)
