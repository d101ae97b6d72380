"""Fault points fire exactly where they are told to."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import monitor.store
from monitor.store.faults import declare, declared, fault_point

PROGRAM = """
from monitor.store.faults import declare, fault_point
declare("here", "there")
for turn in range(3):
    fault_point("here")
    print(turn, flush=True)
"""


@pytest.mark.parametrize(
    ("value", "printed"), [("", "012"), ("there", "012"), ("here", ""), ("here:3", "01")]
)
def test_dies_at_the_named_pass(value: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"CONCLAD_FAULT": value, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
    )
    assert done.stdout.replace("\n", "") == printed
    assert done.returncode == (0 if printed == "012" else -signal.SIGKILL)


def test_an_undeclared_point_is_a_bug() -> None:
    with pytest.raises(LookupError, match="never declared"):
        fault_point("no.such.point")


def test_every_declared_point_is_used() -> None:
    """A point that nothing passes would make the crash tests say too much."""
    declare()
    folder = Path(monitor.store.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    used = set(re.findall(r'fault_point\(\s*f?"([^"]+)"', text))
    patterns = [re.sub(r"\{\w+\}", r"\\w+", name.replace(".", r"\.")) for name in used]
    unused = [
        name for name in declared() if not any(re.fullmatch(pattern, name) for pattern in patterns)
    ]
    assert unused == []
