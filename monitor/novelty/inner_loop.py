"""The inner loop: asks, receives answers, and returns what was discovered.

It is a generator that knows nothing of the outside. It yields a :class:`Question`, is sent one
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

from monitor.novelty.answers import Answers
from monitor.novelty.arrays import Floats, Ints, as_features
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.errors import InvalidBudget
from monitor.novelty.pool_score import PoolScore
from monitor.novelty.rounds import Labeller, PseudoLabel
from monitor.novelty.settings import Settings

Outcome = Literal["quiet", "nothing new", "discovered"]

# With which certainty the share that may have been missed is bounded.
_CERTAINTY = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Question:
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

    @property
    def samples(self) -> list[int]:
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
                    human=len(d.human),
                    pseudo=len(d.pseudo),
                )
                for id, d in zip(names, self.discoveries, strict=True)
            ]
        )


Loop = Generator[Question, Sequence[str | None], Update]


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
    features = as_features(pool, dimension=detector.dimension, what="pool")
    if budget < 1:
        raise InvalidBudget(f"a budget of {budget} labels asks nothing; give at least 1")
    if budget > len(features):
        raise InvalidBudget(f"a budget of {budget} labels for a pool of {len(features)} samples")
    settings = detector.settings
    labeller = _labeller(detector, features, seed)
    answers = Answers.none(detector)
    rounds: list[Round] = []
    shares = _spending(budget, settings, probe)
    quiet = False
    for number in range(1 + max(settings.iterations, len(shares) - 1)):
        left = budget - len(answers)
        count = min(shares[number], left) if number < len(shares) else 0
        if number >= len(shares) and not answers.new_names:
            break
        step = labeller.step(number, answers, count)
        given: Sequence[str | None] = ()
        if step.ask.size:
            guesses = tuple(labeller.suggestion(int(i)) for i in step.ask)
            given = yield Question(number, step.ask, guesses)
            answers = answers.plus(step.ask, given)
        asked = tuple(int(i) for i in step.ask)
        rounds.append(Round(number, asked, tuple(given), step.above, step.t_inner))
        if step.done or (probe and not answers.new_names):
            quiet = not answers.new_names
            break
    conclusion = labeller.conclude(answers)
    discoveries = tuple(
        Discovery(name, tuple(rows), tuple(p for p in conclusion.pseudo if p.name == name))
        for name, rows in answers.new().items()
    )
    outcome: Outcome = "discovered" if discoveries else "quiet" if quiet else "nothing new"
    missed = None if discoveries else _missed(len(answers.known()))
    return Update(outcome, discoveries, answers.known(), tuple(rounds), missed, conclusion.score)


def drive(loop: Loop, answer: Callable[[int], str | None]) -> Update:
    """Run a loop to its end with a function that answers for one sample at a time."""
    try:
        question = next(loop)
        while True:
            question = loop.send([answer(int(i)) for i in question.samples])
    except StopIteration as stop:
        update: Update = stop.value
        return update


def _labeller(detector: Detector, pool: Floats, seed: int) -> Labeller:
    rng = np.random.default_rng(seed)
    if detector.settings.labeller == "linear":
        from monitor.novelty.linear_labeller import LinearLabeller

        return LinearLabeller(detector, pool, rng)
    from monitor.novelty.graph_labeller import GraphLabeller

    return GraphLabeller(detector, pool, rng)


def _spending(budget: int, settings: Settings, probe: int = 0) -> list[int]:
    """How many questions each round may ask; a probe comes before all others.

    The share meant for finding classes comes in three parts: a third, or what is enough to call
    a pool quiet, so that one with nothing new stays cheap; up to a half; and the other half.
    The rest follows evenly.

    >>> _spending(15, Settings()), _spending(40, Settings())
    ([5, 3, 7], [8, 12, 20])
    >>> _spending(40, Settings(first_share=0.5, rounds=4, one_shot=True))
    [20, 5, 5, 5, 5]
    >>> _spending(15, Settings(), probe=3)
    [3, 4, 2, 6]
    """
    if probe:
        first = min(probe, budget)
        return [first, *_spending(budget - first, settings)] if budget > first else [first]
    first = max(1, int(np.ceil(settings.first_share * budget)))
    parts = [first]
    if not settings.one_shot:
        third, half = int(np.ceil(first / 3)), int(np.ceil(first / 2))
        begin = min(third, settings.quiet_labels)
        parts = [begin, half - begin, first - half]
    rest = budget - first
    parts += [len(p) for p in np.array_split(np.arange(rest), settings.rounds)] if rest else []
    return [p for p in parts if p]


def _missed(known: int) -> float | None:
    """The share f with (1 − f)^known = 5%: more than that would have shown itself."""
    return float(1 - (1 - _CERTAINTY) ** (1 / known)) if known else None
