"""Are the known classes of a source shifted? Evidence pool by pool, with a rate of false alarms.

Pure functions: what a source's past has taught goes in as JSON and comes out as JSON, so whoever
keeps it decides where. One call for each source and closed pool::

    sketch = Sketch.of(detector)                       # once for each detector version
    seen = observation(sketch, "cam-7", features, at=closed_at, stats=image_stats)
    state, verdict = observe(state, seen, DriftSettings())

A verdict says whether the known classes look different from what is normal for this source, how
strongly, since when, and what changed in words. It says nothing about new classes: for a pool
that may hold both, see :mod:`monitor.novelty.drift_split`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from monitor.novelty import drift_alarm
from monitor.novelty.arrays import Floats
from monitor.novelty.drift_settings import DriftSettings
from monitor.novelty.drift_sketch import Sketch, coherence
from monitor.novelty.drift_state import Condition, Look, SourceState
from monitor.novelty.drift_words import changes

__all__ = [
    "DriftObservation",
    "DriftSettings",
    "DriftVerdict",
    "Sketch",
    "accept",
    "observation",
    "observe",
]

# Evidence beyond which a pool of the quiet period has another look than those before: five times
# the spread of clean evidence.
_ANOTHER_LOOK = 1.5
# A shift is one that was seen before if it explains this share of what is seen now.
_SEEN_BEFORE = 0.75
# Shifts that are remembered after they ended, and looks accepted before the latest: enough for
# the seasons, and a state that stays a few kilobytes.
_PAST_MOST, _ACCEPTED_MOST = 4, 3


@dataclass(frozen=True, slots=True, eq=False)
class DriftObservation:
    """One source in one pool. ``at`` is when, in POSIX seconds; ``key`` what it is measured by."""

    source: str
    at: float
    key: str
    look: Look
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
        return {**asdict(self), "words": list(self.words)}

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
) -> DriftObservation:
    """What one source's part of a pool says. ``stats`` has a row for each image, ``names`` its
    columns."""
    look = Look(sketch.displacement(features))
    if stats is not None and len(stats):
        values = np.asarray(stats, dtype=np.float64)
        look = replace(
            look,
            images=float(len(values)),
            look=values.sum(axis=0),
            look_squared=(values**2).sum(axis=0),
        )
    return DriftObservation(source, at, sketch.key, look, names)


def observe(
    state: Mapping[str, Any] | None, seen: DriftObservation, settings: DriftSettings
) -> tuple[dict[str, Any], DriftVerdict]:
    """One more observation of a source; ``state`` is None for the first.

    >>> from monitor.novelty.drift_sketch import Displacement
    >>> key, rng = "doctest", np.random.default_rng(0)
    >>> def pool(day, shift=0.0):
    ...     sums = rng.normal(shift, 1 / 20**0.5, size=(6, 64)) * 20
    ...     return DriftObservation("cam", day * 86400.0, key,
    ...                             Look(Displacement(sums, np.full(6, 20.0))))
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
    look = seen.look if before.waiting is None else before.waiting + seen.look
    # A clock that runs backwards must not make days negative.
    before = replace(before, last=max(before.last, seen.at), waiting=None)
    if look.moved.total < settings.least_images / 2:
        # Only half of the images, the clearest, count into a displacement.
        waiting = replace(before, waiting=look)
        return waiting.to_json(), _verdict(waiting, seen, settings)
    before = replace(before, pools=before.pools + 1)
    quiet = sum(c.pools for c in before.conditions if c.kind == "normal")
    if quiet < settings.quiet_pools:
        after = _learnt(before, look, seen.at, settings)
        return after.to_json(), _verdict(after, seen, settings)
    after = _weighed(before, look, seen.at, settings)
    verdict = _verdict(after, seen, settings)
    started, ended = after.shifted and not before.shifted, before.shifted and not after.shifted
    if ended:
        after = _remembered(before, after, seen.at)
    return after.to_json(), replace(verdict, started=started, ended=ended)


