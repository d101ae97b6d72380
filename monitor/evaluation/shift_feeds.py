"""Feeds, pool by pool: when drift is told, by us and by naive detectors, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import betabinom

from monitor.evaluation.shift_baselines import naive_alarms
from monitor.evaluation.shift_data import ShiftedFeatures
from monitor.novelty.drift.pool_drift import PoolDrift, SourceSplit, observe_pool
from monitor.novelty.drift.source_drift import DriftSettings
from monitor.novelty.inner_loop import drive, inner_loop
from monitor.novelty.trigger.measure_pool_novelty import measure_novelty
from monitor.novelty.trigger.trigger_decision import Evidence, TriggerState
from monitor.novelty.trigger.trigger_settings import TriggerSettings

if TYPE_CHECKING:
    from monitor.evaluation.shift import ShiftWorld

Floats = NDArray[np.float32]
Record = dict[str, Any]
Draw = Callable[[], Floats]

# Pools after the quiet period until the watch is given up, and hours between two pools.
_PATIENCE, _HOURS = 10, 4.0
# Share of new samples in the feed that brings a new class and no shift.
_NEW_ONLY = 1 / 3
# How even the mix of classes is from pool to pool of a clean year; 3 lets any class go missing
# in some of them.
_MIX = 3.0
_SOURCE = "source"
# Only what the trigger opens is asked about: it alone is measured here.
_TRIGGER = TriggerSettings(trickle_per_week=0)


def watched(world: ShiftWorld, shifted: ShiftedFeatures) -> Record:
    """Pools until drift is told, None if it never is, and what else a shift alone brings about.

    ``triggered`` is whether the trigger opened a round on one of its first two pools, once the
    shift was corrected; ``false_classes`` counts what the inner loop makes of a pool of it.
    """
    quiet = _Quiet(world)
    draw = _drawn(world, shifted)
    state, trigger, triggered = quiet.state, TriggerState(), False
    for number in (1, 2):
        pool = draw()
        found = quiet.observe_pool(state, pool, number)
        state = found.states
        seen = _evidence(world, pool, found.split.sources[_SOURCE])
        trigger, decision = trigger.decided(seen, at=quiet.at(number), settings=_TRIGGER)
        triggered |= decision.kind == "round"
    sample = world.take(shifted, world.plan.pool)
    update = drive(
        inner_loop(world.detector, sample.features, budget=quiet.settings.confirm_labels),
        lambda i: str(sample.labels[i]),
    )
    return {
        "kind": "watch",
        "feed": "shifted",
        "pools": quiet.told(draw),
        "triggered": triggered,
        "false_classes": len(update.discoveries),
        "labels": update.labels,
    }


def _evidence(world: ShiftWorld, pool: Floats, part: SourceSplit) -> Evidence:
    """What the trigger weighs of a pool of one source, as the monitor's inspection has it.

    Beside clean references everything shifted looks new: of a shifted source only the images
    count that the shift leaves above T_inner.
    """
    if not part.shifted:
        seen = measure_novelty(world.detector, pool)
        return Evidence(seen.strength, images=len(pool), references=seen.references)
    usual = world.detector.fre_calibration
    above = usual.exceedance * usual.count
    chance = betabinom.sf(part.left - 1, part.samples, above + 1, usual.count - above + 1)
    return Evidence({}, images=0, references=0, shifted={_SOURCE: float(chance)})


def watched_without_shift(world: ShiftWorld) -> list[Record]:
    """The same watch over feeds in which no known class shifts, and over a clean year."""
    quiet = _Quiet(world)
    clean = _drawn(world, world.old)

    def with_new() -> Floats:
        fresh = world.take(world.new, int(_NEW_ONLY * world.plan.pool), replace=True).features
        return np.concatenate([clean()[len(fresh) :], fresh])

    records: list[Record] = [
        {"kind": "watch", "feed": feed, "pools": quiet.told(draw)}
        for feed, draw in (("clean", clean), ("new", with_new))
        for _ in range(world.plan.feeds)
    ]
    return [*records, _year(world, quiet)]


def _drawn(world: ShiftWorld, seen: ShiftedFeatures) -> Draw:
    return lambda: world.take(seen, world.plan.pool, replace=True).features


def _year(world: ShiftWorld, quiet: _Quiet) -> Record:
    """How often drift is told of a clean feed whose mix of classes changes from pool to pool."""
    by_class = [np.flatnonzero(world.old.labels == name) for name in world.known]
    state, alarms = quiet.state, 0
    pools = round(world.plan.days * 24 / _HOURS)
    for number in range(1, pools + 1):
        shares = world.rng.dirichlet(np.full(len(by_class), _MIX))
        counts = world.rng.multinomial(world.plan.pool, shares)
        rows = [world.rng.choice(own, n) for own, n in zip(by_class, counts, strict=True)]
        found = quiet.observe_pool(state, world.old.features[np.concatenate(rows)], number)
        state = found.states
        alarms += found.verdicts[_SOURCE].started
    allowed = world.plan.days / quiet.settings.false_alarm_days
    return {"kind": "year", "pools": pools, "alarms": alarms, "allowed": allowed}


class _Quiet:
    """Our watch and the naive ones after the same quiet period, as often as one likes."""

    def __init__(self, world: ShiftWorld) -> None:
        self.settings = DriftSettings()
        self._world = world
        pools = [_drawn(world, world.old)() for _ in range(self.settings.quiet_pools)]
        self.state: Any = {}
        for number, pool in enumerate(pools, start=1 - len(pools)):
            self.state = self.observe_pool(self.state, pool, number).states
        run = self.settings.false_alarm_days * 24 / _HOURS
        rng = np.random.default_rng(world.seed)
        self._naive = naive_alarms(world.detector.s0, pools, run, rng)

    def observe_pool(self, state: Any, pool: Floats, number: int) -> PoolDrift:
        """One more pool; the first after the quiet period has number one."""
        sources = [_SOURCE] * len(pool)
        return observe_pool(
            self._world.sketch, state, pool, sources, at=self.at(number), settings=self.settings
        )

    def at(self, number: int) -> float:
        """When that pool was taken."""
        return 3600 * _HOURS * (self.settings.quiet_pools + number)

    def told(self, draw: Draw) -> dict[str, int | None]:
        """The pool at which each detector first tells a drift."""
        first: dict[str, int | None] = {"ours": None, **dict.fromkeys(self._naive)}
        state = self.state
        for number in range(1, _PATIENCE + 1):
            pool = draw()
            found = self.observe_pool(state, pool, number)
            state = found.states
            alarms = {"ours": bool(found.shifted)}
            alarms |= {n: alarm(pool) for n, alarm in self._naive.items() if first[n] is None}
            for name, alarm in alarms.items():
                if alarm and first[name] is None:
                    first[name] = number
        return first
