"""The inner loop of a pool, as far as its answers go: the work of the updater.

Nothing here is durable and nothing needs to be: given the pool, its detector, the seed and the
answers so far, the loop reaches the same point again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.cluster_unanswered_pool import provisional_clusters
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.drift.adaptation import AdaptedClass, adapt, looks_usual
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.inner_loop import Discovery, Loop, QuestionsToAsk, Update, inner_loop
from monitor.novelty.pseudo_labeller import AT_THE_END, PseudoLabel
from monitor.pipeline.version_gate import GateReport, compare_versions


@dataclass(frozen=True, slots=True, eq=False)
class LoopInput:
    """A pool under way: what it is, and what has been answered in the rounds that are over.

    ``answers`` holds class ids by sample. ``rounds`` is how many rounds are over. ``stop`` asks
    nobody any more: the loop concludes with what it has. ``shifted`` has, for each source whose
    known classes are shifted, the rows of its samples. ``probe`` is how many questions come first,
    to find out whether to go on.
    """

    pool_id: int
    budget: int
    seed: int
    rounds: int
    answers: Mapping[int, str | None]
    stop: bool = False
    shifted: Mapping[str, Ints] = field(default_factory=dict)
    probe: int = 0
    confirmable: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class RoundToAsk:
    """The next round's samples, and the id of the class that the loop takes each for.

    Ids, because names change: people may rename, merge or retire a class between two rounds.
    """

    round: int
    samples: tuple[int, ...]
    suggestions: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LoopConclusion:
    """The end of the loop. ``detector`` knows what was learnt; None if that is nothing.

    The names of ``discoveries`` are class ids. ``adapted`` has, for each source that was
    shifted, what its classes learnt of their new look.
    """

    outcome: str
    discoveries: tuple[Discovery, ...]
    detector: Detector | None
    gate_report: GateReport | None
    rounds: int
    above: int
    missed: float | None
    seconds: float
    adapted: Mapping[str, tuple[AdaptedClass, ...]] = field(default_factory=dict)
    settled: tuple[str, ...] = ()
    """Of those sources, the ones that are novel no more often than others now."""
    provisional: bool = False
    """The classes come from clusters, not from answers."""


class InnerLoopDriver:
    """Advances inner loops. Keeps the last one in hand, so that a new round need not replay."""

    def __init__(self) -> None:
        self._held: _Held | None = None

    def advance(
        self,
        state: LoopInput,
        base: Detector,
        current: Detector,
        names: Mapping[str, str],
        features: Floats,
    ) -> RoundToAsk | LoopConclusion:
        """On to the next question, or to the end.

        ``base`` is the detector that the pool was first asked about with; discoveries are added
        to ``current``, which may have moved on meanwhile. ``names`` gives the new classes' names
        by id.
        """
        began = time.perf_counter()
        held, self._held = self._held, None
        if held is None or (held.pool_id, held.rounds) != (state.pool_id, state.rounds - 1):
            held = _Held(state.pool_id, -1, _begin(state, base, features))
        try:
            question = held.catch_up(state)
            while state.stop:
                question = held.loop.send([None] * len(question.samples))
        except StopIteration as stop:
            return _conclude(stop.value, state, current, names, features, began)
        self._held = held
        samples = tuple(int(i) for i in question.samples)
        ids = {known.name: known.id for known in base.classes}
        guesses = tuple(g if g is None else ids.get(g, g) for g in question.suggestions)
        return RoundToAsk(question.round, samples, guesses)


class _Held:
    """A loop at its latest question, ``rounds`` answered rounds from its beginning."""

    def __init__(self, pool_id: int, rounds: int, loop: Loop) -> None:
        self.pool_id = pool_id
        self.rounds = rounds
        self.loop = loop
        self._asked: QuestionsToAsk | None = None

    def catch_up(self, state: LoopInput) -> QuestionsToAsk:
        """Answer every round that is over; what is left is the question to ask next."""
        while self._asked is None or self.rounds < state.rounds:
            if self._asked is None:
                self._asked = next(self.loop)
            else:
                # A sample that was not asked about then (another release chose otherwise)
                # stays unanswered: nobody is asked twice, or for more than the budget.
                given = [state.answers.get(int(i)) for i in self._asked.samples]
                self._asked = self.loop.send(given)
            self.rounds += 1
        return self._asked


def _begin(state: LoopInput, base: Detector, features: Floats) -> Loop:
    budget = min(state.budget, len(features))
    return inner_loop(base, features, budget=budget, seed=state.seed, probe=state.probe)


def cluster_pool(pool_id: int, current: Detector, features: Floats, seed: int) -> LoopConclusion:
    """Nobody answered: what seems new becomes provisional classes, for a person to name later."""
    began = time.perf_counter()
    groups = provisional_clusters(current, features)
    discoveries = tuple(
        Discovery(
            f"provisional-{pool_id}-{number}",
            (),
            tuple(PseudoLabel(int(i), "", 0.0, AT_THE_END) for i in group),
        )
        for number, group in enumerate(groups, start=1)
    )
    rng = np.random.default_rng(seed)
    classes = [
        KnownClass.fit(
            d.name,
            f"unnamed {pool_id}.{number}",
            features[d.samples],
            settings=current.settings,
            rng=rng,
            origin="provisional",
            said=np.zeros(len(d.samples), dtype=bool),
            confirmed=False,
        )
        for number, d in enumerate(discoveries, start=1)
    ]
    detector = current.with_classes(classes) if classes else None
    return LoopConclusion(
        outcome="provisional" if classes else "nothing new",
        discoveries=discoveries,
        detector=detector,
        gate_report=compare_versions(current, detector) if detector else None,
        rounds=0,
        above=int(current.score(features).novel.sum()),
        missed=None,
        seconds=time.perf_counter() - began,
        provisional=True,
    )


def _conclude(
    update: Update,
    state: LoopInput,
    current: Detector,
    names: Mapping[str, str],
    features: Floats,
    began: float,
) -> LoopConclusion:
    known = {c.id for c in current.classes}
    fresh = tuple(
        replace(d, confirmed=d.confirmed and _may_confirm(d.name, state))
        for d in update.discoveries
        if d.name not in known
    )
    detector, adapted = _adapted(current, state, features)
    if fresh:
        named = replace(update, discoveries=tuple(replace(d, name=names[d.name]) for d in fresh))
        detector = named.apply(detector, features, ids=[d.name for d in fresh], seed=state.seed)
    learnt = detector if fresh or adapted else None
    return LoopConclusion(
        outcome=update.outcome,
        discoveries=fresh,
        detector=learnt,
        gate_report=compare_versions(current, learnt) if learnt else None,
        rounds=len(update.rounds),
        above=update.rounds[-1].above if update.rounds else 0,
        missed=update.missed,
        seconds=time.perf_counter() - began,
        adapted=adapted,
        settled=tuple(s for s in adapted if looks_usual(detector, features[state.shifted[s]])),
    )


def _may_confirm(class_id: str, state: LoopInput) -> bool:
    """Whether enough people have named a class."""
    return state.confirmable is None or class_id in state.confirmable


def _adapted(
    current: Detector, state: LoopInput, features: Floats
) -> tuple[Detector, dict[str, tuple[AdaptedClass, ...]]]:
    """What people called known in a shifted source teaches its classes their new look."""
    position = {known.id: index for index, known in enumerate(current.classes)}
    detector = current
    learnt: dict[str, tuple[AdaptedClass, ...]] = {}
    for source, rows in state.shifted.items():
        said = {i: state.answers.get(int(row)) for i, row in enumerate(rows)}
        known = {i: position[name] for i, name in said.items() if name in position}
        if not known:
            continue
        new = tuple(i for i, name in said.items() if name is not None and name not in position)
        found = adapt(Sketch.of(detector), features[rows], known, new=new, seed=state.seed)
        if found.adapted:
            detector, learnt[source] = found.detector, found.adapted
    return detector, learnt
