"""From records to the figures a person compares: means with spread, wins, distance to ceiling."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

CEILING = "ceiling"
REFERENCE = "robust"
ABLATION_TITLES = {
    "": "default",
    "-sup-top": "Sup-Top",
    "-sup-rand": "Sup-Rand",
    "-no-iters": "No-Iters",
    "-no-pseudo": "No-Pseudo",
}
Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """What is held equal when methods are compared.

    >>> str(Setting("eurosat", "embedded", 2, 0.00625))
    'eurosat · embedded · +2 classes · budget 0.625%'
    """

    dataset: str
    backbone: str
    increment: int
    budget: float

    def __str__(self) -> str:
        return (
            f"{self.dataset} · {self.backbone} · +{self.increment} "
            f"{'class' if self.increment == 1 else 'classes'} · budget {percent(self.budget)}"
        )

    @property
    def slug(self) -> str:
        parts = (self.dataset, self.backbone, f"k{self.increment}", f"b{self.budget:g}")
        return "-".join("".join(c if c.isalnum() or c in "._" else "_" for c in p) for p in parts)


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean, and how far the seeds lie from it (sample standard deviation).

    >>> Spread.of([1.0, 2.0, 3.0])
    Spread(mean=2.0, std=1.0, count=3)
    """

    mean: float
    std: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        kept = list(values)
        if not kept:
            return None
        return cls(
            statistics.fmean(kept), statistics.stdev(kept) if len(kept) > 1 else 0.0, len(kept)
        )


@dataclass(frozen=True, slots=True)
class MethodSummary:
    """One method in one setting. AUROC is averaged over the tasks of a seed, then over seeds.

    ``wins``, ``ties`` and ``losses`` count seeds in which the *reference* was better, equal or
    worse than this method; None for the reference itself and where it was not run.
    """

    method: str
    auroc: Spread
    by_task: Mapping[int, Spread]
    by_seed: Mapping[int, float]
    classes_present: int
    classes_found: int
    purity: Spread | None
    false_novel: Spread | None
    labels_used: float
    labels_per_class: float | None
    seconds: float
    to_ceiling: float | None
    wins: int | None
    ties: int | None
    losses: int | None

    @property
    def last_under_first(self) -> float:
        """How much harder the last task was than the first."""
        tasks = sorted(self.by_task)
        return self.by_task[tasks[0]].mean - self.by_task[tasks[-1]].mean


def settings_of(records: Records) -> list[Setting]:
    """Every combination that was measured, in a stable order."""
    return sorted({_setting(record) for record in records})


def summarise(
    records: Records, setting: Setting, reference: str = REFERENCE
) -> list[MethodSummary]:
    """All methods of a setting, in the order in which they were asked for."""
    chosen = [record for record in records if _setting(record) == setting]
    methods = list(dict.fromkeys(record["method"] for record in chosen))
    by_seed = {method: _by_seed([r for r in chosen if r["method"] == method]) for method in methods}
    return [
        _summary(
            method,
            [record for record in chosen if record["method"] == method],
            by_seed[method],
            by_seed.get(CEILING, {}),
            by_seed.get(reference, {}) if method != reference else {},
        )
        for method in methods
    ]


def ablation_rows(summaries: Sequence[MethodSummary], preset: str) -> list[tuple[str, Spread]]:
    """The preset and what each removal leaves of it; empty when none was run."""
    named = {summary.method: summary.auroc for summary in summaries}
    rows = [
        (title, named[preset + suffix])
        for suffix, title in ABLATION_TITLES.items()
        if preset + suffix in named
    ]
    return rows if preset in named and len(rows) > 1 else []


def percent(share: float) -> str:
    """A share as people write it.

    >>> percent(0.00625), percent(0.05)
    ('0.625%', '5%')
    """
    return f"{100 * share:.4g}%"


def _summary(
    method: str,
    records: Records,
    seeds: Mapping[int, float],
    ceiling: Mapping[int, float],
    reference: Mapping[int, float],
) -> MethodSummary:
    auroc = Spread.of(seeds.values())
    assert auroc is not None
    tasks = sorted({record["task"] for record in records})
    found = sum(record["classes_found"] for record in records)
    used = sum(record["labels_used"] for record in records)
    gaps = Spread.of(ceiling[seed] - seeds[seed] for seed in seeds if seed in ceiling)
    leads = [reference[seed] - seeds[seed] for seed in seeds if seed in reference]
    return MethodSummary(
        method=method,
        auroc=auroc,
        by_task={
            task: spread
            for task in tasks
            if (spread := Spread.of(r["auroc"] for r in records if r["task"] == task))
        },
        by_seed=seeds,
        classes_present=sum(record["classes_present"] for record in records),
        classes_found=found,
        purity=_spread_of(records, "pseudo_purity"),
        false_novel=_spread_of(records, "false_novel_rate"),
        labels_used=used / len(records),
        labels_per_class=used / found if found and used else None,
        seconds=statistics.fmean(record["seconds"] for record in records),
        to_ceiling=None if gaps is None or method == CEILING else gaps.mean,
        wins=sum(lead > 0 for lead in leads) if leads else None,
        ties=sum(lead == 0 for lead in leads) if leads else None,
        losses=sum(lead < 0 for lead in leads) if leads else None,
    )


def _by_seed(records: Records) -> dict[int, float]:
    ordered = sorted(records, key=lambda record: record["seed"])
    return {
        seed: statistics.fmean(record["auroc"] for record in group)
        for seed, group in groupby(ordered, key=lambda record: record["seed"])
    }


def _spread_of(records: Records, key: str) -> Spread | None:
    return Spread.of(record[key] for record in records if record[key] is not None)


def _setting(record: Mapping[str, Any]) -> Setting:
    return Setting(record["dataset"], record["backbone"], record["increment"], record["budget"])
