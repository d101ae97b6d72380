"""Writes down what was measured of drift against novelty."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monitor.evaluation.report_tables import Table
from monitor.evaluation.results_store import write_bytes
from monitor.evaluation.shift_feeds import Record

# The severity at which a shift is plain to see and must be told soon.
_PLAIN = 3
# A learnt shift may be called new so many times as often as held-out images; and recall of what
# is new counts as the same within this.
_SETTLED, _SAME = 2.0, 0.02
_NOTHING = "–"
_WATCHES = ("ours", "mean score", "KS per pool", "MMD per pool")

_HOW_TO_READ = (
    "Pools hold known, shifted known and new samples; AUROC, in percent, is on samples that the "
    "inner loop has not seen. Beside it are a linear discriminant that was given every label of "
    "the shifted source in that pool, which is what the features allow, and S⁰, the score without "
    "answers. Told at pool is the "
    "median number of pools after the shift began until drift was reported, with the share of runs "
    "in which it was reported at all. False novel is the share of shifted known samples above "
    "T_inner as they are, with the shift that one pool showed corrected, and after the shift was "
    "learnt; recall is that of new samples."
)
_SHIFTED_NEW = "New samples are shifted like the rest of their source."
_CLEAN_NEW = (
    "New samples are clean while known ones are shifted (--clean-new): being shifted already "
    "speaks for a known class, so these figures leave out how hard it is to distinguish new from "
    "known in a shifted source."
)


def write_shift_report(
    records: Sequence[Record], out: Path, *, clean_new: bool = False
) -> list[Table]:
    """Write ``shift.json`` and ``shift.md``; returns the tables."""
    tables = [_pools(records), _watch(records), _counts(records), _adapt(records)]
    page = ["# Drift and novelty", _HOW_TO_READ, _CLEAN_NEW if clean_new else _SHIFTED_NEW]
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
            "every label",
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
                _mean(rows, "new_shifted_every_label", 100),
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
        "Drift reported at pool (share of runs)",
        ("data, corruption, severity, feed", *_WATCHES),
        tuple(
            (
                ", ".join(map(str, key)),
                *(_told([r["pools"][watch] for r in rows]) for watch in _WATCHES),
            )
            for key, rows in groups
        ),
    )


def _counts(records: Sequence[Record]) -> Table:
    """How many runs behaved, over all corruptions: what a promise is held against."""
    feeds = {
        feed: [r for r in records if r["kind"] == "watch" and r["feed"] == feed]
        for feed in ("shifted", "new", "clean")
    }
    plain = [r for r in feeds["shifted"] if r["severity"] == _PLAIN]
    adapted = [r for r in records if r["kind"] == "adapt"]
    back = [r for r in adapted if r["false_novel_after"] <= _SETTLED * r["calibrated"]]
    found = [r for r in adapted if r["recall_after"] >= r["recall_before"] - _SAME]
    years = [r for r in records if r["kind"] == "year"]
    rows = [
        ("shift only: no class added", _share(feeds["shifted"], lambda r: not r["false_classes"])),
        ("shift only: nothing seemed new", _share(feeds["shifted"], lambda r: not r["triggered"])),
        (f"shift of severity {_PLAIN}: reported within two pools", _share(plain, _soon)),
        ("new class only: not called drift", _share(feeds["new"], _untold)),
        ("clean feed: not called drift", _share(feeds["clean"], _untold)),
        (
            "shifted source, second pool on: within twice the calibrated rate",
            _share(
                adapted, lambda r: r["false_novel_corrected"] <= _SETTLED * r["calibrated_before"]
            ),
        ),
        ("learnt shift: back within twice the calibrated rate", f"{len(back)} of {len(adapted)}"),
        ("learnt shift: recall of new within 2 points", f"{len(found)} of {len(adapted)}"),
        (
            "clean feed over its days: alarms, and allowed",
            f"{sum(r['alarms'] for r in years)}, {sum(r['allowed'] for r in years):.0f}",
        ),
    ]
    return Table("Counted over all runs", ("what", "runs"), tuple(rows))


def _share(rows: Sequence[Record], holds: Callable[[Record], bool]) -> str:
    return f"{sum(map(holds, rows))} of {len(rows)}"


def _soon(record: Record) -> bool:
    told = record["pools"]["ours"]
    return told is not None and told <= 2


def _untold(record: Record) -> bool:
    return record["pools"]["ours"] is None


def _adapt(records: Sequence[Record]) -> Table:
    groups = _grouped(records, "adapt", ("dataset", "corruption", "severity"))
    columns = {
        "calibrated": "calibrated",
        "false_novel_before": "false novel",
        "false_novel_corrected": "corrected",
        "false_novel_after": "after",
        "recall_before": "recall",
        "recall_corrected": "corrected ",
        "recall_after": "after ",
    }
    return Table(
        "Single verdicts: as they are, corrected, and after learning (percent)",
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
