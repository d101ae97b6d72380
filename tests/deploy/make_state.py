"""Write a small state with another release, for the tests that upgrade it.

    git worktree add /tmp/old v0.2.0
    .venv/bin/python -m tests.deploy.make_state /tmp/old tests/deploy/states/layout-6.tar.xz

The other release runs from its own tree, in processes of their own; what it needs (the feed, a
configuration) is written here. The state then holds a fitted detector, a class that was
discovered, questions that nobody has answered yet, and a file of the feed that nobody has seen.
A release without ``conclad run`` leaves a fitted detector alone.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

#: So small that the whole state fits into a repository.
EDGE = 8
COLOURS = {
    "w": ("water", (30, 60, 160)),
    "f": ("forest", (20, 110, 30)),
    "s": ("sand", (210, 180, 120)),
    "n": ("snow", (240, 245, 250)),
}
#: Known images; sand, which an oracle names; snow, which people are asked about; and what nobody
#: has looked at yet.
CHAPTERS = ("wf" * 30, "wfss" * 15, "wfnn" * 15, "wf" * 30)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SETTINGS = """\
feed: {path: feed}
backbone: {name: tiny, engine: torch, threads: 1}
novelty: {settings: {least: 4}}
"""
RUN_SETTINGS = """\
run: {address: none}
pools: {size: 60, least: 20}
labels: {budget: 0.15, timeout_hours: 1.0e+6}
gate: {stolen_most: 0.5, false_novel_most: 0.5}
desk: {enabled: false}
metrics: {enabled: false}
"""


def main(tree: Path, archive: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_feed(folder / "labelled.parquet", "wf" * 60, first_id=100_000)
        first = [sum(map(len, CHAPTERS[:number])) for number in range(len(CHAPTERS))]

        def arrive(number: int) -> None:
            path = folder / "feed" / f"{number:03d}.parquet"
            write_feed(path, CHAPTERS[number], first_id=first[number], source=f"cam-{number % 2}")

        knows_run = (tree / "monitor" / "cli" / "run.py").exists()
        settings = SETTINGS + (RUN_SETTINGS if knows_run else "")
        (folder / "ray_config.yaml").write_text(settings)
        conclad(tree, folder, "fit", "--data", "labelled.parquet")
        arrive(0)
        arrive(1)
        if knows_run:
            conclad(tree, folder, "run", "--once", "--oracle-column", "label")
            arrive(2)
            conclad(tree, folder, "run", "--once")
        else:
            arrive(2)
        arrive(3)
        (folder / "made.json").write_text(json.dumps({"has_run": knows_run}))
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            for part in ("feed", "state", "ray_config.yaml", "made.json"):
                tar.add(folder / part, part, filter=_of_nobody)


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def conclad(tree: Path, folder: Path, *arguments: str) -> None:
    """A command of the other release, in ``folder``."""
    environ = {**os.environ, "PYTHONPATH": str(tree), "CONCLAD_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "monitor.cli", *arguments]
    subprocess.run(command, cwd=folder, env=environ, check=True)


def write_feed(path: Path, letters: str, *, first_id: int, source: str = "cam-0") -> None:
    ids = range(first_id, first_id + len(letters))
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "image_id": [f"{number:06d}" for number in ids],
            "captured_at": pa.array(
                [NOON + timedelta(seconds=number) for number in ids], pa.timestamp("us", "UTC")
            ),
            "source_id": [source] * len(letters),
            "image": [picture(letter, number) for letter, number in zip(letters, ids, strict=True)],
            "label": [COLOURS[letter][0] for letter in letters],
        }
    )
    pq.write_table(table, path, compression="zstd")


def picture(letter: str, seed: int) -> bytes:
    """A PNG of one colour with noise; the same for the same arguments."""
    rng = np.random.default_rng([seed, ord(letter)])
    pixels = np.asarray(COLOURS[letter][1]) + rng.normal(0, 12, (EDGE, EDGE, 3))
    file = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
