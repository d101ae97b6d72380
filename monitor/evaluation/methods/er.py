"""ER and PseudoER: a perceptron that replays what it learnt, its uncertainty as novelty.

ER is David Rolnick, Arun Ahuja, Jonathan Schwarz, Timothy P. Lillicrap, Greg Wayne: "Experience
Replay for Continual Learning", NeurIPS 2019. Both are adapted to novelty detection by CONCLAD
(Rios, Ndiour, Datta, Tickoo and Ahuja, 2024, appendix 4.2.3), which adds the pseudo-labels of
PseudoER; what it leaves open is decided here.

Both ask a person about samples near T_inner and train on the answers together with a balanced
buffer; "known" answers are kept like any other. PseudoER also takes in, round by round, the
samples it is most confident belong to a new class.

Two scores of novelty, each a method of its own: the entropy of the prediction, as in the paper,
and the probability of the classes that are new in this task, which is the stronger one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from monitor.evaluation.methods.base import Ask, FloatArray, Observation, ScoreArray
from monitor.evaluation.methods.buffer import ReplayBuffer
from monitor.evaluation.methods.perceptron_head import Head, HeadSettings
from monitor.evaluation.methods.shared_by_baselines import hold_out, mean_plus_stds
from monitor.evaluation.protocol import IntArray, balanced_quotas

Novelty = Literal["entropy", "new"]

# The paper's sizes: 2,500 for EuroSAT and CIFAR-100, 5,000 for its larger sets. A set it does
# not name gets the smaller one, unless it is one of the larger.
SMALL_BUFFER, LARGE_BUFFER = 2500, 5000
LARGE_DATASETS = ("plants", "im21k", "imagenet21k")
# Keeps logarithms finite where a float64 softmax has rounded to zero.
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class ERSettings:
    """The numbers of ER. The split of the budget is the one CONCLAD has: half at once, the rest
    over five rounds; the share that is pseudo-labelled per round is its 20 percent.
    """

    novelty: Novelty = "entropy"
    pseudo_labels: bool = False
    capacity: int = SMALL_BUFFER
    first_share: float = 0.5
    later_rounds: int = 5
    pseudo_share: float = 0.2
    head: HeadSettings = field(default_factory=HeadSettings)


class ER:
    """Experience replay as a novelty detector.

    >>> rng = np.random.default_rng(0)
    >>> names = ["a"] * 40 + ["b"] * 40 + ["c"] * 40
    >>> x = rng.normal(scale=0.5, size=(120, 9)) + 3 * np.repeat(np.eye(9)[:3], 40, axis=0)
    >>> er = ER("er-pnew", ERSettings(novelty="new"))
    >>> er.start(x[:80].astype(np.float32), names[:80], seed=0)
    >>> er.observe(x.astype(np.float32), lambda asked: [names[i] for i in asked], budget=12).found
    ('c',)
    """

    def __init__(self, name: str, settings: ERSettings) -> None:
        self.name = name
        self._settings = settings
        self._rng: np.random.Generator
        self._head: Head
        self._buffer: ReplayBuffer
        self._validation: FloatArray
        self._known = 0
        self._threshold = 0.0
        self._gathered: tuple[FloatArray, tuple[str, ...]]

    def start(self, features: FloatArray, labels: Sequence[str], seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        fit, held = hold_out(labels, self._rng)
        names = [labels[i] for i in fit]
        self._validation = features[held] if len(held) else np.array(features)
        empty = ReplayBuffer.empty(features.shape[1], self._settings.capacity)
        self._buffer = empty.extended(features[fit], names, self._rng)
        self._head = Head(features[fit], sorted(set(labels)), self._settings.head, seed)
        # The first training has all the labelled samples; only later ones live off the buffer.
        self._head.train(features[fit], names, self._settings.head.first_steps)
        self._known = len(self._head.classes)

    def observe(self, pool: FloatArray, ask: Ask, budget: int) -> Observation:
        labelled: dict[int, str] = {}
        pseudo: dict[int, str] = {}
        rounds = 0
        for count in self._questions(budget):
            probabilities = self._head.probabilities(pool)
            scores = self._novelty(probabilities)
            self._place_threshold()
            if self._settings.pseudo_labels and self._new_classes:
                pseudo |= self._confident(probabilities, scores, {*labelled, *pseudo})
            free = np.setdiff1d(np.arange(len(pool)), [*labelled, *pseudo])
            asked = self._ambiguous(scores, free, count)
            labelled |= dict(zip(asked.tolist(), ask(asked), strict=True))
            self._learn(pool, {**pseudo, **labelled})
            rounds += 1
        self._place_threshold()
        return Observation(found=self._new_classes, pseudo=pseudo, iterations=rounds)

    def score(self, features: FloatArray) -> ScoreArray:
        return self._novelty(self._head.probabilities(features))

    def threshold(self) -> float | None:
        return self._threshold

    def update(self) -> None:
        features, names = self._gathered
        fit, held = hold_out(names, self._rng)
        self._validation = np.concatenate([self._validation, features[held]])
        self._buffer = self._buffer.extended(features[fit], [names[i] for i in fit], self._rng)
        self._known = len(self._head.classes)

    @property
    def _new_classes(self) -> tuple[str, ...]:
        return self._head.classes[self._known :]

    def _questions(self, budget: int) -> list[int]:
        """How many samples to ask about in each round."""
        first = max(1, round(self._settings.first_share * budget))
        rounds = self._settings.later_rounds
        later = balanced_quotas([budget] * rounds, budget - first)
        return [first, *later]

    def _novelty(self, probabilities: NDArray[np.float64]) -> ScoreArray:
        logs = np.log(np.maximum(probabilities, _TINY))
        if self._settings.novelty == "entropy" or not self._new_classes:
            entropy: ScoreArray = -(probabilities * logs).sum(axis=1)
            return entropy
        # Log-odds rather than the probability: the same order, but T_inner and the distance to
        # it mean something where most probabilities are within 1e-6 of zero or one.
        new = np.logaddexp.reduce(logs[:, self._known :], axis=1)
        old = np.logaddexp.reduce(logs[:, : self._known], axis=1)
        odds: ScoreArray = new - old
        return odds

    def _place_threshold(self) -> None:
        self._threshold = mean_plus_stds(self._novelty(self._head.probabilities(self._validation)))

    def _ambiguous(self, scores: ScoreArray, free: IntArray, count: int) -> IntArray:
        """The samples nearest to T_inner: the highest 1 / (S − T)²."""
        nearest = np.argsort(np.abs(scores[free] - self._threshold), kind="stable")
        return free[nearest[:count]]

    def _confident(
        self, probabilities: NDArray[np.float64], scores: ScoreArray, taken: set[int]
    ) -> dict[int, str]:
        """The surest fifth of what is called new, with the likeliest new class of each.

        By entropy a sample is surely new when a new class is predicted with little of it; a
        high entropy would name the samples about which the head knows least.
        """
        if self._settings.novelty == "entropy":
            called_new = probabilities.argmax(axis=1) >= self._known
            confidence = -scores
        else:
            called_new = scores > self._threshold
            confidence = scores
        candidates = np.setdiff1d(np.flatnonzero(called_new), list(taken))
        surest = candidates[np.argsort(-confidence[candidates], kind="stable")]
        chosen = surest[: int(np.ceil(self._settings.pseudo_share * len(candidates)))]
        likeliest = probabilities[chosen, self._known :].argmax(axis=1)
        names = self._new_classes
        return {int(i): names[m] for i, m in zip(chosen, likeliest, strict=True)}

    def _learn(self, pool: FloatArray, assigned: Mapping[int, str]) -> None:
        unknown = sorted(set(assigned.values()).difference(self._head.classes))
        if unknown:
            self._head.grow(unknown)
        rows = sorted(assigned)
        names = tuple(assigned[i] for i in rows)
        self._gathered = (pool[rows], names)
        self._head.train(
            np.concatenate([self._buffer.features, pool[rows]]),
            [*self._buffer.names.tolist(), *names],
            self._settings.head.round_steps,
        )


def er_method(name: str, dataset: str = "") -> ER:
    """ER by its registered name; the dataset decides the size of the buffer."""
    large = any(part in dataset.lower() for part in LARGE_DATASETS)
    return ER(
        name,
        ERSettings(
            novelty="new" if name.endswith("-pnew") else "entropy",
            pseudo_labels=name.startswith("pseudo"),
            capacity=LARGE_BUFFER if large else SMALL_BUFFER,
        ),
    )
