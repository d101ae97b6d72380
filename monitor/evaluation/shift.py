"""Drift against novelty, measured: what is called new, what shifted, and how soon.

For every corruption and severity, a detector of a few classes meets

- pools of known, shifted known and new samples, in which the inner loop looks for what is new:
  does it call the shifted ones new?
- a feed that is quiet, then shifted: how many pools until drift is told, beside naive detectors,
  and does anything of it seem new or become a class? (:mod:`~.shift_feeds`)
- feeds that stay clean for a year or bring a new class instead: is drift told although there is
  none?
- the shift again, judged as shifted from its second pool on, and after it was learnt: is it still
  called new, and is a new class still found?

New samples are shifted like the rest of their source. With clean ones beside shifted known ones,
"is it shifted?" would already answer "is it known?".
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf

from monitor.evaluation.errors import ShiftError
from monitor.evaluation.protocol import labels_for
from monitor.evaluation.shift_data import ShiftedFeatures
from monitor.evaluation.shift_feeds import Record, watched, watched_without_shift
from monitor.novelty.class_separation import auroc
from monitor.novelty.detector import Detector
from monitor.novelty.drift.adaptation import adapt
from monitor.novelty.drift.shift_correction import correction_of, score_corrected
from monitor.novelty.drift.source_drift import Sketch
from monitor.novelty.inner_loop import drive, inner_loop

Floats = NDArray[np.float32]

# Share of the shifted samples that a shift is learnt from; the rest is judged.
_POOL_SHARE = 0.6
# Answers that people give about a shift before it is learnt.
_ADAPT_ANSWERS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftPlan:
    """What is measured. ``shares`` are the shares of new samples in pools of the first kind."""

    known: int = 4
    new: int = 2
    budgets: tuple[float, ...] = (0.05, 0.0125)
    shares: tuple[float, ...] = (1 / 3,)
    fit: int = 400  # images that each known class is fitted on, at most
    pool: int = 200  # images in a pool of the watched feed
    feeds: int = 34  # feeds without shift, and as many with something new; 0: no watch
    days: float = 365.0  # for how long a clean feed is watched
    clean_new: bool = False  # new samples as they are, while known ones are shifted


class ShiftWorld:
    """One draw of known and new classes from a clean dataset, and its detector."""

    def __init__(
        self, clean: ShiftedFeatures, drawn: NDArray[np.intp], plan: ShiftPlan, seed: int
    ) -> None:
        self.rng = np.random.default_rng(seed)
        classes = self.rng.permutation(np.unique(clean.labels))
        if plan.known + plan.new > len(classes):
            raise ShiftError(
                f"{plan.known} known and {plan.new} new classes were asked for, but the data has "
                f"{len(classes)}; lower --initial or --increment"
            )
        self.plan, self.seed = plan, seed
        self.known = [str(c) for c in classes[: plan.known]]
        self.fresh = [str(c) for c in classes[plan.known : plan.known + plan.new]]
        free = np.setdiff1d(np.arange(len(clean.labels)), drawn)
        fit, rest = [], []
        for name in self.known:
            rows = self.rng.permutation(free[clean.labels[free] == name])
            most = min(plan.fit, len(rows) // 2)
            fit.append(rows[:most])
            rest.append(rows[most:])
        fitted = np.concatenate(fit)
        self.detector = Detector.fit(
            clean.features[fitted], [str(n) for n in clean.labels[fitted]], seed=seed
        )
        self.sketch = Sketch.of(self.detector)
        old = np.concatenate(rest)
        self.old = ShiftedFeatures(clean.features[old], clean.labels[old])
        novel = free[np.isin(clean.labels[free], self.fresh)]
        self.new = ShiftedFeatures(clean.features[novel], clean.labels[novel])

    def begin(self, corruption: str, severity: int) -> None:
        """Draw as for this corruption, whatever was measured before: runs may be resumed."""
        self.rng = np.random.default_rng([self.seed, severity, zlib.crc32(corruption.encode())])

    def shifted(self, seen: ShiftedFeatures) -> ShiftedFeatures:
        rows = np.isin(seen.labels, self.known)
        return ShiftedFeatures(seen.features[rows], seen.labels[rows])

    def new_through(self, seen: ShiftedFeatures | None) -> ShiftedFeatures:
        """The new samples as the source shows them."""
        if seen is None or self.plan.clean_new:
            return self.new
        rows = np.isin(seen.labels, self.fresh)
        return ShiftedFeatures(seen.features[rows], seen.labels[rows])

    def take(self, seen: ShiftedFeatures, count: int, *, replace: bool = False) -> ShiftedFeatures:
        if not replace:
            count = min(count, len(seen.labels))
        rows = self.rng.choice(len(seen.labels), count, replace=replace)
        return ShiftedFeatures(seen.features[rows], seen.labels[rows])


def measure(
    world: ShiftWorld, seen: ShiftedFeatures | None, tags: Mapping[str, Any]
) -> list[Record]:
    """Every record of one corruption at one severity; without one, of the clean feed."""
    world.begin(tags["corruption"], tags["severity"])
    shifted = None if seen is None else world.shifted(seen)
    new = world.new_through(seen)
    records = [_mixed(world, shifted, new, share, b) for share, b in _settings(world.plan)]
    if shifted is not None:
        records.append(_judged(world, shifted, new))
    if world.plan.feeds:
        records += watched_without_shift(world) if shifted is None else [watched(world, shifted)]
    return [{**tags, **r} for r in records]


def _settings(plan: ShiftPlan) -> list[tuple[float, float]]:
    return [(share, budget) for share in plan.shares for budget in plan.budgets]


def _mixed(
    world: ShiftWorld,
    shifted: ShiftedFeatures | None,
    new: ShiftedFeatures,
    share: float,
    budget: float,
) -> Record:
    """One pool in which the inner loop looks for what is new, then scores what it has not seen."""
    most = 2 * world.plan.pool
    each = min(
        most, len(world.old.labels) // 4, *([] if shifted is None else [len(shifted.labels) // 2])
    )
    fresh = min(int(2 * each * share / (1 - share)), len(new.labels) // 2)
    old = world.take(world.old, 4 * each)
    # Without a shift, known samples of the same kind take the place of the shifted ones.
    first, second = old.part(0, 2 * each), old.part(2 * each, 4 * each)
    dirty = second if shifted is None else world.take(shifted, 2 * each)
    kinds = (first, dirty, world.take(new, 2 * fresh))
    pools = [kind.part(0, len(kind.labels) // 2) for kind in kinds]
    rest = [kind.part(len(kind.labels) // 2, len(kind.labels)) for kind in kinds]
    tests = [kind.features for kind in rest]
    pool = np.concatenate([p.features for p in pools])
    truth = np.concatenate([p.labels for p in pools])
    update = drive(
        inner_loop(world.detector, pool, budget=labels_for(budget, len(pool)), seed=world.seed),
        lambda i: str(truth[i]),
    )
    found = [d.name for d in update.discoveries]
    record: Record = {
        "kind": "pool",
        "share": share,
        "budget": budget,
        "labels": update.labels,
        "found": len(set(found) & set(world.fresh)),
        "present": len(world.fresh) if fresh else 0,
        "false_classes": len(set(found) - set(world.fresh)),
    }
    if not fresh:
        return record
    record["new_shifted_every_label"] = _with_every_label(pools[1:], rest[1:])
    for name, score in (("ours", update.score), ("s0", world.detector.s0)):
        of_clean, of_dirty, of_new = (np.asarray(score(test)) for test in tests)
        record[f"new_clean_{name}"] = auroc(of_new, of_clean)
        record[f"new_shifted_{name}"] = auroc(of_new, of_dirty)
    return record


def _with_every_label(pools: Sequence[ShiftedFeatures], tests: Sequence[ShiftedFeatures]) -> float:
    """AUROC of a linear discriminant that was given every label: what the features allow.

    Both have the known samples of the shifted source first, then its new ones.
    """
    features = np.concatenate([part.features for part in pools]).astype(np.float64)
    classes, index = np.unique(np.concatenate([part.labels for part in pools]), return_inverse=True)
    means = np.stack([features[index == i].mean(axis=0) for i in range(len(classes))])
    covariance, _ = ledoit_wolf(features - means[index], assume_centered=True)
    weights = np.linalg.solve(covariance, means.T)
    bias = -0.5 * np.einsum("ij,ji->i", means, weights)
    is_new = np.isin(classes, pools[-1].labels)

    def odds(test: Floats) -> NDArray[np.float64]:
        values = test @ weights + bias
        found: NDArray[np.float64] = values[:, is_new].max(axis=1) - values[:, ~is_new].max(axis=1)
        return found

    known, new = (odds(test.features) for test in tests)
    return auroc(new, known)


def _judged(world: ShiftWorld, shifted: ShiftedFeatures, new: ShiftedFeatures) -> Record:
    """False-novel rates on the shift, and recall of new samples.

    As they are, with the shift that one pool showed corrected, and after learning it.
    """
    order = np.random.default_rng(world.seed).permutation(len(shifted.labels))
    cut = int(_POOL_SHARE * len(order))
    pool, rest = order[:cut], order[cut:]
    names = [known.name for known in world.detector.classes]
    answers = {i: names.index(str(shifted.labels[pool[i]])) for i in range(_ADAPT_ANSWERS)}
    found = adapt(world.sketch, shifted.features[pool], answers, seed=world.seed)

    def rate(detector: Detector, features: Floats) -> float:
        return float(detector.score(features).novel.mean())

    before, after = world.detector, found.detector
    first = shifted.features[pool[: world.plan.pool]]
    correction = correction_of(world.sketch, first, strength=0.0)

    def corrected(features: Floats) -> float:
        scores, _ = score_corrected(before, features, [correction] * len(features))
        return float(scores.novel.mean())

    return {
        "kind": "adapt",
        "calibrated": after.calibration.exceedance,
        "calibrated_before": before.calibration.exceedance,
        "false_novel_before": rate(before, shifted.features[rest]),
        "false_novel_after": rate(after, shifted.features[rest]),
        "false_novel_corrected": corrected(shifted.features[rest]),
        "recall_before": rate(before, new.features),
        "recall_corrected": corrected(new.features),
        "recall_after": rate(after, new.features),
        "adapted": len(found.adapted),
        "distance": max((c.distance for c in found.adapted), default=0.0),
    }
