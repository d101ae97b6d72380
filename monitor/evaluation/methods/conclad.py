"""CONCLAD itself under evaluation: the presets, their ablations, and the ceiling.

Amanda Rios, Ibrahima Ndiour, Parual Datta, Omesh Tickoo, Nilesh Ahuja: "CONCLAD: COntinuous Novel
CLAss Detector", 2024 (arXiv:2412.10473). See :mod:`monitor.novelty`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monitor.evaluation.methods.ablations import ABLATIONS
from monitor.evaluation.methods.base import Ask, FloatArray, Method, Observation, ScoreArray
from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import Update, inner_loop
from monitor.novelty.presets import preset_settings

# The smallest class that an evaluation may start from: smaller than what users are allowed,
# since a benchmark does not page anybody at night.
_LEAST = 4


class Conclad:
    """One detector carried through all tasks of a seed."""

    def __init__(self, name: str, settings: MethodSettings) -> None:
        self.name = name
        self._settings = settings.replace(least=_LEAST)

    def start(self, features: FloatArray, labels: Sequence[str], seed: int) -> None:
        self._seed = seed
        self._detector = Detector.fit(features, labels, settings=self._settings, seed=seed)

    def observe(self, pool: FloatArray, ask: Ask, budget: int) -> Observation:
        self._pool = pool
        loop = inner_loop(self._detector, pool, budget=budget, seed=self._seed)
        self._update = _driven(loop, ask)
        return Observation(
            found=tuple(d.name for d in self._update.discoveries),
            pseudo={p.sample: p.name for d in self._update.discoveries for p in d.pseudo},
            iterations=len(self._update.rounds),
            evidence={"outcome": self._update.outcome, "missed": self._update.missed},
        )

    def score(self, features: FloatArray) -> ScoreArray:
        return self._update.score(features)

    def threshold(self) -> float | None:
        return self._update.score.threshold

    def update(self) -> None:
        self._detector = self._update.apply(self._detector, self._pool, seed=self._seed)


class Ceiling(Conclad):
    """The same score and the same update, given the true label of every sample of the pool."""

    def __init__(self, name: str, settings: MethodSettings) -> None:
        super().__init__(name, settings.replace(one_shot=True))

    def observe(self, pool: FloatArray, ask: Ask, budget: int) -> Observation:
        return super().observe(pool, ask, len(pool))


def conclad_method(name: str) -> Method:
    """The method of this name: a preset, a preset with an ablation, or ``ceiling``."""
    if name == "ceiling":
        return Ceiling(name, preset_settings("robust"))
    preset, _, ablation = name.partition("-")
    changes = ABLATIONS[preset][ablation][1] if ablation else {}
    return Conclad(name, preset_settings(preset).replace(**changes))


def _driven(loop: Any, ask: Ask) -> Update:
    """Ask a whole round at a time, as the oracle of the evaluation counts them."""
    try:
        question = next(loop)
        while True:
            answers = ask(np.asarray(question.samples, dtype=np.int64))
            question = loop.send(answers)
    except StopIteration as stop:
        update: Update = stop.value
        return update
