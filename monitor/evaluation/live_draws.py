"""The same draws side by side: do more questions, and later pools, give better classes?

Budgets of a seed see the same detectors and pools, so their difference within each draw says more
than their means, between which draws vary by far more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from monitor.evaluation.live_record import Record
from monitor.evaluation.report_tables import Table
from monitor.evaluation.summary import percent

_NOTHING = "–"


def draw_by_draw(records: Sequence[Record]) -> Iterator[Table]:
    """A table of budgets if several were compared, and one of pools if there are several."""
    several = [r for r in records if len(r["by_pool"]) > 1]
    if not several:
        return
    pools = range(1, max(len(record["by_pool"]) for record in several))
    if len({record["budget"] for record in several}) > 1:
        yield Table(
            "The larger budget of two, draw by draw: new images given their right class at once, "
            "in points more, and draws that are better : worse",
            ("data, share, budgets", *(f"pool {number + 1}" for number in pools)),
            tuple(_budgets(several, pools)),
        )
    if len(pools) > 1:
        yield Table(
            "Each pool against the one before, draw by draw: the same",
            ("data, share", *(f"pool {a + 1} → {b + 1}" for a, b in _steps(pools))),
            tuple(_pools(several, pools)),
        )


def difference(pairs: Sequence[tuple[float | None, float | None]]) -> str:
    """The mean difference of pairs in points with its standard error, and how many rise and fall.

    >>> difference([(0.5, 0.6), (0.5, 0.7), (0.4, 0.3), (0.4, None)])
    '+6.7 ± 8.8, 2:1'
    """
    found = np.array([100 * (b - a) for a, b in pairs if a is not None and b is not None])
    if not len(found):
        return _NOTHING
    signs = f"{int((found > 1e-9).sum())}:{int((found < -1e-9).sum())}"
    if len(found) < 2:
        return f"{found[0]:+.1f}, {signs}"
    error = float(found.std(ddof=1)) / np.sqrt(len(found))
    return f"{found.mean():+.1f} ± {error:.1f}, {signs}"


def _budgets(records: Sequence[Record], pools: range) -> Iterator[tuple[str, ...]]:
    for name, group in _groups(records).items():
        budgets = sorted({r["budget"] for r in group if r["budget"] is not None})
        for less, more in pairwise(budgets):
            pairs = [
                (by_budget[less], by_budget[more])
                for by_budget in _by_seed(group)
                if less in by_budget and more in by_budget
            ]
            yield (
                f"{name}, {percent(less)} → {percent(more)}",
                *(difference([(_right(a, n), _right(b, n)) for a, b in pairs]) for n in pools),
            )


def _pools(records: Sequence[Record], pools: range) -> Iterator[tuple[str, ...]]:
    steps = _steps(pools)
    for name, group in _groups(records).items():
        for budget in dict.fromkeys(record["budget"] for record in group):
            rows = [record for record in group if record["budget"] == budget]
            asked = "" if budget is None else f", {percent(budget)} asked"
            yield (
                name + asked,
                *(difference([(_right(r, a), _right(r, b)) for r in rows]) for a, b in steps),
            )


def _steps(pools: range) -> list[tuple[int, int]]:
    """Each pool and the next; then the first of them and the last."""
    return [*pairwise(pools), *([(pools[0], pools[-1])] if len(pools) > 2 else [])]


def _right(record: Record, pool: int) -> float | None:
    """New images that were given their right class at once, in the pool of this position."""
    rows = record["by_pool"]
    found: float | None = rows[pool]["right_new_immediate"] if pool < len(rows) else None
    return found


def _groups(records: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        name = f"{record['dataset']}, {record['backbone']}, {percent(record['share'])}"
        groups.setdefault(name, []).append(record)
    return groups


def _by_seed(records: Sequence[Record]) -> Iterator[dict[float | None, Record]]:
    for seed in dict.fromkeys(record["seed"] for record in records):
        yield {record["budget"]: record for record in records if record["seed"] == seed}
