"""This process and all below it: how much memory they take, and how long they have computed."""

from __future__ import annotations

import os
from pathlib import Path


def processes() -> set[int]:
    """The numbers of this process and of all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(words[1])
    ours = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return ours


def memory(*, with_own: bool = True) -> int:
    """Bytes of all of them; what they share counts once."""
    return sum(map(_proportional, processes() - (set() if with_own else {os.getpid()})))


def processor_seconds() -> float:
    """Of all of them, those that have ended included."""
    ticks = 0
    for process in processes():
        try:
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, words[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _proportional(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