def accept(state: Mapping[str, Any], at: float) -> dict[str, Any]:
    """People have said that the present look is how it shall be: it becomes normal.

    Without a shift under way nothing changes.
    """
    now = SourceState.from_json(state)
    if not now.shifted or now.moved is None:
        return dict(state)
    taken = Condition("accepted", now.moved, now.since or at, at)
    older = [c for c in now.conditions if c.kind == "accepted"][-_ACCEPTED_MOST:]
    kept = [c for c in now.conditions if c.kind != "accepted"]
    after = replace(now, conditions=(*kept, *older, taken))
    return _settled(after).to_json()


def _learnt(state: SourceState, look: Look, at: float, settings: DriftSettings) -> SourceState:
    """A pool of the quiet period: joins the condition that it resembles, or begins another."""
    if not state.conditions:
        return replace(state, conditions=(Condition("normal", look, at, at),))
    near, evidence = _nearest(state, look)
    if evidence > _ANOTHER_LOOK and len(state.conditions) < settings.conditions:
        return replace(state, conditions=(*state.conditions, Condition("normal", look, at, at)))
    conditions = tuple(
        c.joined(look, at) if i == near else c for i, c in enumerate(state.conditions)
    )
    return replace(state, conditions=conditions, null=state.null.plus(evidence))


def _weighed(state: SourceState, look: Look, at: float, settings: DriftSettings) -> SourceState:
    """A pool after the quiet period: is it like any normal condition of its source?"""
    _, evidence = _nearest(state, look)
    height = drift_alarm.limit(settings.false_alarm_days * state.pools_a_day)
    standard = state.null.standard(evidence)
    level = drift_alarm.step(state.level, standard, height)
    if level == 0.0 and not state.shifted:
        return _settled(state)
    gathered = look if state.moved is None else state.moved + look
    since = at if state.since is None else state.since
    calm = state.calm + 1 if standard < drift_alarm.REFERENCE else 0
    now = replace(state, level=level, since=since, moved=gathered, calm=calm)
    if state.shifted:
        # The level must not grow for as long as a shift lasts, or its end would be seen late.
        now = replace(now, level=min(level, 2 * height))
        return replace(now, shifted=False) if calm >= settings.calm_pools else now
    strong = coherence(gathered.moved, _baseline(state, gathered)).strength
    return replace(now, shifted=level > height and strong >= settings.least_strength)


def _nearest(state: SourceState, look: Look) -> tuple[int, float]:
    """The normal condition that explains a look best, and the evidence that is left."""
    evidence = [
        coherence(look.moved, c.look.moved.means).evidence if c.kind != "past" else np.inf
        for c in state.conditions
    ]
    best = int(np.argmin(evidence))
    return best, float(evidence[best])


def _baseline(state: SourceState, look: Look) -> np.ndarray:
    return state.conditions[_nearest(state, look)[0]].look.moved.means


def _settled(state: SourceState) -> SourceState:
    return replace(state, level=0.0, since=None, moved=None, shifted=False, calm=0)


def _remembered(before: SourceState, after: SourceState, at: float) -> SourceState:
    """A shift that has ended, kept so that its return can be told."""
    assert before.moved is not None
    past = [c for c in after.conditions if c.kind == "past"][-(_PAST_MOST - 1) :]
    ended = Condition("past", before.moved, before.since or at, at)
    return _settled(replace(after, conditions=(*after.normal, *past, ended)))


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
    normal = state.conditions[_nearest(state, state.moved)[0]].look
    found = coherence(state.moved.moved, normal.moved.means)
    height = drift_alarm.limit(settings.false_alarm_days * state.pools_a_day)
    return replace(
        verdict,
        strength=round(found.strength, 4),
        level=round(state.level / height, 4),
        since=state.since,
        words=_words(normal, state.moved, seen.names) if state.shifted else (),
        seen_before=_seen_before(state, found.evidence) if state.shifted else None,
    )


def _words(normal: Look, now: Look, names: tuple[str, ...]) -> tuple[str, ...]:
    if not normal.images or not now.images or len(names) != len(now.look):
        return ()
    effects = (now.mean - normal.mean) / normal.spread
    return changes({name: float(e) for name, e in zip(names, effects, strict=True)})


def _seen_before(state: SourceState, evidence: float) -> float | None:
    assert state.moved is not None
    for past in reversed([c for c in state.conditions if c.kind == "past"]):
        left = coherence(state.moved.moved, past.look.moved.means).evidence
        if left < (1 - _SEEN_BEFORE) * evidence:
            return past.last
    return None
