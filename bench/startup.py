"""How long until `conclad score` embeds its first image: python -m bench.startup

Fits a detector on drawn scenes once, then scores one file in fresh processes, with all of it in the
cache. Prints seconds of processor time from the start of the process to the first image, and by the
clock, and those of `conclad --help` and `conclad status`; fails if any of them takes more processor
time than its bound. The clock says the same on a machine that nobody else uses.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from bench.drawn import write_scenes

SCORE = """
import json, sys, time
from monitor.backbones.engine import Engine
embed = Engine.embed
def first(self, images):
    found = embed(self, images)
    if first.mark is None:
        first.mark = time.process_time(), time.time()
    return found
first.mark = None
Engine.embed = first
from monitor.config.load import load
from monitor.jobs.score_files import score
folder = sys.argv[1]
config = load(None, overrides=[f"state.dir={folder}/state"]).config
score(config, [f"{folder}/one.parquet"], f"{folder}/{sys.argv[2]}")
print(json.dumps(first.mark))
"""


def first_image(folder: Path, turn: int) -> tuple[float, float]:
    """Seconds of processor time and by the clock."""
    began = time.time()
    out = subprocess.run(
        [sys.executable, "-c", SCORE, str(folder), f"out-{turn}"],
        capture_output=True,
        text=True,
        check=True,
    )
    used, at = json.loads(out.stdout.splitlines()[-1])
    return used, at - began


def command(*arguments: str) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    subprocess.run(
        [sys.executable, "-m", "monitor.cli", *arguments], capture_output=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bound", type=float, default=4.0, help="seconds before the first image")
    parser.add_argument("--command-bound", type=float, default=0.7, help="seconds of a command")
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        # Where it is set every process compiles what it imports; an installation has that done.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        scenes = pq.read_table(write_scenes(folder / "scenes.parquet", 400))
        pq.write_table(scenes.slice(0, 336), folder / "labelled.parquet")
        pq.write_table(scenes.slice(336), folder / "one.parquet")
        state = f"state.dir={folder}/state"
        command("fit", "--data", str(folder / "labelled.parquet"), "--set", state)
        first_image(folder, 0)
        found = [first_image(folder, turn) for turn in range(1, given.turns + 1)]
        shown = {
            "first image of score": found,
            "conclad --help": [command("--help") for _ in range(given.turns)],
            "conclad status": [command("status", "--set", state) for _ in range(given.turns)],
        }
    late = []
    for what, times in shown.items():
        used, clock = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{what}: {used:.2f} s of processor time, {clock:.2f} s by the clock")
        bound = given.bound if times is found else given.command_bound
        if used > bound:
            late.append(f"{what}: above the bound of {bound:g} s")
    if late:
        raise SystemExit("\n".join(late))


if __name__ == "__main__":
    main()
