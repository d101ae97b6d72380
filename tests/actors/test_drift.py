"""A lens that gets dark is reported as drift, learnt, and never taken for a new class."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from actors.run_monitor import Summary, run
from monitor.config import Config
from monitor.jobs.fit_detector import fit
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.store import Store
from monitor.store.read_verdicts import read_verdicts
from tests.actors.crashing import KILLED, at, drain
from tests.actors.story import OVERRIDES, outcome, with_oracle
from tests.jobs.feeds import COLOURS, config_for, write_feed

KNOWN = ("water", "forest", "sand")
POOL = 120


def scene(kind: str, seed: int, dark: float = 0.0) -> bytes:
    """One colour with texture; a dark lens takes the same from every picture."""
    rng = np.random.default_rng([seed, sorted(COLOURS).index(kind)])
    tint = rng.normal(1, 0.12, 3)
    pixels = np.asarray(COLOURS[kind]) * tint + rng.normal(0, 14, (32, 32, 3))
    file = io.BytesIO()
    Image.fromarray(np.clip(pixels - dark, 0, 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def write(path: Path, first: int, count: int, *, dark: float = 0.0, new: str = "") -> None:
    kinds = [KNOWN[i % 3] for i in range(count)]
    if new:
        kinds = [new if i % 4 == 0 else kind for i, kind in enumerate(kinds)]
    images = [scene(kind, first + i, dark) for i, kind in enumerate(kinds)]
    write_feed(path, kinds, first_id=first, images=images)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    write(tmp_path / "labelled.parquet", 100_000, 600)
    config = config_for(
        tmp_path,
        f"feed.path={tmp_path / 'feed'}",
        *OVERRIDES,
        f"pools.size={POOL}",
        "feed.batch_rows=40",
        "drift.quiet_pools=5",
    )
    fit(config, [str(tmp_path / "labelled.parquet")])
    for pool in range(6):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL)
    return with_oracle(config)


def events(config: Config, kind: str) -> list[dict[str, Any]]:
    with Store.open(config.state.dir) as store, store.reading() as tx:
        return [dict(e.payload) for e in tx.events.after(kinds=[kind], limit=10_000)]


def test_a_dark_lens_is_drift(config: Config, tmp_path: Path) -> None:
    before: Summary = run(config, once=True)
    assert before.labels == 0
    assert events(config, "drift.detected") == []
    for pool in range(6, 8):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL, dark=24)
    after = run(config, once=True)
    found = events(config, "drift.detected")
    assert after.discovered == ()
    assert after.labels <= config.drift.confirm_labels
    assert len(found) == 1
    assert "darker" in found[0]["words"]


def test_a_lens_that_is_not_too_dark_is_learnt(config: Config, tmp_path: Path) -> None:
    """A little darker, and some classes would be carried further than is allowed."""
    for pool in range(6, 8):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL, dark=22)
    after = run(config, once=True)
    assert after.discovered == ()
    assert after.labels <= config.drift.confirm_labels
    assert len(events(config, "drift.detected")) == 1
    assert events(config, "detector.adapted")


def test_a_new_class_is_not_called_drift(config: Config, tmp_path: Path) -> None:
    for pool in range(6, 8):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL, new="snow")
    assert run(config, once=True).discovered == ("snow",)
    assert events(config, "drift.detected") == []


def test_a_new_class_in_a_source_that_is_shifted_is_still_found(
    config: Config, tmp_path: Path
) -> None:
    """First the lens gets dark, which is drift; while it is, snow falls."""
    for pool in range(6, 8):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL, dark=24)
    assert run(config, once=True).discovered == ()
    for pool in range(8, 11):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL, dark=24, new="snow")
    assert run(config, once=True).discovered == ("snow",)


def test_a_new_class_that_comes_together_with_a_shift_is_still_found(
    config: Config, tmp_path: Path
) -> None:
    """One storm brings both: what shift explains must not hide what it does not."""
    for pool in range(6, 10):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL, dark=24, new="snow")
    assert run(config, once=True).discovered == ("snow",)


def verdicts(config: Config) -> list[dict[str, Any]]:
    with Store.open(config.state.dir) as store:
        return [row for batch in read_verdicts(store) for row in batch.to_pylist()]


def test_a_shifted_source_is_judged_as_shifted_before_anybody_is_asked(
    config: Config, tmp_path: Path
) -> None:
    """From the pool after the first dark one on, and no longer than the lens is dark."""
    silent = config.model_copy(
        update={"drift": config.drift.model_copy(update={"confirm_labels": 0, "calm_pools": 1})}
    )
    for pool in range(6, 9):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL, dark=24)
    for pool in range(9, 11):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL)
    assert run(silent, once=True).labels == 0
    rows = verdicts(silent)
    told = [rows[pool * POOL :][:POOL] for pool in range(5, 11)]
    corrected = [[row["shift_corrected"] is not None for row in pool] for pool in told]
    shares = [float(np.mean(pool)) for pool in corrected]
    assert min(shares[2:4]) > 0.8, "the lens is dark"
    assert (shares[0], shares[1], shares[5]) == (0.0, 0.0, 0.0)
    assert shares[4] < 0.25, "it is clean again"
    novel = [np.mean([row["verdict_immediate"] == "novel" for row in pool]) for pool in told]
    assert novel[1] > 0.3
    assert max(novel[2:4]) <= 2 * RobustSettings().false_novel, "twice the calibrated rate"
    settled = [row["settled_verdict"] for row in told[1] + told[2]]
    assert settled.count("shifted") > 0.85 * len(settled)
    assert "new" not in settled
    (event,) = events(silent, "drift.corrected")
    assert event["strength"] > 0.1


@pytest.mark.parametrize("fault", ["pool.after_decide:7", "commit.after_commit:8"])
def test_a_crash_while_a_source_is_corrected_costs_time_only(
    config: Config, tmp_path: Path, fault: str
) -> None:
    for pool in range(6, 9):
        write(tmp_path / "feed" / f"{pool:03d}.parquet", pool * POOL, POOL, dark=24)
    states = [tmp_path / "undisturbed", tmp_path / "killed"]
    for state in states:
        shutil.copytree(config.state.dir, state)
    assert drain(at(config, states[0])) == 0
    assert drain(at(config, states[1]), fault=fault) == KILLED
    assert drain(at(config, states[1])) == 0
    undisturbed = outcome(states[0])
    assert undisturbed["settled"]
    assert outcome(states[1]) == undisturbed
