"""Named plans carry the paper's values; impossible ones are refused early."""

from __future__ import annotations

import pytest

from monitor.evaluation.errors import (
    BudgetError,
    IncompletePlanError,
    NotEnoughClassesError,
    UnknownMethodError,
    UnknownPlanError,
)
from monitor.evaluation.methods.registry import METHODS
from monitor.evaluation.plans import PLANS, EvaluationPlan, named_plan

GOOD = EvaluationPlan(initial=4, increments=(2,))


@pytest.mark.parametrize(
    ("name", "initial", "increment", "budget"),
    [
        ("paper-eurosat", 4, 2, 0.00625),
        ("paper-cifar100", 5, 5, 0.0125),
        ("paper-im21k", 5, 5, 0.00625),
        ("paper-plants", 8, 5, 0.0125),
    ],
)
def test_the_paper_s_plans(name: str, initial: int, increment: int, budget: float) -> None:
    plan = named_plan(name).checked()
    assert (plan.initial, plan.increments, plan.budgets) == (initial, (increment,), (budget,))
    assert (plan.ratio, plan.holdout_share, len(plan.seeds)) == (2.0, 0.35, 5)


def test_every_plan_names_methods_that_exist() -> None:
    assert {name for plan in PLANS.values() for name in plan.methods} <= set(METHODS)


def test_changes_win_over_the_plan_and_none_changes_nothing() -> None:
    plan = named_plan("paper-eurosat").with_changes(budgets=(0.05,), seeds=None)
    assert (plan.budgets, len(plan.seeds)) == ((0.05,), 5)


def test_open_plans_ask_for_what_they_lack() -> None:
    with pytest.raises(IncompletePlanError, match="--initial"):
        named_plan("budgets").checked()
    with pytest.raises(IncompletePlanError, match="--increment"):
        named_plan("budgets").with_changes(initial=4).checked()


def test_a_misspelt_plan_names_the_nearest() -> None:
    with pytest.raises(UnknownPlanError, match="'paper-eurosat'"):
        named_plan("paper-eurostat")


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(BudgetError):
        GOOD.with_changes(budgets=(0.01, 0.0)).checked()
    with pytest.raises(UnknownMethodError, match="'robust'"):
        GOOD.with_changes(methods=("robst",)).checked()
    with pytest.raises(NotEnoughClassesError):
        GOOD.with_changes(increments=(0,)).checked()
    with pytest.raises(IncompletePlanError, match="--seeds"):
        GOOD.with_changes(seeds=()).checked()
