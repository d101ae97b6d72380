"""What ingest costs beside plain copying: python -m bench.ingest [--files N] [--kills N].

Makes a folder of files (JPEG heads and tails around noise, since ingest never decodes them), then
copies it file by file into another folder and ingests it, in turns, everything flushed to the disk
before the clock stops. Shows every turn, also in seconds of the processor (others may be at work on
this machine), the median of their ratios, and how memory grew meanwhile. With --kills the command
is killed instead (SIGKILL) at so many random moments and started again, and every image counted.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow.parquet as pq

from monitor.ingest.ingest_job import ingest
from monitor.ingest.ingest_options import Options
from monitor.jobs.progress import JobProgress

SOURCES = 8
A_FOLDER = 10_000


def make(folder: Path, files: int, kilobytes: int) -> None:
    noise = np.random.default_rng(0).integers(0, 255, kilobytes * 1000 + files, np.uint8)
    old = time.time() - 3600
    for number in range(files):
        part = f"{number // A_FOLDER:02}"
        path = folder / f"cam-{number % SOURCES}" / part / f"{number:07}.jpg"
        if number < SOURCES or number % A_FOLDER < SOURCES:
            path.parent.mkdir(parents=True, exist_ok=True)
        body = noise[number : number + kilobytes * 1000].tobytes()
        path.write_bytes(b"\xff\xd8\xff\xe0" + body + b"\xff\xd9")
        os.utime(path, (old, old))


@dataclass(frozen=True, slots=True)
class Took:
    wall: float
    processor: float


def timed(work: Callable[[], object], target: Path) -> Took:
    began, worked = time.monotonic(), time.process_time()
    work()
    subprocess.run(["sync", "-f", str(target)], check=True)
    return Took(time.monotonic() - began, time.process_time() - worked)


def copied(source: Path, target: Path) -> Took:
    return timed(lambda: shutil.copytree(source, target, copy_function=shutil.copyfile), target)


def ingested(source: Path, target: Path, memory: list[tuple[int, int]]) -> Took:
    def note(progress: JobProgress) -> None:
        if progress.done % 2000 == 0:
            memory.append((progress.done, resident()))

    options = Options(min_free=0)
    return timed(lambda: ingest([str(source)], target, options, progress=note), target)


def resident() -> int:
    """Megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 2**20


def killed(source: Path, feed: Path, kills: int) -> None:
    """Kill the command at random moments, let the last one end, and count what is in the feed."""
    chance = random.Random(0)
    command = [sys.executable, "-m", "monitor.cli", "ingest", str(source), "--to", str(feed)]
    done = 0
    while True:
        job = subprocess.Popen([*command, "--quiet", "--min-free", "0"], stdout=subprocess.DEVNULL)
        try:
            job.wait(chance.uniform(0.5, 4.0) if done < kills else None)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
            done += 1
            continue
        break
    there = {path.relative_to(source).as_posix() for path in source.rglob("*.jpg")}
    names = [
        name
        for path in feed.glob("2*/*.parquet")
        for name in pq.read_table(path, columns=["image_id"])["image_id"].to_pylist()
    ]
    print(
        f"killed {done} times, exit code {job.returncode}: of {len(there):,} files {len(names):,} "
        f"are in the feed, {len(there - set(names))} lost, {len(names) - len(set(names))} twice"
    )


def main(files: int, kilobytes: int, turns: int, kills: int, folder: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        make(place / "in", files, kilobytes)
        subprocess.run(["sync", "-f", name], check=True)
        if kills:
            killed(place / "in", place / "feed", kills)
            return
        memory: list[tuple[int, int]] = []
        took: dict[str, list[Took]] = {"copy": [], "ingest": []}
        for turn in range(turns):
            took["copy"].append(copied(place / "in", place / "copy"))
            shutil.rmtree(place / "copy")
            took["ingest"].append(ingested(place / "in", place / f"feed-{turn}", memory))
            shutil.rmtree(place / f"feed-{turn}")
        for what, all_turns in took.items():
            each = ", ".join(f"{one.wall:.2f} s ({one.processor:.2f})" for one in all_turns)
            rate = files / min(one.wall for one in all_turns)
            print(f"{what:<7} {rate:7,.0f} files/s, {rate * kilobytes / 1000:5,.0f} MB/s: {each}")
        pairs = list(zip(took["copy"], took["ingest"], strict=True))
        wall = median(copy.wall / ingest.wall for copy, ingest in pairs)
        processor = median(copy.processor / ingest.processor for copy, ingest in pairs)
        print(f"ingest reaches {wall:.2f} of plain copying, {processor:.2f} by processor time")
        early = max(mb for done, mb in memory if done <= max(2000, files // 10))
        print(f"memory: {early} MB after the first tenth, {max(m for _, m in memory)} MB at most")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--kilobytes", type=int, default=100, help="of each file")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--kills", type=int, default=0, help="kill it so often, and count")
    parser.add_argument("--folder", help="on the disk to measure; by default the temporary one")
    main(**vars(parser.parse_args()))
