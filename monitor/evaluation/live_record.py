"""One feed, played to the monitor: what an operator would have felt, as one record."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.evaluation.every_label import judged_by_the_rest, recall_at
from monitor.evaluation.labelled_features import LabelledFeatures
from monitor.evaluation.live_baselines import live_alarms
from monitor.evaluation.live_feed import Floats, LiveFeed, LivePool
from monitor.evaluation.live_monitor import LiveMonitor, Steps, Taken
from monitor.evaluation.live_plan import LivePlan
from monitor.evaluation.live_pools import PoolByPool
from monitor.novelty.class_separation import auroc
from monitor.novelty.detector import Detector
from monitor.novelty.settled_verdicts import NEW
from monitor.novelty.trigger.measure_pool_novelty import measure_novelty
from monitor.novelty.trigger.trigger_decision import MONTH
from monitor.novelty.trigger.trigger_settings import TriggerSettings

Record = dict[str, Any]

# A pool takes a day.
_DAY = 86400.0
# Known images settled as new, at most: recall is compared at this rate.
_FALSE = 0.03


# Of the pool in which something was noticed, settled, beside a discriminant given every label.
_SETTLED = (
    "recall_at_3_settled",
    "auroc_every_label",
    "recall_at_3_every_label",
    "right_settled",
    "right_every_label",
    "right_new_settled",
    "right_new_every_label",
)


@dataclass(frozen=True, slots=True)
class LiveCell:
    """What is computed at once: one feed.

    >>> LiveCell("eurosat", "embedded", 0.05, 3).key
    'eurosat/embedded/share-0.05/seed-3'
    """

    dataset: str
    backbone: str
    share: float
    seed: int
    budget: float | None = None

    @property
    def key(self) -> str:
        feed = f"{self.dataset}/{self.backbone}/share-{self.share:g}/seed-{self.seed}"
        return feed if self.budget is None else f"{feed}/budget-{self.budget:g}"


def run_live_cell(cell: LiveCell, plan: LivePlan, data: LabelledFeatures, steps: Steps) -> Record:
    """Fit a detector, play the feed to it, and write down what came of it."""
    began = time.perf_counter()
    feed = LiveFeed.of(data, plan, cell.seed, cell.share)
    features = feed.features[feed.labelled]
    detector = Detector.fit(features, feed.names, seed=cell.seed)
    settings = TriggerSettings(
        false_rounds_per_month=plan.false_rounds, trickle_per_week=plan.trickle
    )
    monitor = LiveMonitor(detector, steps, settings, cell.seed, cell.budget)
    level = plan.false_rounds * _DAY / MONTH
    rng = np.random.default_rng([cell.seed, 2])
    watched = _Watched(feed.new, features, feed.names)
    by_pool = PoolByPool(feed.new, features, feed.names)
    naive = _Naive(live_alarms(detector, features, feed.names, level, rng))
    for day, pool in enumerate(feed.pools()):
        number = day - plan.clean + 1
        taken = monitor.take(pool, day * _DAY)
        if number == 1:
            watched.judge(pool, taken)
        watched.count(pool, taken, number)
        by_pool.watch(pool, taken, number)
        naive.hear(pool, number)
    return {
        "dataset": cell.dataset,
        "backbone": cell.backbone,
        "seed": cell.seed,
        "share": cell.share,
        "budget": cell.budget,
        "labelled": plan.labelled,
        "pool_size": plan.pool,
        "known": plan.known,
        "sources": plan.sources,
        **watched.record(cell.share),
        "by_pool": by_pool.record(),
        "naive": naive.record(),
        "naive_level": level,
        "known_classes": list(feed.known),
        "new_classes": list(feed.new) if cell.share else [],
        "reused": feed.reused,
        "seconds": round(time.perf_counter() - began, 3),
    }


class _Watched:
    """Counts what an operator sees: when a new class was noticed, what was asked, verdicts."""

    def __init__(self, new: Collection[str], features: Floats, names: Sequence[str]) -> None:
        self._new = frozenset(new)
        self._features, self._names = features, np.array(names, dtype=np.str_)
        self._learnt: set[str] = set()
        self._noticed: int | None = None
        self._noticed_by: str | None = None
        self._counts = dict.fromkeys(
            (
                "questions",
                "trickle_questions",
                "questions_until_noticed",
                "clean_pools",
                "needless_rounds",
                "clean_probes",
                "learnt_pools",
                "needless_learnt",
            ),
            0,
        )
        self._verdicts: dict[str, float | None] = {
            f"{what}_{when}": None
            for when in ("immediate", "closed", "settled")
            for what in ("auroc", "recall", "false")
        }
        self._verdicts |= dict.fromkeys(_SETTLED)
        self._after: list[tuple[bool, bool, bool]] = []
        self._unconfirmed: dict[str, list[bool]] = {}
        self._fitted: list[bool] = []

    def judge(self, pool: LivePool, taken: Taken) -> None:
        """Verdicts on the first pool that holds new images, before anybody has named one."""
        new = np.isin(pool.labels, list(self._new))
        self._verdicts |= _judged("immediate", taken.verdicts.score, taken.verdicts.novel, new)
        closed = measure_novelty(taken.detector, pool.features, pool.sources.tolist())
        self._verdicts |= _judged("closed", closed.score, closed.novel, new)

    def count(self, pool: LivePool, taken: Taken, number: int) -> None:
        counts = self._counts
        counts["questions"] += taken.questions
        counts["trickle_questions"] += taken.trickle_questions
        if pool.clean:
            counts["clean_pools"] += 1
            counts["needless_rounds"] += taken.kind == "round"
            counts["clean_probes"] += taken.kind == "probe"
            return
        if self._noticed is None:
            counts["questions_until_noticed"] += taken.questions
        names = np.array([c.name for c in taken.detector.classes])
        if np.isin(pool.labels, names).all():
            # What was new has been learnt: another round about it would be needless too.
            counts["learnt_pools"] += 1
            counts["needless_learnt"] += taken.kind == "round"
        if self._learnt:
            fitted = ~np.isin(pool.labels, list(self._new))
            self._fitted += taken.verdicts.novel[fitted].tolist()
        rows = np.isin(pool.labels, list(self._learnt))
        right = names[taken.verdicts.nearest[rows]] == pool.labels[rows]
        doubted = [c.name for c in taken.detector.classes if not c.confirmed]
        self._after += zip(
            taken.verdicts.novel[rows].tolist(),
            right.tolist(),
            (~np.isin(pool.labels[rows], doubted)).tolist(),
            strict=True,
        )
        for name in self._learnt | (self._new & set(taken.discovered)):
            self._unconfirmed.setdefault(name, []).append(name in taken.unconfirmed)
        if not taken.discovered:
            return
        self._learnt.update(taken.discovered)
        if self._noticed is None:
            self._noticed, self._noticed_by = number, taken.kind
            new = np.isin(pool.labels, list(self._new))
            verdict = np.array(taken.settled.verdicts)
            self._verdicts |= _judged("settled", taken.settled.probability, verdict == NEW, new)
            self._verdicts |= self._beside_every_label(pool, taken, new)

    def _beside_every_label(
        self, pool: LivePool, taken: Taken, new: NDArray[np.bool_]
    ) -> dict[str, float | None]:
        """Settled verdicts and a discriminant given every label: new at 3% false; right class."""
        if not new.any():
            return {}
        line = judged_by_the_rest(self._features, self._names, pool)
        right, possible = taken.settled_names == pool.labels, line.names == pool.labels
        found = (
            recall_at(_FALSE, taken.settled.probability, new),
            auroc(line.odds[new], line.odds[~new]),
            recall_at(_FALSE, line.odds, new),
            float(right.mean()),
            float(possible.mean()),
            float(right[new].mean()),
            float(possible[new].mean()),
        )
        return dict(zip(_SETTLED, found, strict=True))

    def record(self, share: float) -> Record:
        after = np.array(self._after, dtype=bool).reshape(-1, 3)
        sure = after[after[:, 2]]
        counts = [row for name, row in self._unconfirmed.items() if name in self._new]
        return {
            "noticed_in": self._noticed,
            "noticed_by": self._noticed_by,
            "present": len(self._new) if share else 0,
            "found": len(self._learnt & self._new),
            **self._counts,
            **self._verdicts,
            "novel_after": _mean(after[:, 0]),
            "novel_confirmed_after": _mean(sure[:, 0]),
            "novel_fitted_after": _mean(self._fitted),
            "right_after": _mean(after[:, 1]),
            "unconfirmed_first": sum(row[0] for row in counts),
            "unconfirmed_second": sum(row[1] for row in counts if len(row) > 1),
        }


def _judged(
    when: str, score: NDArray[Any], novel: NDArray[np.bool_], new: NDArray[np.bool_]
) -> dict[str, float | None]:
    return {
        f"auroc_{when}": auroc(score[new], score[~new]) if new.any() else None,
        f"recall_{when}": float(novel[new].mean()) if new.any() else None,
        f"false_{when}": float(novel[~new].mean()),
    }


def _mean(of: Sequence[bool] | NDArray[np.bool_]) -> float | None:
    return float(np.mean(of)) if len(of) else None


class _Naive:
    """When the alternatives would have noticed, and how often they alarm on clean pools."""

    def __init__(self, alarms: Any) -> None:
        self._alarms = alarms
        self._noticed: dict[str, int | None] = dict.fromkeys(alarms)
        self._false = dict.fromkeys(alarms, 0)

    def hear(self, pool: LivePool, number: int) -> None:
        for name, alarm in self._alarms.items():
            if pool.clean:
                self._false[name] += alarm(pool.features)
            elif self._noticed[name] is None and alarm(pool.features):
                self._noticed[name] = number

    def record(self) -> Record:
        return {
            name: {"noticed_in": self._noticed[name], "false_alarms": self._false[name]}
            for name in self._alarms
        }
