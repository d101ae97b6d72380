"""A labelled dataset as a feed: labelled images, then clean pools, then pools with new classes.

What a seed draws first (the classes, the labelled images) is the same for all shares, so that
shares are compared on the same detectors; the pools of each share are its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from monitor.evaluation.labelled_features import LabelledFeatures
from monitor.evaluation.live_plan import LivePlan

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]
Names = NDArray[np.str_]

# How uneven the mixture of known classes is that a source shows: 1 makes every mixture equally
# likely, so that most sources have a class that they hardly ever show.
_HABIT = 1.0
# Shares differ in the sixth decimal at the least.
_DECIMALS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class LivePool:
    """Images as they arrive: features, true names, and the source of each."""

    features: Floats
    labels: Names
    sources: NDArray[np.object_]
    clean: bool


@dataclass(eq=False)
class LiveFeed:
    """One feed. :meth:`pools` draws it; afterwards ``reused`` says whether images came twice."""

    plan: LivePlan
    share: float
    known: tuple[str, ...]
    new: tuple[str, ...]
    features: Floats
    labels: Names
    labelled: Ints
    rng: np.random.Generator
    _left: dict[str, _Left] = field(default_factory=dict)

    @classmethod
    def of(cls, data: LabelledFeatures, plan: LivePlan, seed: int, share: float) -> LiveFeed:
        may_be_known, may_be_new = plan.classes_of(data.labels, data.dataset)
        rng = np.random.default_rng([seed, 0])
        known = tuple(str(c) for c in rng.permutation(may_be_known)[: plan.known])
        rest = [name for name in may_be_new if name not in known]
        new = tuple(str(c) for c in rng.permutation(rest)[: plan.new])
        labels = np.asarray(data.labels, dtype=np.str_)
        rows = {name: rng.permutation(np.flatnonzero(labels == name)) for name in (*known, *new)}
        labelled = np.concatenate([rows[name][: plan.labelled] for name in known])
        pools = np.random.default_rng([seed, 1, round(share * _DECIMALS)])
        left = {name: _Left(rows[name][plan.labelled :], pools) for name in known}
        left |= {name: _Left(rows[name], pools) for name in new}
        return cls(plan, share, known, new, data.features, labels, labelled, pools, left)

    @property
    def reused(self) -> bool:
        return any(left.reused for left in self._left.values())

    @property
    def names(self) -> list[str]:
        """The labels of the labelled images."""
        return [str(name) for name in self.labels[self.labelled]]

    def pools(self) -> Iterator[LivePool]:
        """The clean pools, then the others; with a share of zero all are clean."""
        # With one source no class is rarer than another.
        habits = np.full((self.plan.sources, len(self.known)), 1 / len(self.known))
        if self.plan.sources > 1:
            habits = self.rng.dirichlet(np.full(len(self.known), _HABIT), self.plan.sources)
        new = self.plan.new_images(self.share)
        for number in range(self.plan.clean + self.plan.pools):
            yield self._pool(habits, new if number >= self.plan.clean else 0)

    def _pool(self, habits: NDArray[np.float64], new: int) -> LivePool:
        rows: list[Ints] = []
        sources: list[NDArray[np.object_]] = []
        fresh = self._of_new(new)
        # New images come from all sources alike.
        for source, (mixture, mine) in enumerate(
            zip(habits, np.array_split(fresh, len(habits)), strict=True)
        ):
            size = len(np.array_split(np.arange(self.plan.pool), len(habits))[source])
            counts = self.rng.multinomial(max(size - len(mine), 0), mixture)
            rows += [self._left[n].take(int(k)) for n, k in zip(self.known, counts, strict=True)]
            rows.append(mine)
            taken = int(counts.sum()) + len(mine)
            sources.append(np.full(taken, f"source-{source + 1}", dtype=object))
        order = self.rng.permutation(sum(map(len, rows)))
        chosen = np.concatenate(rows)[order]
        return LivePool(
            features=self.features[chosen],
            labels=self.labels[chosen],
            sources=np.concatenate(sources)[order],
            clean=not new,
        )

    def _of_new(self, count: int) -> Ints:
        """Rows of the new classes, as evenly as ``count`` allows, mixed."""
        shares = [len(part) for part in np.array_split(np.arange(count), len(self.new))]
        order = self.rng.permutation(len(self.new))
        rows = [self._left[self.new[i]].take(shares[k]) for k, i in enumerate(order)]
        mixed: Ints = self.rng.permutation(np.concatenate(rows)).astype(np.intp)
        return mixed


class _Left:
    """Images of a class that have not been shown yet; when they run out, all are shown again."""

    def __init__(self, rows: Ints, rng: np.random.Generator) -> None:
        self._rows, self._rng = rows, rng
        self._left = rng.permutation(rows)
        self.reused = False

    def take(self, count: int) -> Ints:
        taken = self._left[:count]
        self._left = self._left[count:]
        while len(taken) < count:
            self.reused = True
            again = self._rng.permutation(self._rows)
            more = count - len(taken)
            taken, self._left = np.concatenate([taken, again[:more]]), again[more:]
        return taken
