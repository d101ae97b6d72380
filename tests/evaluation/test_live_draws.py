"""Budgets and pools, compared within the draws that they share."""

from __future__ import annotations

from typing import Any

from monitor.evaluation.live_draws import difference, draw_by_draw


def _record(seed: int, budget: float | None, *right: float) -> dict[str, Any]:
    return {
        "dataset": "toy",
        "backbone": "none",
        "share": 0.1,
        "seed": seed,
        "budget": budget,
        "by_pool": [{"right_new_immediate": value} for value in (0.0, *right)],
    }


def test_budgets_are_compared_within_each_draw_in_the_order_of_their_size() -> None:
    # The second draw is harder by far, which says nothing of the budgets.
    records = [_record(0, 0.05, 0.8, 0.9), _record(0, 0.01, 0.7, 0.9)]
    records += [_record(1, 0.05, 0.2, 0.3), _record(1, 0.01, 0.1, 0.35)]
    budgets, pools = draw_by_draw(records)
    assert budgets.rows == (("toy, none, 10%, 1% → 5%", "+10.0 ± 0.0, 2:0", "-2.5 ± 2.5, 0:1"),)
    assert pools.rows == (
        ("toy, none, 10%, 5% asked", "+10.0 ± 0.0, 2:0"),
        ("toy, none, 10%, 1% asked", "+22.5 ± 2.5, 2:0"),
    )


def test_a_draw_without_its_counterpart_is_left_out() -> None:
    records = [_record(0, 0.05, 0.8), _record(0, 0.01, 0.7), _record(1, 0.01, 0.1)]
    [budgets] = draw_by_draw(records)
    assert budgets.rows == (("toy, none, 10%, 1% → 5%", "+10.0, 1:0"),)
    assert difference([(None, 0.5)]) == "–"


def test_one_budget_and_one_pool_have_nothing_to_compare() -> None:
    assert list(draw_by_draw([_record(0, None)])) == []
    [pools] = draw_by_draw([_record(0, None, 0.5, 0.6, 0.4), _record(1, None, 0.6, 0.6, 0.6)])
    assert pools.rows == (
        ("toy, none, 10%", "+5.0 ± 5.0, 1:0", "-10.0 ± 10.0, 0:1", "-5.0 ± 5.0, 0:1"),
    )
