"""The command as a user types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from monitor.cli.evaluate import evaluate
from monitor.errors import ConcladError
from monitor.evaluation.errors import (
    BudgetError,
    FeatureValueError,
    IncompletePlanError,
    OutputInUseError,
    PoolTooSmallError,
    UnknownMethodError,
)
from monitor.evaluation.methods.registry import METHODS
from monitor.evaluation.plans import PLANS
from tests.evaluation.samples import synthetic

ROOT = Path(__file__).parents[2]


@pytest.fixture
def features(tmp_path: Path) -> Path:
    path = tmp_path / "blobs.npz"
    np.savez(path, X=synthetic().features, y=np.asarray(synthetic().labels))
    return path


def command(features: Path, out: Path, *more: str) -> list[str]:
    return [
        "--features", str(features), "--initial", "2", "--increment", "2", "--budget",
        "0.05,0.1", "--seeds", "0,1", "--methods", "dfm,incdfm-p85", "--out", str(out), *more,
    ]  # fmt: skip


def test_from_features_to_report(features: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [sys.executable, "-m", "monitor.cli.evaluate", *command(features, out)]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "[4/4] blobs/precomputed/incdfm-p85" in done.stderr
    assert "| dfm |" in done.stdout
    records = json.loads((out / "results.json").read_text())["records"]
    assert len(records) == 2 * 2 * 2 * 2
    assert (out / "report.html").exists()
    assert list((out / "plots").glob("*.png"))


def test_errors_are_one_sentence_and_exit_code_2(features: Path, tmp_path: Path) -> None:
    arguments = command(features, tmp_path / "out", "--budget", "0")
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli.evaluate", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert "asks for nothing" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (["--budget", "0"], BudgetError),
        (["--budget", "2.5"], PoolTooSmallError),
        (["--methods", "dfmm"], UnknownMethodError),
    ],
)
def test_bad_options_have_their_own_errors(
    features: Path, tmp_path: Path, more: list[str], error: type[ConcladError]
) -> None:
    result = CliRunner().invoke(evaluate, command(features, tmp_path / "out", *more))
    assert isinstance(result.exception, error)
    assert not (tmp_path / "out").exists()


def test_bad_features_leave_earlier_results_alone(features: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "results.json").write_text("{}")
    kept = CliRunner().invoke(evaluate, command(features, out))
    assert isinstance(kept.exception, OutputInUseError)
    broken = synthetic().features.copy()
    broken[3, 2] = np.nan
    np.savez(features, X=broken, y=np.asarray(synthetic().labels))
    refused = CliRunner().invoke(evaluate, command(features, out, "--force"))
    assert isinstance(refused.exception, FeatureValueError)
    assert (out / "results.json").read_text() == "{}"


def test_what_is_missing_is_named(features: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    assert "give --features" in runner.invoke(evaluate, ["--out", str(tmp_path)]).output
    assert "give --out" in runner.invoke(evaluate, ["--features", str(features)]).output
    arguments = ["--features", str(features), "--out", str(tmp_path / "out"), "--plan", "budgets"]
    assert isinstance(runner.invoke(evaluate, arguments).exception, IncompletePlanError)


@pytest.mark.parametrize("option", ["--seeds=a", "--seeds=0,,1", "--budget=x", "--methods="])
def test_lists_must_be_lists(features: Path, tmp_path: Path, option: str) -> None:
    result = CliRunner().invoke(evaluate, [*command(features, tmp_path / "out"), option])
    assert result.exit_code == 2
    assert "comma-separated list" in result.output


def test_lists_of_methods_and_plans() -> None:
    methods = CliRunner().invoke(evaluate, ["--list-methods"]).output
    assert [line.split()[0] for line in methods.splitlines()] == list(METHODS)
    plans = CliRunner().invoke(evaluate, ["--list-plans"]).output
    assert [line.split(":")[0] for line in plans.splitlines()] == list(PLANS)


def test_every_option_method_and_plan_is_documented() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text()
    options = {o for p in evaluate.params if isinstance(p, click.Option) for o in p.opts}
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    named = set(re.findall(r"`([^`]+)`", prose))
    assert options - named == set()
    assert set(METHODS) - named == set()
    assert set(PLANS) - named == set()
