"""What passes between the inner loop and a pseudo-labeller: answers, scores, steps and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.detector import Detector
from monitor.novelty.errors import InvalidAnswer


class PoolAnswers:
    """Answers by sample, sorted into known classes and new ones. Immutable.

    A new class is one whose name (or id) the detector does not have. ``None`` stands for a
    sample that nobody could tell: it is not asked again and teaches nothing.
    """

    asked: Ints
    """Every sample that was asked about, in order."""
    told: dict[int, str]
    """Samples with an answer that names a class."""
    known: dict[int, int]
    """Samples answered as known, and the position of their class."""
    new: dict[str, list[int]]
    """Samples of each new class, by its name; the names are sorted."""

    def __init__(self, known: Mapping[str, int], given: Mapping[int, str | None]) -> None:
        self._positions = known
        self._given = dict(given)
        self.asked = np.fromiter(given, dtype=np.intp, count=len(given))
        self.told = {i: name for i, name in given.items() if name is not None}
        self.known = {i: known[a] for i, a in self.told.items() if a in known}
        names = sorted({name for name in self.told.values() if name not in known})
        self.new = {n: [i for i, a in self.told.items() if a == n] for n in names}

    @classmethod
    def none(cls, detector: Detector) -> PoolAnswers:
        """Before the first answer; the detector says which classes are known."""
        known = {c.name: i for i, c in enumerate(detector.classes)}
        known |= {c.id: i for i, c in enumerate(detector.classes) if c.id not in known}
        return cls(known, {})

    def plus(self, samples: Iterable[int], answers: Sequence[str | None]) -> PoolAnswers:
        """With one more round of answers."""
        asked = [int(s) for s in samples]
        if len(asked) != len(answers):
            raise InvalidAnswer(f"{len(asked)} samples were asked about, {len(answers)} answered")
        cleaned = [a if a is None else a.strip() for a in answers]
        if "" in cleaned:
            raise InvalidAnswer("an answer is an empty name; use None for 'cannot tell'")
        return PoolAnswers(self._positions, self._given | dict(zip(asked, cleaned, strict=True)))


# A floor under FRE, as a share of T_inner: a sample that a tiny class reproduces exactly must
# not score infinity.
_FLOOR = 1e-6


class PoolScore(Protocol):
    """Higher is newer; above ``threshold`` a sample is called new."""

    @property
    def threshold(self) -> float:
        """T_inner of this score."""

    def __call__(self, features: Floats) -> np.ndarray:
        """The score of every row."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownOnly:
    """S⁰, the least FRE over known classes: all there is while nothing new has been named."""

    detector: Detector

    @property
    def threshold(self) -> float:
        """T_inner of S⁰."""
        return self.detector.fre_calibration.t_inner

    def __call__(self, features: Floats) -> np.ndarray:
        """S⁰ of every row."""
        return self.detector.s0(features)


def log_ratio(detector: Detector, known: np.ndarray, new: np.ndarray) -> np.ndarray:
    """log of the FRE to what is known over the FRE to what is new, both floored.

    ``known`` is in the units of the settings, ``new`` is squared, as a bank computes it.
    """
    floor = _FLOOR * max(detector.fre_calibration.t_inner, 1e-30)
    new = new if detector.settings.squared else np.sqrt(new)
    ratio: np.ndarray = np.log(np.maximum(known, floor)) - np.log(np.maximum(new, floor))
    return ratio


# That of the preset robust gives its pseudo-labels once, after the last answer.
AT_THE_END = -1


@dataclass(frozen=True, slots=True)
class PseudoLabel:
    """A sample that was given its class without asking, when, and how surely.

    ``round`` is the iteration that accepted it, or :data:`AT_THE_END`.
    """

    sample: int
    name: str
    confidence: float
    round: int


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One iteration: whom to ask, which class each is believed to have, and whether it ends."""

    ask: Ints
    suggestions: tuple[str | None, ...]
    above: int
    t_inner: float
    done: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LoopResult:
    """All pseudo-labels, and the score that the iterations arrived at.

    ``confirmed`` has the new names that rest on enough answers; None where all of them count.
    """

    score: PoolScore
    pseudo: tuple[PseudoLabel, ...] = field(default=())
    confirmed: frozenset[str] | None = None


class PseudoLabeller(Protocol):
    """Chooses questions and spreads their answers; knows nothing of people."""

    def plan(self, budget: int) -> list[int]:
        """How many questions each iteration may ask; 0 for one that only pseudo-labels."""

    def step(self, number: int, answers: PoolAnswers, count: int) -> Step:
        """Iteration ``number``, with ``count`` questions to spend at most."""

    def conclude(self, answers: PoolAnswers) -> LoopResult:
        """What the answers come to in the end."""
