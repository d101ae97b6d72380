"""Are the known classes of a source shifted? Evidence pool by pool, with a rate of false alarms.

Pure functions: what a source's past has taught goes in as JSON and comes out as JSON, so whoever
keeps it decides where. One call for each source and closed pool::

    sketch = Sketch.of(detector)                       # once for each detector version
    seen = observation(sketch, "cam-7", features, at=closed_at, stats=image_stats)
    state, verdict = observe(state, seen, DriftSettings())

A verdict says whether the known classes look different from what is normal for this source, how
strongly, since when, and what changed in words. It says nothing about new classes: for a pool
that may hold both, see :mod:`monitor.novelty.drift.pool_drift`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from monitor.novelty.array_types import Floats
from monitor.novelty.drift import drift_alarm
from monitor.novelty.drift.drift_settings import DRIFT_DEFAULTS, DriftSettings
from monitor.novelty.drift.sketch import Sketch, coherence
from monitor.novelty.drift.source_state import Condition, Displacement, DriftSignature, SourceState
from monitor.novelty.drift.wording import changes

__all__ = [
    "DriftObservation",
    "DriftSettings",
    "DriftVerdict",
    "Sketch",
    "accept",
    "observation",
    "observe",
]


@dataclass(frozen=True, slots=True, eq=False)
class DriftObservation:
    """One source in one pool. ``at`` is when, in POSIX seconds; ``key`` what it is measured by."""

    source: str
    at: float
    key: str
    signature: DriftSignature
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DriftVerdict:
    """Whether the known classes of a source are shifted, and the evidence.

    ``level`` reaches 1 where the alarm is raised. ``strength`` is the length of the shift, where
    one is the spread within a class. ``since`` is when it began, in POSIX seconds. ``learning``
    is how many pools are still needed to know what is normal. ``seen_before`` is when a shift of
    the same kind ended.
    """

    source: str
    shifted: bool
    started: bool
    ended: bool
    strength: float
    level: float
    since: float | None
    words: tuple[str, ...]
    learning: int
    seen_before: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "words": list(self.words)}

    def __str__(self) -> str:
        if self.learning:
            return f"{self.source}: learning what is normal, {self.learning} more pools"
        if not self.shifted:
            return f"{self.source}: as usual"
        what = ", ".join(self.words) or "no change of light, focus, noise or colour"
        return f"{self.source}: known classes look different ({what}), strength {self.strength:.2f}"


def observation(
    sketch: Sketch,
    source: str,
    features: Floats,
    *,
    at: float,
    stats: np.ndarray | None = None,
    names: tuple[str, ...] = (),
    moved: Displacement | None = None,
) -> DriftObservation:
    """What one source's part of a pool says.

    ``stats`` has a row for each image, ``names`` its columns. ``moved`` is the displacement of
    the features, where it is known already.
    """
    found = DriftSignature(sketch.displacement(features) if moved is None else moved)
    if stats is not None and len(stats):
        values = np.asarray(stats, dtype=np.float64)
        found = replace(
            found,
            images=float(len(values)),
            sums=values.sum(axis=0),
            squares=(values**2).sum(axis=0),
        )
    return DriftObservation(source, at, sketch.key, found, names)


def observe(
    state: Mapping[str, Any] | None, seen: DriftObservation, settings: DriftSettings
) -> tuple[dict[str, Any], DriftVerdict]:
    """One more observation of a source; ``state`` is None for the first.

    >>> key, rng = "doctest", np.random.default_rng(0)
    >>> def pool(day, shift=0.0):
    ...     sums = rng.normal(shift, 1 / 20**0.5, size=(6, 64)) * 20
    ...     return DriftObservation("cam", day * 86400.0, key,
    ...                             DriftSignature(Displacement(sums, np.full(6, 20.0))))
    >>> state = None
    >>> for day in range(40):
    ...     state, verdict = observe(state, pool(day), DriftSettings())
    >>> verdict.shifted
    False
    >>> for day in (40, 41):
    ...     state, verdict = observe(state, pool(day, shift=0.3), DriftSettings())
    >>> verdict.shifted, verdict.started, round(verdict.strength, 1)
    (True, True, 0.3)
    """
    before = None if state is None else SourceState.from_json(state)
    if before is None or before.key != seen.key:
        before = SourceState(key=seen.key, first=seen.at, last=seen.at)
    found = seen.signature if before.waiting is None else before.waiting + seen.signature
    # A clock that runs backwards must not make days negative.
    before = replace(before, last=max(before.last, seen.at), waiting=None)
    if found.moved.total < settings.clearest * settings.least_images:
        # Only the clearest images count into a displacement.
        waiting = replace(before, waiting=found)
        return waiting.to_json(), _verdict(waiting, seen, settings)
    before = replace(before, pools=before.pools + 1)
    quiet = sum(c.pools for c in before.conditions if c.kind == "normal")
    if quiet < settings.quiet_pools:
        after = _learnt(before, found, seen.at, settings)
        return after.to_json(), _verdict(after, seen, settings)
    after = _weighed(before, found, seen.at, settings)
    verdict = _verdict(after, seen, settings)
    started, ended = after.shifted and not before.shifted, before.shifted and not after.shifted
    if ended:
        after = _remembered(before, after, seen.at, settings)
    return after.to_json(), replace(verdict, started=started, ended=ended)


def accept(
    state: Mapping[str, Any], at: float, settings: DriftSettings = DRIFT_DEFAULTS
) -> dict[str, Any]:
    """People have said that the present shift is intended: it becomes normal.

    Without a shift under way nothing changes.
    """
    now = SourceState.from_json(state)
    if not now.shifted or now.moved is None:
        return dict(state)
    taken = Condition("accepted", now.moved, now.since or at, at)
    older = [c for c in now.conditions if c.kind == "accepted"][-settings.accepted_most :]
    kept = [c for c in now.conditions if c.kind != "accepted"]
    after = replace(now, conditions=(*kept, *older, taken))
    return _settled(after).to_json()


def _learnt(
    state: SourceState, seen: DriftSignature, at: float, settings: DriftSettings
) -> SourceState:
    """A pool of the quiet period: joins the condition that it resembles, or begins another."""
    if not state.conditions:
        return replace(state, conditions=(Condition("normal", seen, at, at),))
    near, evidence = _nearest(state, seen, settings)
    if evidence > settings.another_condition and len(state.conditions) < settings.conditions:
        return replace(state, conditions=(*state.conditions, Condition("normal", seen, at, at)))
    conditions = tuple(
        c.joined(seen, at) if i == near else c for i, c in enumerate(state.conditions)
    )
    return replace(state, conditions=conditions, clean=state.clean.plus(evidence))


def _weighed(
    state: SourceState, seen: DriftSignature, at: float, settings: DriftSettings
) -> SourceState:
    """A pool after the quiet period: is it like any normal condition of its source?"""
    _, evidence = _nearest(state, seen, settings)
    height = _limit(state, settings)
    standard = state.clean.standard(evidence, settings)
    level = drift_alarm.step(state.level, standard, height, settings)
    if level == 0.0 and not state.shifted:
        return _settled(state)
    gathered = seen if state.moved is None else state.moved + seen
    since = at if state.since is None else state.since
    calm = state.calm + 1 if standard < settings.reference else 0
    now = replace(state, level=level, since=since, moved=gathered, calm=calm)
    if state.shifted:
        # The level must not grow for as long as a shift lasts, or its end would be seen late.
        now = replace(now, level=min(level, 2 * height))
        return replace(now, shifted=False) if calm >= settings.calm_pools else now
    normal = state.conditions[_nearest(state, gathered, settings)[0]].signature
    strong = coherence(gathered.moved, normal.moved.means, settings).strength
    return replace(now, shifted=level > height and strong >= settings.least_strength)


def _limit(state: SourceState, settings: DriftSettings) -> float:
    return drift_alarm.limit(settings.false_alarm_days * state.pools_a_day, settings)


def _nearest(
    state: SourceState, seen: DriftSignature, settings: DriftSettings
) -> tuple[int, float]:
    """The normal condition that explains a signature best, and the evidence that is left."""
    evidence = [
        coherence(seen.moved, c.signature.moved.means, settings).evidence
        if c.kind != "past"
        else np.inf
        for c in state.conditions
    ]
    best = int(np.argmin(evidence))
    return best, float(evidence[best])


def _settled(state: SourceState) -> SourceState:
    return replace(state, level=0.0, since=None, moved=None, shifted=False, calm=0)


def _remembered(
    before: SourceState, after: SourceState, at: float, settings: DriftSettings
) -> SourceState:
    """A shift that has ended, kept so that its return can be told."""
    assert before.moved is not None
    ended = Condition("past", before.moved, before.since or at, at)
    past = [*(c for c in after.conditions if c.kind == "past"), ended][-settings.past_most :]
    return _settled(replace(after, conditions=(*after.normal, *past)))


def _verdict(state: SourceState, seen: DriftObservation, settings: DriftSettings) -> DriftVerdict:
    quiet = sum(c.pools for c in state.conditions if c.kind == "normal")
    verdict = DriftVerdict(
        source=seen.source,
        shifted=state.shifted,
        started=False,
        ended=False,
        strength=0.0,
        level=0.0,
        since=None,
        words=(),
        learning=max(0, settings.quiet_pools - quiet),
    )
    if state.moved is None or not state.conditions:
        return verdict
    normal = state.conditions[_nearest(state, state.moved, settings)[0]].signature
    found = coherence(state.moved.moved, normal.moved.means, settings)
    return replace(
        verdict,
        strength=round(found.strength, 4),
        level=round(state.level / _limit(state, settings), 4),
        since=state.since,
        words=_words(normal, state.moved, seen.names, settings) if state.shifted else (),
        seen_before=_seen_before(state, found.evidence, settings) if state.shifted else None,
    )


def _words(
    normal: DriftSignature, now: DriftSignature, names: tuple[str, ...], settings: DriftSettings
) -> tuple[str, ...]:
    if not normal.images or not now.images or len(names) != len(now.sums):
        return ()
    effects = (now.mean - normal.mean) / normal.spread
    by_name = {name: float(e) for name, e in zip(names, effects, strict=True)}
    return changes(by_name, settings)


def _seen_before(state: SourceState, evidence: float, settings: DriftSettings) -> float | None:
    assert state.moved is not None
    for past in reversed([c for c in state.conditions if c.kind == "past"]):
        left = coherence(state.moved.moved, past.signature.moved.means, settings).evidence
        if left < (1 - settings.seen_before) * evidence:
            return past.last
    return None
