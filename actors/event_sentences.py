"""Events as sentences, for whoever watches the monitor run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from monitor.store.records import Event


@dataclass(frozen=True, slots=True)
class MonitorMessage:
    """Something that happened, for whoever watches; the text may quote names from outside."""

    kind: str
    text: str


Listener = Callable[[MonitorMessage], None]


def sentence(event: Event) -> str | None:
    """An event as a sentence; None for kinds that are not shown.

    >>> from datetime import UTC, datetime
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> sentence(Event(1, now, "drift.ended", "cam-7", {"words": []}))
    'cam-7: looks as usual again'
    """
    writer = _SENTENCES.get(event.kind)
    return None if writer is None else writer(event.source or "", event.payload)


def _discovered(source: str, said: Mapping[str, Any]) -> str:
    where = ", ".join(said["sources"])
    doubt = "" if said.get("confirmed", True) else "; unconfirmed until more answers name it"
    return (
        f"new class {said['name']!r}: {said['human']} images named by people, {said['pseudo']} "
        f"that follow them, from {where}{doubt}"
    )


def _opened(source: str, said: Mapping[str, Any]) -> str:
    return f"{said['count']} questions about pool {said['pool']}, round {said['round'] + 1}"


def _triggered(source: str, said: Mapping[str, Any]) -> str:
    where = f", most at {source}" if source else ""
    # A beginning shift is asked about, and so is anything with pools.trigger=any, whatever chance.
    chance = (
        f"chance alone does that once in {1 / max(said['chance'], 1e-9):,.0f} pools; "
        if said["chance"] <= said["level"]
        else ""
    )
    return (
        f"pool {said['pool']}: {sum(said['novel'].values())} of {said['images']} images look new"
        f"{where}; {chance}asking up to {said['budget']} questions"
    )


def _probed(source: str, said: Mapping[str, Any]) -> str:
    return (
        f"pool {said['pool']}: nothing new beyond chance; {said['budget']} questions about what "
        "looks newest (labels.trickle_per_week)"
    )


def _quiet(source: str, said: Mapping[str, Any]) -> str:
    if "asked" in said:
        return f"pool {said['pool']}: nothing new after {said['asked']} questions"
    shifted = "".join(
        f" and {count} at {where} that are known classes seen differently"
        for where, count in said.get("explained_by_shift", {}).items()
        if count
    )
    seen = f"{sum(said['novel'].values())} of {said['images']} images look new"
    return f"pool {said['pool']}: {seen}{shifted}, no more than chance explains; nobody is asked"


def _restarted(source: str, said: Mapping[str, Any]) -> str:
    return f"a worker ({said['role']}) was lost and replaced; its work is done again"


def _settled(source: str, said: Mapping[str, Any]) -> str:
    new = ", ".join(f"{number} {name}" for name, number in said["new"].items())
    counts = said["verdicts"]
    told = [
        f"{counts[kind]} {kind}" for kind in ("known", "shifted", "undecided") if kind in counts
    ]
    if counts.get("new"):
        told.append(f"{counts['new']} new ({new})")
    return f"pool {said['pool']} is settled: {', '.join(told)} of {said['images']} images"


def _grown(source: str, said: Mapping[str, Any]) -> str:
    return (
        f"{said['name']!r} learnt from pool {said['pool']}: {said['human']} images named by "
        f"people, {said['pseudo']} that follow them"
    )


def _confirmed(source: str, said: Mapping[str, Any]) -> str:
    return f"{said['name']!r} is confirmed by people's answers about pool {said['pool']}"


def _unresolved(source: str, said: Mapping[str, Any]) -> str:
    return f"pool {said['pool']} stays unresolved: {said['reason']}"


def _held(source: str, said: Mapping[str, Any]) -> str:
    return (
        f"detector version {said['version']} is held: {said['reason']}; see conclad detector "
        f"show {said['version']}, then release or refuse it"
    )


def _drifted(source: str, said: Mapping[str, Any]) -> str:
    words = ", ".join(said["words"]) or "no plain change of light, focus, noise or colour"
    return f"{source}: known classes look different ({words}), strength {said['strength']:.2f}"


def _changed(source: str, said: Mapping[str, Any]) -> str:
    return (
        f"{said['file']}, row {said['row']}: holds another image than the one that was scored; "
        "it is not shown, and files of a feed must not change"
    )


_SENTENCES: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "class.discovered": _discovered,
    "image.changed": _changed,
    "questions.opened": _opened,
    "pool.triggered": _triggered,
    "pool.probed": _probed,
    "pool.quiet": _quiet,
    "pool.unresolved": _unresolved,
    "actor.restarted": _restarted,
    "file.returned": lambda source, said: f"{said['file']}: is back, and read again",
    "pool.settled": _settled,
    "class.grown": _grown,
    "class.confirmed": _confirmed,
    "detector.held": _held,
    "drift.detected": _drifted,
    "drift.corrected": lambda source, said: (
        f"{source}: looks different (strength {said['strength']:.2f}); from here on its images are "
        "judged with the difference corrected"
    ),
    "detector.adapted": lambda source, said: (
        f"{source}: {', '.join(said['classes'])} learnt their new look"
    ),
    "drift.ended": lambda source, said: f"{source}: looks as usual again",
    "budget.exhausted": lambda source, said: (
        f"pool {said['pool']} waits: this week's questions are used up (labels.per_week)"
    ),
}

KINDS = tuple(_SENTENCES)
