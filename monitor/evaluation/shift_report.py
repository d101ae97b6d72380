"""Runs the measurements of drift against novelty, and writes them down."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monitor.evaluation.shift import Record, ShiftPlan, ShiftWorld, measure
from monitor.evaluation.shift_data import Lottery, Seen, seen_through
from monitor.evaluation.store import write_bytes
from monitor.evaluation.tables import Table
from monitor.feed.backbone import load_backbone
from monitor.feed.contract import Columns
from monitor.feed.dataset import embed_dataset
from monitor.feed.engine import open_engine
from monitor.feed.spec import BackboneSpec

Progress = Callable[[str], None]

# Images of each class that are embedded for every corruption and severity.
PER_CLASS = 120
_NOTHING = "–"
_WATCHES = ("ours", "mean score", "KS per pool", "MMD per pool")

_HOW_TO_READ = (
    "Pools hold known, shifted known and new samples; AUROC, in percent, is on samples that the "
    "inner loop has not seen, S⁰ beside it is the score without answers. Told at pool is the "
    "median number of pools after the shift began until drift was told, with the share of runs "
    "in which it was told at all. False novel is the share of shifted known samples above "
    "T_inner before and after the shift was learnt, recall that of new samples."
)


def run_shift(
    path: Path,
    plan: ShiftPlan,
    *,
    corruptions: Sequence[str],
    severities: Sequence[int],
    seeds: Sequence[int],
    label_column: str = "label",
    backbone: str = "embedded",
    per_class: int = PER_CLASS,
    cache: Path | None = None,
    progress: Progress = lambda text: None,
) -> list[Record]:
    """Embed a dataset clean and through every fault, and measure each of them with every seed."""
    with open_engine(load_backbone(BackboneSpec.parse(backbone), cache=cache)) as engine:
        lottery = Lottery(per_class, seed=0)
        progress(f"embedding {path}")
        embedded = embed_dataset(
            [path], engine, columns=Columns(label=label_column), cache=cache, seen=lottery
        )
        clean = Seen(embedded.features, np.array([str(label) for label in embedded.labels]))
        drawn = np.array([image.row for image in lottery.drawn], dtype=np.intp)
        worlds = [ShiftWorld(clean, drawn, plan, seed) for seed in seeds]
        records = _measured(path.stem, worlds, None, "none", 0)
        for corruption in corruptions:
            for severity in severities:
                progress(f"{corruption} at severity {severity}")
                seen = seen_through(lottery.drawn, engine, corruption, severity, cache=cache)
                records += _measured(path.stem, worlds, seen, corruption, severity)
    return records


def _measured(
    dataset: str, worlds: Iterable[ShiftWorld], seen: Seen | None, corruption: str, severity: int
) -> list[Record]:
    tags = {"dataset": dataset, "corruption": corruption, "severity": severity}
    return [r for world in worlds for r in measure(world, seen, {**tags, "seed": world.seed})]


def write_shift_report(records: Sequence[Record], out: Path) -> list[Table]:
    """Write ``shift.json`` and ``shift.md``; returns the tables."""
    tables = [_pools(records), _watch(records), _adapt(records)]
    page = ["# Drift and novelty", _HOW_TO_READ]
    page += [f"## {table.title}\n\n{table.markdown()}" for table in tables]
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / "shift.json", json.dumps(list(records), indent=1).encode())
    write_bytes(out / "shift.md", ("\n\n".join(page) + "\n").encode())
    return tables


def _pools(records: Sequence[Record]) -> Table:
    groups = _grouped(records, "pool", ("dataset", "corruption", "severity", "share", "budget"))
    return Table(
        "Known, shifted and new in one pool",
        (
            "data, corruption, severity, share new, budget",
            "new : known",
            "new : shifted",
            "worst",
            "S⁰ new : shifted",
            "found",
            "false classes",
            "labels",
        ),
        tuple(
            (
                f"{key[0]}, {key[1]}, {key[2]}, {100 * key[3]:.0f}%, {100 * key[4]:g}%",
                _mean(rows, "new_clean_ours", 100),
                _mean(rows, "new_shifted_ours", 100),
                _text(min((100 * r.get("new_shifted_ours", np.nan) for r in rows), default=np.nan)),
                _mean(rows, "new_shifted_s0", 100),
                f"{_mean(rows, 'found')} of {_mean(rows, 'present')}",
                str(sum(r["false_classes"] for r in rows)),
                _mean(rows, "labels"),
            )
            for key, rows in groups
        ),
    )


def _watch(records: Sequence[Record]) -> Table:
    groups = _grouped(records, "watch", ("dataset", "corruption", "severity", "feed"))
    return Table(
        "Drift told at pool (share of runs)",
        ("data, corruption, severity, feed", *_WATCHES),
        tuple(
            (
                ", ".join(map(str, key)),
                *(_told([r["pools"][watch] for r in rows]) for watch in _WATCHES),
            )
            for key, rows in groups
        ),
    )


def _adapt(records: Sequence[Record]) -> Table:
    groups = _grouped(records, "adapt", ("dataset", "corruption", "severity"))
    columns = {
        "calibrated": "calibrated",
        "false_novel_before": "false novel",
        "false_novel_after": "after",
        "recall_before": "recall",
        "recall_after": "after ",
    }
    return Table(
        "After a shift was learnt (percent)",
        ("data, corruption, severity", *columns.values(), "classes", "furthest"),
        tuple(
            (
                ", ".join(map(str, key)),
                *(_mean(rows, name, 100) for name in columns),
                _mean(rows, "adapted"),
                _text(max(r["distance"] for r in rows), 2),
            )
            for key, rows in groups
        ),
    )


def _grouped(
    records: Sequence[Record], kind: str, by: Sequence[str]
) -> list[tuple[tuple[Any, ...], list[Record]]]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record["kind"] == kind:
            groups.setdefault(tuple(record[name] for name in by), []).append(record)
    return list(groups.items())


def _mean(rows: Sequence[Record], name: str, scale: float = 1.0) -> str:
    values = [scale * row[name] for row in rows if name in row]
    return _text(float(np.mean(values))) if values else _NOTHING


def _text(value: float, digits: int = 1) -> str:
    return _NOTHING if np.isnan(value) else f"{value:.{digits}f}"


def _told(pools: Sequence[int | None]) -> str:
    """The median pool among the runs that told, and their share.

    >>> _told([2, None, 2, 3]), _told([None])
    ('2 (75%)', 'never')
    """
    told = [number for number in pools if number is not None]
    if not told:
        return "never"
    return f"{np.median(told):g} ({100 * len(told) / len(pools):.0f}%)"
