"""What happens, in sentences for whoever watches the monitor run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from monitor.store.rows import Event


@dataclass(frozen=True, slots=True)
class Told:
    """Something that happened, for whoever watches."""

    kind: str
    text: str


Listener = Callable[[Told], None]


def sentence(event: Event) -> str | None:
    """An event as a person would tell it; None for those that are not worth a line.

    >>> from datetime import UTC, datetime
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> sentence(Event(1, now, "drift.ended", "cam-7", {"words": []}))
    'cam-7: looks as usual again'
    """
    teller = _TELLERS.get(event.kind)
    return None if teller is None else teller(event.source or "", event.payload)


def _discovered(source: str, told: Mapping[str, Any]) -> str:
    where = ", ".join(told["sources"])
    return (
        f"new class {told['name']!r}: {told['human']} images named by people, {told['pseudo']} "
        f"that follow them, from {where}"
    )


def _opened(source: str, told: Mapping[str, Any]) -> str:
    return f"{told['count']} questions about pool {told['pool']}, round {told['round'] + 1}"


def _triggered(source: str, told: Mapping[str, Any]) -> str:
    where = f", most at {source}" if source else ""
    # A beginning shift is asked about, and so is anything with pools.trigger=any, whatever chance.
    chance = (
        f"chance alone does that once in {1 / max(told['chance'], 1e-9):,.0f} pools; "
        if told["chance"] <= told["level"]
        else ""
    )
    return (
        f"pool {told['pool']}: {sum(told['novel'].values())} of {told['images']} images look new"
        f"{where}; {chance}asking up to {told['budget']} questions"
    )


def _probed(source: str, told: Mapping[str, Any]) -> str:
    return (
        f"pool {told['pool']}: nothing new beyond chance; {told['budget']} questions about what "
        "looks newest (labels.trickle_per_week)"
    )


def _unresolved(source: str, told: Mapping[str, Any]) -> str:
    return f"pool {told['pool']} stays unresolved: {told['reason']}"


def _held(source: str, told: Mapping[str, Any]) -> str:
    return (
        f"detector version {told['version']} is held: {told['reason']}; see conclad detector "
        f"show {told['version']}, then release or refuse it"
    )


def _drifted(source: str, told: Mapping[str, Any]) -> str:
    words = ", ".join(told["words"]) or "no plain change of light, focus, noise or colour"
    return f"{source}: known classes look different ({words}), strength {told['strength']:.2f}"


_TELLERS: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "class.discovered": _discovered,
    "queries.opened": _opened,
    "pool.triggered": _triggered,
    "pool.probed": _probed,
    "pool.unresolved": _unresolved,
    "detector.held": _held,
    "drift.detected": _drifted,
    "detector.adapted": lambda source, told: (
        f"{source}: {', '.join(told['classes'])} learnt their new look"
    ),
    "drift.ended": lambda source, told: f"{source}: looks as usual again",
    "budget.exhausted": lambda source, told: (
        f"pool {told['pool']} waits: this week's questions are used up (labels.per_week)"
    ),
}

KINDS = tuple(_TELLERS)
