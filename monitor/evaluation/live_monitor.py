"""The monitor's walk, pool by pool, without a cluster and without a store.

How a pool is inspected and how many questions it may ask are the running monitor's own functions.
They are handed in: this package lies below theirs and knows neither state nor configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from monitor.evaluation.live_feed import Floats, LivePool
from monitor.novelty.class_growth import grow_classes
from monitor.novelty.detector import Detector, Scores
from monitor.novelty.drift.source_drift import DriftSettings, DriftVerdict, Sketch
from monitor.novelty.inner_loop import Update, drive, inner_loop
from monitor.novelty.settled_verdicts import SettledVerdicts, settle_pool
from monitor.novelty.trigger.trigger_decision import Evidence, TriggerState
from monitor.novelty.trigger.trigger_settings import TriggerSettings

#: Why people were asked: the trigger, the weekly allowance, or a shift that has begun.
Kind = Literal["quiet", "round", "probe", "confirm"]
States = Mapping[str, str]


class Looked(Protocol):
    """What the inspection of a pool gives: evidence, and the drift of its sources."""

    @property
    def seen(self) -> Evidence: ...
    @property
    def verdicts(self) -> Mapping[str, DriftVerdict]: ...
    @property
    def states(self) -> States: ...


class Look(Protocol):
    """Inspect a pool that was taken ``at`` this time; ``states`` is what drift remembers."""

    def __call__(
        self,
        sketch: Sketch,
        features: Floats,
        sources: NDArray[np.object_],
        states: States,
        at: float,
    ) -> Looked: ...


@dataclass(frozen=True, slots=True)
class Steps:
    """The running monitor's own steps: inspecting a pool, and how much it may ask."""

    look: Look
    budget: Callable[[int, float | None], int]
    """Questions about a pool of this size; with a share of the pool in place of the default."""


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What became of a pool. ``verdicts`` and ``detector`` are from before anybody was asked.

    ``unconfirmed`` are the classes that need more answers afterwards.
    """

    kind: Kind
    detector: Detector
    verdicts: Scores
    update: Update | None
    settled: SettledVerdicts
    unconfirmed: frozenset[str]

    @property
    def questions(self) -> int:
        return self.update.labels if self.update else 0

    @property
    def trickle_questions(self) -> int:
        """Those that the allowance paid for: a probe's first round."""
        return len(self.update.rounds[0].asked) if self.update and self.kind == "probe" else 0

    @property
    def settled_names(self) -> NDArray[np.str_]:
        """The name of the class that each settled verdict tells; empty where it tells none."""
        names = {c.id: c.name for c in self.detector.classes}
        return np.array([names.get(c or "", c or "") for c in self.settled.classes])

    @property
    def discovered(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.update.discoveries) if self.update else ()


class LiveMonitor:
    """A monitor whose people answer at once and are always right."""

    def __init__(
        self,
        detector: Detector,
        steps: Steps,
        settings: TriggerSettings,
        seed: int = 0,
        budget: float | None = None,
    ) -> None:
        self.detector = detector
        self._budget = budget
        self._steps, self._settings, self._seed = steps, settings, seed
        self._sketch = Sketch.of(detector)
        self._watch = TriggerState()
        self._states: States = {}

    def take(self, pool: LivePool, at: float) -> Taken:
        """Score a pool, inspect it, decide, ask if need be, and learn what the answers name."""
        detector = self.detector
        verdicts = detector.score(pool.features)
        looked = self._steps.look(self._sketch, pool.features, pool.sources, self._states, at)
        self._states = looked.states
        self._watch, decision = self._watch.decided(looked.seen, at=at, settings=self._settings)
        kind: Kind = decision.kind
        budget = self._steps.budget(len(pool.features), self._budget)
        if kind != "round" and any(v.started for v in looked.verdicts.values()):
            kind, budget = "confirm", min(budget, DriftSettings().confirm_labels)
        shifted = [source for source, verdict in looked.verdicts.items() if verdict.shifted]
        if kind == "quiet":
            settled = self._settle(detector, pool, {}, shifted, ())
            return Taken(kind, detector, verdicts, None, settled, self._unconfirmed)
        probe = min(decision.questions, budget) if kind == "probe" else 0
        loop = inner_loop(detector, pool.features, budget=budget, seed=self._seed, probe=probe)
        update = drive(loop, lambda i: str(pool.labels[i]))
        if update.discoveries:
            self.detector = update.apply(detector, pool.features, seed=self._seed)
            self._sketch = Sketch.of(self.detector)
            self._watch = self._watch.learnt()
        elif not probe:
            # A few questions of a probe do not say that nothing is new.
            self._watch = self._watch.nothing_new(looked.seen.strength)
        asked = {row: str(pool.labels[row]) for r in update.rounds for row in r.asked}
        learnt = [row for d in update.discoveries for row in d.samples]
        settled = self._settle(detector, pool, asked, shifted, learnt)
        return Taken(kind, detector, verdicts, update, settled, self._unconfirmed)

    @property
    def _unconfirmed(self) -> frozenset[str]:
        return frozenset(c.name for c in self.detector.classes if not c.confirmed)

    def _settle(
        self,
        detector: Detector,
        pool: LivePool,
        answers: Mapping[int, str],
        shifted: Sequence[str],
        learnt: Sequence[int],
    ) -> SettledVerdicts:
        """Settle a pool with the detector that asked, and teach the one in use."""
        settled = settle_pool(
            detector,
            pool.features,
            answers,
            sources=pool.sources.tolist(),
            shifted=shifted,
            seed=self._seed,
        )
        growth = grow_classes(
            self.detector, pool.features, settled, answers, taken=learnt, seed=self._seed
        )
        if growth is not None:
            self.detector = growth.detector
            self._sketch = Sketch.of(self.detector)
        return settled
