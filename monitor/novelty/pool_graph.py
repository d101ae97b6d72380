"""The pool as a graph of neighbours, over which answers spread to similar samples.

Self-training a classifier on a handful of answers overfits them; their neighbourhoods do not.
Pool and held-out known samples become nodes of one graph, in a space in which differences
within classes count little and differences between classes much; answers and held-out labels
then flow along its edges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.common_settings import GraphSettings
from monitor.novelty.subspace import principal

# Rows of the similarity matrix at a time: 512 rows against 10,000 nodes are 20 MiB.
_ROWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True, eq=False)
class PoolSpace:
    """A linear map to the few directions in which a pool's classes differ."""

    matrix: Floats
    offset: Floats

    @classmethod
    def of(cls, pool: Floats, reserve: Floats, classes: Ints, settings: GraphSettings) -> PoolSpace:
        """Whiten by the spread within known classes, then keep the pool's main directions."""
        means = np.stack([reserve[classes == i].mean(axis=0) for i in np.unique(classes)])
        spread = np.unique(classes, return_inverse=True)[1]
        within = (reserve - means[spread]).astype(np.float32)
        directions, energies, total = principal(within, np.zeros(within.shape[1]))
        # Held-out samples that are all alike have no spread to whiten by: leave space as it is.
        base = settings.whitening * (total or 1.0) / pool.shape[1]
        rest = 1 / np.sqrt(base)
        gains = 1 / np.sqrt((1 - settings.whitening) * energies + base) - rest
        directions = directions.astype(np.float32)
        gains, rest = gains.astype(np.float32), np.float32(rest)
        centre = pool.mean(axis=0, dtype=np.float64)
        centred = (pool - centre).astype(np.float32)
        stretched = rest * centred + ((centred @ directions.T) * gains) @ directions
        rank = min(settings.principal, *pool.shape)
        _, _, main = randomized_svd(stretched, rank, n_iter=2, random_state=0)
        matrix = rest * main.T + directions.T @ (gains[:, None] * (directions @ main.T))
        scale = float((centred @ matrix).std()) or 1.0
        return cls((matrix / scale).astype(np.float32), centre.astype(np.float32))

    def place(self, features: Floats) -> Floats:
        """Where these lie in the space."""
        return ((features - self.offset) @ self.matrix).astype(np.float32, copy=False)


@dataclass(frozen=True, eq=False)
class PoolGraph:
    """Neighbours of every node, and what flows along them."""

    weights: sparse.csr_matrix
    _reach: dict[int, sparse.csr_matrix] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, points: Floats, settings: GraphSettings) -> PoolGraph:
        """Each point joined to its nearest ones by cosine similarity, both ways."""
        n = len(points)
        k = min(settings.neighbours, n - 1)
        unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
        columns = np.empty((n, k), dtype=np.intp)
        values = np.empty((n, k), dtype=np.float32)
        for start in range(0, n, _ROWS_AT_ONCE):
            near = unit[start : start + _ROWS_AT_ONCE] @ unit.T
            rows = np.arange(len(near))
            near[rows, start + rows] = -np.inf
            best = np.argpartition(-near, k - 1, axis=1)[:, :k]
            columns[start : start + len(near)] = best
            values[start : start + len(near)] = np.take_along_axis(near, best, axis=1)
        edges = np.clip(values, 1e-6, None).ravel() ** settings.sharpness
        joined = sparse.csr_matrix(
            (edges, (np.repeat(np.arange(n), k), columns.ravel())), shape=(n, n)
        )
        return cls((joined + joined.T).tocsr())

    def smoothed(self, values: np.ndarray, weight: float, steps: int) -> np.ndarray:
        """Each value, or row of values, drawn towards those of its neighbourhood."""
        walk = self._walk.astype(values.dtype)
        result = values
        for _ in range(steps):
            result = (1 - weight) * values + weight * (walk @ result)
        return result

    def peaks(self, weights: np.ndarray, count: int, *, asked: Ints, dimming: float) -> Ints:
        """Samples where most weight lies together, each in a region of its own.

        ``weights`` covers the first nodes. The heaviest neighbourhood is picked, then dimmed
        together with what lies around it, so that the next pick is elsewhere; ``asked`` samples
        have dimmed theirs already. Unlike clusters, which divide all of a pool evenly, peaks
        find a class that is a fiftieth of it.
        """
        n = len(weights)
        reach = self._within_three(n)
        dimmed = np.zeros(n)

        def dim(sample: int) -> None:
            row = slice(reach.indptr[sample], reach.indptr[sample + 1])
            dimmed[reach.indices[row]] += dimming * reach.data[row]

        for sample in asked:
            dim(int(sample))
        taken = np.zeros(n, dtype=bool)
        taken[asked] = True
        picked: list[int] = []
        while len(picked) < count and not taken.all():
            light = weights * np.exp(-dimmed)
            light = np.where(taken, -np.inf, light + reach @ light)
            best = int(light.argmax())
            picked.append(best)
            taken[best] = True
            dim(best)
        return np.array(picked, dtype=np.intp)

    def _within_three(self, n: int) -> sparse.csr_matrix:
        """What lies three steps or less away, among the first nodes."""
        if n not in self._reach:
            near = self._walk[:n, :n]
            twice = near @ near
            self._reach[n] = (near + twice + twice @ near).tocsr()
        return self._reach[n]

    @cached_property
    def _walk(self) -> sparse.csr_matrix:
        """Edge weights that sum to one over each node's neighbours."""
        degree = np.asarray(self.weights.sum(axis=1)).ravel()
        return (sparse.diags(1 / np.maximum(degree, 1e-12)) @ self.weights).tocsr()

    def propagated(
        self, nodes: Ints, classes: Ints, count: int, settings: GraphSettings
    ) -> np.ndarray:
        """Share of each class in each node, from the labelled nodes; rows sum to one.

        Every class starts with the same mass however many labels it has, or the classes with
        many held-out samples would flood the new ones, which have a handful.
        """
        degree = np.maximum(np.asarray(self.weights.sum(axis=1)).ravel(), 1e-12)
        root = sparse.diags(degree**-0.5)
        spread = (root @ self.weights @ root).astype(np.float32)
        seeds = np.zeros((self.weights.shape[0], count), dtype=np.float32)
        seeds[nodes, classes] = 1
        seeds /= np.maximum(seeds.sum(axis=0), 1)
        mass = seeds
        moved = settings.propagation
        for _ in range(settings.propagation_steps):
            mass = moved * (spread @ mass) + (1 - moved) * seeds
        mass = mass + np.finfo(np.float32).tiny
        shares: np.ndarray = mass / mass.sum(axis=1, keepdims=True)
        shares[nodes] = 0
        shares[nodes, classes] = 1
        return shares
