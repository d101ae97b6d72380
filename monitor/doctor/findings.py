"""What the checks found: one sentence for each thing checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    GOOD = "good"
    WARNING = "warning"
    """Works, but somebody should know."""
    PROBLEM = "problem"
    """The monitor would not run, or not for long."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    >>> str(Check("clock", Level.GOOD, "agrees with the database"))
    '  ok       clock: agrees with the database'
    """

    name: str
    level: Level
    sentence: str

    def __str__(self) -> str:
        mark = {Level.GOOD: "ok", Level.WARNING: "note", Level.PROBLEM: "PROBLEM"}[self.level]
        return f"  {mark:<8} {self.name}: {self.sentence}"


def good(name: str, sentence: str) -> Check:
    return Check(name, Level.GOOD, sentence)


def warning(name: str, sentence: str) -> Check:
    return Check(name, Level.WARNING, sentence)


def problem(name: str, sentence: str) -> Check:
    return Check(name, Level.PROBLEM, sentence)


def conclusion(checks: Sequence[Check]) -> str:
    """
    >>> conclusion([good("a", ""), warning("b", "")])
    'Ready, with 1 note.'
    """
    problems = sum(check.level is Level.PROBLEM for check in checks)
    notes = sum(check.level is Level.WARNING for check in checks)
    told = f", with {_counted(notes, 'note')}" if notes else ""
    if problems:
        return f"Not ready: {_counted(problems, 'problem')}{told}."
    return f"Ready{told}."


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
