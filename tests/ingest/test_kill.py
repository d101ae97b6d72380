"""Killed anywhere, an ingest goes on as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from monitor.ingest.batches import STEPS
from monitor.ingest.ingest_job import ingest
from tests.ingest.dying import OPTIONS
from tests.ingest.making import cameras, images, jpeg, put
from tests.ingest.test_satellite_scenes import write_scene
from tests.ingest.test_video import write_video


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """One of each kind, and what they give."""
    folder = tmp_path_factory.mktemp("sources")
    cameras(folder / "in", 17)
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for seed in range(9):
            archive.writestr(f"cam-z/{seed}.jpg", jpeg(100 + seed))
    with tarfile.open(folder / "set.tar", "w") as tar:
        for seed in range(9):
            tar.add(put(folder / f"one/{seed}.jpg", jpeg(200 + seed)), f"{seed}.jpg")
    write_video(folder / "door.mp4", frames=20, fps=10)
    write_scene(folder / "scene.tif", width=200, height=200)
    found = [folder / name for name in ("in", "photos.zip", "set.tar", "door.mp4", "scene.tif")]
    for path in found:
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return [str(path) for path in found]


@pytest.mark.parametrize("turn", [1, 3])
@pytest.mark.parametrize("step", STEPS)
def test_kill_at_every_step(everything: list[str], tmp_path: Path, step: str, turn: int) -> None:
    ingest(everything, tmp_path / "whole", OPTIONS)
    died = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.ingest.dying",
            step,
            str(turn),
            tmp_path / "feed",
            *everything,
        ],
        timeout=120,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    partly = len(images(tmp_path / "feed"))
    done = ingest(everything, tmp_path / "feed", OPTIONS)
    found = images(tmp_path / "feed")
    assert found == images(tmp_path / "whole")
    assert done.images >= len(found) - partly - OPTIONS.limits.images
    assert not list((tmp_path / "feed/_ingest/default").glob("writing-*"))


def test_kill_at_any_moment_again_and_again(tmp_path: Path) -> None:
    made = cameras(tmp_path / "in", 400, sources=3)

    def start(feed: str) -> subprocess.Popen[bytes]:
        arguments = ["tests.ingest.dying", "none", "1", str(tmp_path / feed), str(tmp_path / "in")]
        return subprocess.Popen([sys.executable, "-m", *arguments])

    began = time.monotonic()
    assert start("undisturbed").wait(60) == 0
    whole = time.monotonic() - began
    chance = random.Random(7)
    deaths = 0
    for _ in range(12):
        job = start("feed")
        try:
            # From before the first batch to after the last one.
            job.wait(whole * (0.3 + 0.6 * chance.random()))
        except subprocess.TimeoutExpired:
            job.kill()
            deaths += 1
        job.wait(30)
    ingest([str(tmp_path / "in")], tmp_path / "feed", OPTIONS)
    assert images(tmp_path / "feed") == made
    assert deaths


def test_a_batch_that_somebody_removed_after_it_was_finished_stays_removed(tmp_path: Path) -> None:
    """Feeds are pruned; what was pruned must not come back with the next run."""
    cameras(tmp_path / "in", 20)
    ingest([str(tmp_path / "in")], tmp_path / "feed", OPTIONS)
    files = sorted((tmp_path / "feed").glob("2*/*.parquet"))
    for file in files:
        file.unlink()
    done = ingest([str(tmp_path / "in")], tmp_path / "feed", OPTIONS)
    assert (done.images, done.known) == (0, 20)


def test_a_stop_publishes_what_it_has(tmp_path: Path) -> None:
    made = cameras(tmp_path / "in", 30)
    job = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "monitor.cli",
            "ingest",
            tmp_path / "in",
            "--to",
            tmp_path / "feed",
            "--follow",
            "--batch-seconds",
            "3600",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    journal = tmp_path / "feed/_ingest/default/journal.sqlite"
    while not journal.exists():
        time.sleep(0.05)
    time.sleep(1)
    job.terminate()
    out, _ = job.communicate(timeout=30)
    assert job.returncode == 0
    assert "30 images" in out
    assert images(tmp_path / "feed") == made
