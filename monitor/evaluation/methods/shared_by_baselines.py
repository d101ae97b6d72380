"""What the baselines share: held-out validation, T_inner, and a bank of known subspaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.evaluation.methods.base import FloatArray, ScoreArray
from monitor.evaluation.protocol import IntArray
from monitor.novelty.subspace import Subspace, SubspaceBank

# The share of known samples kept from fitting to place T_inner (the paper's "0.1%" read as
# 10 percent, as in incDFM's configuration); the same for every baseline.
VALIDATION_SHARE = 0.1
# Standard deviations above the validation mean, the paper's one hyper-parameter of T_inner.
STDS_ABOVE_MEAN = 2.0
# What incDFM's authors and DFM keep of the variance.
VARIANCE = 0.995
# FRE of a sample that lies in the subspace is zero; a ratio needs something under it. Relative
# to the typical FRE, so that it means the same for features of any scale.
FRE_FLOOR = 1e-6
# And for features that do not vary at all, where the typical FRE itself is zero.
SMALLEST = float(np.finfo(np.float32).tiny)


def mean_plus_stds(scores: ScoreArray) -> float:
    """T_inner as the paper places it.

    >>> mean_plus_stds(np.array([1.0, 3.0]))
    4.0
    """
    return float(np.mean(scores) + STDS_ABOVE_MEAN * np.std(scores))


def hold_out(labels: Sequence[str], rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Indices to fit on and indices to validate on, a tenth of every class for the latter.

    A class of fewer than ten samples keeps all of them for fitting: it has none to spare.

    >>> fit, validate = hold_out(["a"] * 20 + ["b"] * 5, np.random.default_rng(0))
    >>> len(fit), len(validate)
    (23, 2)
    """
    names = np.asarray(labels, dtype=np.str_)
    held: list[IntArray] = [np.empty(0, dtype=np.int64)]
    for name in np.unique(names):
        members = np.flatnonzero(names == name)
        held.append(rng.permutation(members)[: int(VALIDATION_SHARE * len(members))])
    validation = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(names)), validation), validation


@dataclass(frozen=True, slots=True)
class KnownSubspaces:
    """Subspaces of what is known, and validation samples that none of them was fitted on.

    >>> x = np.random.default_rng(0).normal(size=(40, 4))
    >>> known = KnownSubspaces.of_classes(x, ["a", "b"] * 20, np.random.default_rng(0))
    >>> len(known.subspaces), known.validation.shape
    (2, (4, 4))
    """

    subspaces: tuple[Subspace, ...]
    bank: SubspaceBank
    validation: FloatArray

    @classmethod
    def of_classes(
        cls, features: FloatArray, labels: Sequence[str], rng: np.random.Generator
    ) -> KnownSubspaces:
        """One subspace per class of labelled samples."""
        fit, held = hold_out(labels, rng)
        names = np.asarray(labels, dtype=np.str_)
        subspaces = [
            Subspace.fit(features[fit[names[fit] == name]], variance=VARIANCE)
            for name in np.unique(names)
        ]
        # Without a single held-out sample there would be no T_inner at all; the fitted ones
        # place it too low, but somewhere.
        return cls._of(subspaces, features[held] if len(held) else np.array(features))

    def with_group(self, features: FloatArray, rng: np.random.Generator) -> KnownSubspaces:
        """Also the subspace of one group of samples, whatever classes they come from."""
        fit, held = hold_out(["new"] * len(features), rng)
        return self._of(
            (*self.subspaces, Subspace.fit(features[fit], variance=VARIANCE)),
            np.concatenate([self.validation, features[held]]),
        )

    def fre(self, features: FloatArray) -> FloatArray:
        """S⁰: the squared FRE to the nearest of the subspaces."""
        return self.bank.nearest(features)[1]

    @classmethod
    def _of(cls, subspaces: Iterable[Subspace], validation: FloatArray) -> KnownSubspaces:
        kept = tuple(subspaces)
        return cls(kept, SubspaceBank(kept), validation)
