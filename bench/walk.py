"""How long is the walk of an image through the code? python -m bench.walk [--list].

A small feed goes through ``conclad run --address none --once``: images of two known classes, and of
a third that becomes a new class. Every call from a file of ``monitor/`` or ``actors/`` into another
one is traced, in every thread; what a call meets in between (a library, a decorator) does not hide
it. Printed are the number of files that take part and of distinct calls between two of them.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType

from bench.drawn import write_scenes
from monitor.cli.root import run as conclad
from monitor.config import load
from monitor.jobs.fit_detector import fit

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("monitor", "actors")
Call = tuple[str, str]
CONFIG = """
backbone: {{name: tiny, engine: torch}}
state: {{dir: "{folder}/state"}}
feed: {{path: "{folder}/feed", batch_rows: 16}}
labels: {{oracle_column: label, budget: 0.2}}
pools: {{size: 60, least: 20}}
gate: {{stolen_most: 0.5, false_novel_most: 0.5}}
novelty: {{settings: {{least: 4}}}}
metrics: {{port: 0}}
"""


@contextmanager
def traced(calls: set[Call]) -> Iterator[None]:
    """Note in ``calls`` every (caller, called) pair of files of ours."""
    known: dict[str, str | None] = {}

    def ours(name: str) -> str | None:
        if name not in known:
            path = Path(name)
            inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS
            known[name] = path.relative_to(ROOT).as_posix() if inside else None
        return known[name]

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        called = ours(frame.f_code.co_filename)
        if called is None:
            return
        before = frame.f_back
        while before is not None and ours(before.f_code.co_filename) is None:
            before = before.f_back
        caller = before and ours(before.f_code.co_filename)
        if before is None or caller is None or caller == called:
            return
        if before.f_code.co_name != "<module>":
            calls.add((caller, called))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def walk(folder: Path) -> tuple[list[str], set[Call]]:
    """Fit two classes, then watch a feed with a third one, traced; the classes that were found."""
    path = folder / "ray_config.yaml"
    path.write_text(CONFIG.format(folder=folder))
    fit(
        load(path, environ={}).config, [str(write_scenes(folder / "known.parquet", 300, classes=2))]
    )
    write_scenes(folder / "feed" / "0.parquet", 120, classes=3, seed=1)
    arguments = ["run", "--config", str(path), "--address", "none", "--once", "--json"]
    calls: set[Call] = set()
    said = io.StringIO()
    with traced(calls), redirect_stdout(said):
        conclad(arguments)
    return json.loads(said.getvalue())["discovered"], calls


def measure() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print every call as well")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, calls = walk(Path(folder))
    if not found:
        parser.exit(1, "no new class was found: the walk is not the whole walk\n")
    if given.list:
        for caller, called in sorted(calls):
            print(f"{caller} -> {called}")
    files = {file for call in calls for file in call}
    print(f"found {', '.join(found)}: {len(files)} files, {len(calls)} calls")


if __name__ == "__main__":
    measure()
