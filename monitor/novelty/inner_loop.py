"""The inner loop: asks, receives answers, and returns what was discovered.

The frame is that of CONCLAD (Rios, Ndiour, Datta, Tickoo and Ahuja, 2024, section 2.2.2): ask, fit,
score, pseudo-label, again. What happens in a step is
:mod:`monitor.novelty.paper.linear_pseudo_labeller` or
:mod:`monitor.novelty.robust.graph_pseudo_labeller`, by the detector's preset.

It is a generator that knows nothing of the outside. It yields :class:`QuestionsToAsk`, is sent one
answer per sample, and goes on until the budget or the novelty is used up. Whoever drives it may
be a test with a label column or a monitor whose people answer next Tuesday; and since it is a
function of the detector, the pool, the budget, the seed and the answers, replaying recorded
answers leads to the same point.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.errors import InvalidBudget
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.pseudo_labeller import PoolAnswers, PoolScore, PseudoLabel, PseudoLabeller
from monitor.novelty.robust.robust_settings import RobustSettings

Outcome = Literal["quiet", "nothing new", "discovered"]


@dataclass(frozen=True, slots=True, eq=False)
class QuestionsToAsk:
    """Ask a person about these samples of the pool. ``suggestions`` are the loop's guesses."""

    round: int
    samples: Ints
    suggestions: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """What happened in one iteration, for the record."""

    number: int
    asked: tuple[int, ...]
    answers: tuple[str | None, ...]
    above: int
    t_inner: float


@dataclass(frozen=True, slots=True)
class Discovery:
    """A class nobody had seen: samples named by people, and samples that follow them."""

    name: str
    human: tuple[int, ...]
    pseudo: tuple[PseudoLabel, ...]
    confirmed: bool = True

    @property
    def samples(self) -> list[int]:
        """Named and pseudo-labelled ones."""
        return [*self.human, *(p.sample for p in self.pseudo)]


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """The end of an inner loop, with its full evidence.

    ``missed`` is the largest share of the pool that may be new although every answer said
    known (at 95% certainty, for questions spread like the pool): None once something is found.
    """

    outcome: Outcome
    discoveries: tuple[Discovery, ...]
    known: Mapping[int, int]
    rounds: tuple[Round, ...]
    missed: float | None
    score: PoolScore

    @property
    def labels(self) -> int:
        """Questions that were asked."""
        return sum(len(r.asked) for r in self.rounds)

    def apply(
        self, detector: Detector, pool: Floats, *, ids: Sequence[str] = (), seed: int = 0
    ) -> Detector:
        """The detector that knows the discoveries. Without ``ids``, they count on from the last."""
        rng = np.random.default_rng(seed)
        taken = [int(c.id[1:]) for c in detector.classes if c.id[1:].isdigit()]
        first = max(taken, default=0) + 1
        names = ids or [f"c{first + i}" for i in range(len(self.discoveries))]
        return detector.with_classes(
            [
                KnownClass.fit(
                    id,
                    d.name,
                    pool[d.samples],
                    settings=detector.settings,
                    rng=rng,
                    origin="discovered",
                    said=np.arange(len(d.samples)) < len(d.human),
                    confirmed=d.confirmed,
                )
                for id, d in zip(names, self.discoveries, strict=True)
            ]
        )


Loop = Generator[QuestionsToAsk, Sequence[str | None], Update]


