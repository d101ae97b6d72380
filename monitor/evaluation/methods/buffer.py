"""A replay buffer of fixed size that keeps its classes balanced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.evaluation.methods.base import FloatArray
from monitor.evaluation.protocol import balanced_quotas


@dataclass(frozen=True, slots=True)
class ReplayBuffer:
    """Features and class names of what is replayed, immutable.

    When it overflows, classes give up samples until all are of one size, so small classes keep
    everything they have.

    >>> buffer = ReplayBuffer.empty(width=2, capacity=4)
    >>> rng = np.random.default_rng(0)
    >>> full = buffer.extended(np.zeros((7, 2), np.float32), ["a"] * 6 + ["b"], rng)
    >>> sorted(full.names.tolist())
    ['a', 'a', 'a', 'b']
    """

    features: FloatArray
    names: NDArray[np.str_]
    capacity: int

    @classmethod
    def empty(cls, width: int, capacity: int) -> ReplayBuffer:
        return cls(np.empty((0, width), np.float32), np.empty(0, np.str_), capacity)

    def extended(
        self, features: FloatArray, names: Sequence[str], rng: np.random.Generator
    ) -> ReplayBuffer:
        """With these samples added, and whatever then has to go taken out at random."""
        every = np.concatenate([self.features, features])
        labels = np.concatenate([self.names, np.asarray(names, dtype=np.str_)])
        members = [np.flatnonzero(labels == name) for name in np.unique(labels)]
        quotas = balanced_quotas([len(m) for m in members], self.capacity)
        kept = np.sort(
            np.concatenate(
                [rng.permutation(m)[:quota] for m, quota in zip(members, quotas, strict=True)]
            )
        )
        return ReplayBuffer(every[kept], labels[kept], self.capacity)
