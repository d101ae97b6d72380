"""Fault points fire exactly where they are told to."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

import monitor.store
from monitor.store.atomic_files import VARIABLE, declare, declared, fault_point
from tests.store.crashing import forkserver


def _three_turns(value: str, told: str) -> None:
    """Pass the point three times, and tell of each time that was survived."""
    os.environ[VARIABLE] = value
    declare("here", "there")
    with open(told, "w", encoding="utf-8") as sink:
        for turn in range(3):
            fault_point("here")
            print(turn, end="", file=sink, flush=True)


@pytest.mark.parametrize(
    ("value", "survived"), [("", "012"), ("there", "012"), ("here", ""), ("here:3", "01")]
)
def test_dies_at_the_named_pass(tmp_path: Path, value: str, survived: str) -> None:
    told = tmp_path / "turns"
    child = forkserver().Process(target=_three_turns, args=(value, str(told)))
    child.start()
    child.join()
    assert told.read_text() == survived
    assert child.exitcode == (0 if survived == "012" else -signal.SIGKILL)


def test_an_undeclared_point_is_a_bug() -> None:
    with pytest.raises(LookupError, match="never declared"):
        fault_point("no.such.point")


def test_every_declared_point_is_used() -> None:
    """A point that nothing passes would make the crash tests say too much."""
    declare()
    root = Path(monitor.store.__file__).parents[2]
    rooms = ("monitor/store", "monitor/pipeline", "actors")
    text = "".join(path.read_text() for room in rooms for path in (root / room).glob("*.py"))
    used = set(re.findall(r'fault_point\(\s*f?"([^"]+)"', text))
    patterns = [re.sub(r"\{\w+\}", r"\\w+", name.replace(".", r"\.")) for name in used]
    unused = [
        name for name in declared() if not any(re.fullmatch(pattern, name) for pattern in patterns)
    ]
    assert unused == []