def inner_loop(
    detector: Detector, pool: Floats, *, budget: int, seed: int = 0, probe: int = 0
) -> Loop:
    """Find the new classes of a pool within ``budget`` questions.

    With ``probe``, so many are asked where the pool looks newest, and the loop goes on only if
    an answer names something new.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 12)).astype("f")
    >>> known = np.concatenate([images(0, 60), images(9, 60)])
    >>> detector = Detector.fit(known, ["a"] * 60 + ["b"] * 60)
    >>> pool = np.concatenate([images(0, 40), images(-9, 40)])
    >>> update = drive(inner_loop(detector, pool, budget=6), lambda i: "a" if i < 40 else "ship")
    >>> [(d.name, update.labels <= 6) for d in update.discoveries]
    [('ship', True)]
    """
    features = detector.checked(pool, "pool")
    if budget < 1:
        raise InvalidBudget(f"a budget of {budget} labels asks nothing; give at least 1")
    if budget > len(features):
        raise InvalidBudget(f"a budget of {budget} labels for a pool of {len(features)} samples")
    labeller = _labeller(detector, features, seed)
    answers = PoolAnswers.none(detector)
    rounds: list[Round] = []
    quiet = False
    for number, count in enumerate(_plan(labeller, budget, probe)):
        if not count and not answers.new:
            break
        step = labeller.step(number, answers, min(count, budget - len(answers.asked)))
        given: Sequence[str | None] = ()
        if step.ask.size:
            given = yield QuestionsToAsk(number, step.ask, step.suggestions)
            answers = answers.plus(step.ask, given)
        asked = tuple(int(i) for i in step.ask)
        rounds.append(Round(number, asked, tuple(given), step.above, step.t_inner))
        if step.done or (probe and not answers.new):
            quiet = not answers.new
            break
    result = labeller.conclude(answers)
    discoveries = tuple(
        Discovery(
            name,
            tuple(rows),
            tuple(p for p in result.pseudo if p.name == name),
            confirmed=result.confirmed is None or name in result.confirmed,
        )
        for name, rows in answers.new.items()
    )
    outcome: Outcome = "discovered" if discoveries else "quiet" if quiet else "nothing new"
    certainty = detector.settings.missed_certainty
    missed = None if discoveries else _missed(len(answers.known), certainty)
    return Update(outcome, discoveries, answers.known, tuple(rounds), missed, result.score)


def spread(
    detector: Detector, pool: Floats, given: Mapping[int, str], *, seed: int = 0
) -> tuple[Discovery, ...]:
    """What follows from answers that nobody was asked for: people chose the samples themselves.

    Each new name becomes a discovery, with the samples that follow those that were named.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 12)).astype("f")
    >>> known = np.concatenate([images(0, 60), images(9, 60)])
    >>> detector = Detector.fit(known, ["a"] * 60 + ["b"] * 60)
    >>> pool = np.concatenate([images(0, 40), images(-9, 40)])
    >>> [found] = spread(detector, pool, {50: "ship", 60: "ship"})
    >>> found.name, found.human, len(found.pseudo) > 20
    ('ship', (50, 60), True)
    """
    features = detector.checked(pool, "pool")
    answers = PoolAnswers.none(detector).plus(given, list(given.values()))
    conclusion = _labeller(detector, features, seed).conclude(answers)
    return tuple(
        Discovery(name, tuple(rows), tuple(p for p in conclusion.pseudo if p.name == name))
        for name, rows in answers.new.items()
    )


def drive(loop: Loop, answer: Callable[[int], str | None]) -> Update:
    """Run a loop to its end with a function that answers for one sample at a time."""
    try:
        question = next(loop)
        while True:
            question = loop.send([answer(int(i)) for i in question.samples])
    except StopIteration as stop:
        update: Update = stop.value
        return update


def _labeller(detector: Detector, pool: Floats, seed: int) -> PseudoLabeller:
    rng = np.random.default_rng(seed)
    if isinstance(detector.settings, PaperSettings):
        from monitor.novelty.paper.linear_pseudo_labeller import LinearPseudoLabeller

        return LinearPseudoLabeller(detector, pool, detector.settings, rng)
    from monitor.novelty.robust.graph_pseudo_labeller import GraphPseudoLabeller

    assert isinstance(detector.settings, RobustSettings)
    return GraphPseudoLabeller.of(detector, pool, detector.settings, rng)


def _plan(labeller: PseudoLabeller, budget: int, probe: int) -> list[int]:
    """How many questions each round may ask; those of a probe come before all others."""
    first = min(probe, budget)
    rest = labeller.plan(budget - first) if budget > first else []
    return [first, *rest] if first else rest


def _missed(known: int, certainty: float) -> float | None:
    """The share f with (1 − f)^known = 1 − certainty: more would have shown itself."""
    return float(1 - (1 - certainty) ** (1 / known)) if known else None
