"""What ``evaluate --live`` plays: how many classes, images, pools and sources a feed has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from monitor.evaluation.errors import (
    ClassTooSmallError,
    IncompletePlanError,
    NotEnoughClassesError,
    ShareError,
)
from monitor.evaluation.plans import FIVE_SEEDS
from monitor.novelty.common_settings import MethodSettings

# A known class keeps at least so many images for the pools, and a new class has so many: with
# fewer a pool would mostly show the same images again.
LEAST_LEFT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePlan:
    """Feeds to play, one for each dataset, seed, share and budget.

    Each begins with ``clean`` pools of known classes; then come ``pools`` of which ``share`` is
    new. A pool takes a day, so that questions a week and rounds a month have a meaning. A budget
    is the share of a pool that may be asked about; None is the default of the monitor.

    >>> LivePlan(pool=300).new_images(0.05), LivePlan(pool=300).new_images(0)
    (15, 0)
    """

    known: int = 3
    new: int = 1
    labelled: int = 100
    pool: int = 300
    pools: int = 10
    shares: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.33)
    seeds: tuple[int, ...] = FIVE_SEEDS
    budgets: tuple[float | None, ...] = (None,)
    clean: int = 5
    sources: int = 1
    trickle: int = 21
    false_rounds: float = 1.0

    def with_changes(self, **changes: Any) -> LivePlan:
        """The plan with every change that is not None."""
        return replace(self, **{key: value for key, value in changes.items() if value is not None})

    def new_images(self, share: float) -> int:
        """New images in a pool; a share above zero brings at least one."""
        return max(1, round(share * self.pool)) if share else 0

    def checked(self) -> LivePlan:
        """The plan, once nothing about it can be refused without looking at data."""
        for name, values in (
            ("--share", self.shares),
            ("--seeds", self.seeds),
            ("--budget", self.budgets),
        ):
            if not values:
                raise IncompletePlanError(f"{name} is empty; name at least one")
        for share in self.shares:
            if not 0 <= share < 1:
                raise ShareError(f"--share {share:g}: a share of new images is from 0 to below 1")
        for budget in self.budgets:
            if budget is not None and not 0 < budget <= 1:
                raise ShareError(f"--budget {budget:g}: a share of a pool is above 0, at most 1")
        least = MethodSettings().least
        if self.labelled < least:
            raise ClassTooSmallError(
                f"--labelled {self.labelled}: a detector needs at least {least} images of a class"
            )
        return self

    def classes_of(self, labels: Sequence[str], dataset: str) -> tuple[list[str], list[str]]:
        """Classes that are large enough to be known, and to be new."""
        counts: dict[str, int] = {}
        for label in labels:
            counts[label] = counts.get(label, 0) + 1
        new = sorted(name for name, count in counts.items() if count >= LEAST_LEFT)
        known = [name for name in new if counts[name] >= self.labelled + LEAST_LEFT]
        if len(known) < self.known:
            raise ClassTooSmallError(
                f"{dataset}: {len(known)} classes have the {self.labelled + LEAST_LEFT} images "
                f"that a known class needs with --labelled {self.labelled}, but --known asks for "
                f"{self.known}; lower one of them"
            )
        if len(new) < self.known + self.new:
            raise NotEnoughClassesError(
                f"{dataset}: has {len(new)} classes of {LEAST_LEFT} images or more, but --known "
                f"and --new ask for {self.known + self.new}; lower one of them"
            )
        return known, new

    def feed_settings(self) -> dict[str, Any]:
        """What every feed of the plan has in common, as JSON."""
        return {k: v for k, v in asdict(self).items() if k not in ("shares", "seeds", "budgets")}
