"""The paper's settings, and some useful ones, by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from monitor.evaluation.errors import IncompletePlanError, UnknownPlanError
from monitor.evaluation.methods.registry import entry_for
from monitor.evaluation.protocol import StreamSettings, labels_for

BASELINES = ("dfm", "incdfm", "incdfm-p85", "er", "er-pnew", "pseudoer", "pseudoer-pnew")
COMPARED = ("robust", "paper", *BASELINES, "ceiling")
ABLATIONS = ("sup-top", "sup-rand", "no-iters", "no-pseudo")
FIVE_SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What to compare, on which streams, with how many labels and seeds.

    ``initial`` and ``increments`` may be left open by a named plan that suits any dataset; the
    command line then has to give them.

    >>> plan = named_plan("paper-eurosat")
    >>> plan.initial, plan.increments, plan.budgets
    (4, (2,), (0.00625,))
    """

    initial: int | None = None
    increments: tuple[int, ...] = ()
    budgets: tuple[float, ...] = (0.0125,)
    seeds: tuple[int, ...] = FIVE_SEEDS
    methods: tuple[str, ...] = COMPARED
    ratio: float = 2.0
    test_share: float = 0.2
    holdout_share: float = 0.35
    class_order: tuple[str, ...] | None = None

    def with_changes(self, **changes: Any) -> EvaluationPlan:
        """The plan with every change that is not None."""
        return replace(self, **{key: value for key, value in changes.items() if value is not None})

    def checked(self) -> EvaluationPlan:
        """The plan, once nothing about it can be refused without looking at data."""
        if self.initial is None or not self.increments:
            missing = "--initial" if self.initial is None else "--increment"
            raise IncompletePlanError(
                f"the plan does not say with how many classes to go; give {missing}"
            )
        for name in self.methods:
            entry_for(name)
        for budget in self.budgets:
            # One is as good a pool size as any: only the budget itself is looked at here.
            labels_for(min(budget, 1.0), 1)
        for field, values in (
            ("--methods", self.methods),
            ("--seeds", self.seeds),
            ("--budget", self.budgets),
        ):
            if not values:
                raise IncompletePlanError(f"{field} is empty; name at least one")
        for increment in self.increments:
            self.stream_settings(increment)
        return self

    def stream_settings(self, increment: int) -> StreamSettings:
        assert self.initial is not None
        return StreamSettings(
            initial=self.initial,
            increment=increment,
            ratio=self.ratio,
            test_share=self.test_share,
            holdout_share=self.holdout_share,
            class_order=self.class_order,
        )


PLANS: Mapping[str, EvaluationPlan] = MappingProxyType(
    {
        # The four of the paper. It does not say how many classes are known at first: 4 and 5
        # for EuroSAT and CIFAR-100 are those of our reference figures, 8 of 20 for Plants
        # likewise, 5 of 50 for Im21K makes nine tasks of five.
        "paper-eurosat": EvaluationPlan(initial=4, increments=(2,), budgets=(0.00625,)),
        "paper-cifar100": EvaluationPlan(initial=5, increments=(5,), budgets=(0.0125,)),
        "paper-im21k": EvaluationPlan(initial=5, increments=(5,), budgets=(0.00625,)),
        "paper-plants": EvaluationPlan(initial=8, increments=(5,), budgets=(0.0125,)),
        # The paper's centre figures: from 0.32% to 5% of the pool.
        "budgets": EvaluationPlan(budgets=(0.0032, 0.00625, 0.0125, 0.025, 0.05)),
        # Its right-hand figures: more and more classes at once.
        "increments": EvaluationPlan(increments=(1, 2, 3)),
        "ablations": EvaluationPlan(
            methods=(
                *(
                    f"{p}{s}"
                    for p in ("paper", "robust")
                    for s in ("", *(f"-{a}" for a in ABLATIONS))
                ),
                "ceiling",
            )
        ),
        # A first look in a minute or two: the cheap methods, two seeds.
        "quick": EvaluationPlan(
            seeds=(0, 1), methods=("robust", "paper", "dfm", "incdfm-p85", "er-pnew", "ceiling")
        ),
    }
)


def named_plan(name: str) -> EvaluationPlan:
    """A plan by its name, or an error that names the nearest one."""
    try:
        return PLANS[name]
    except KeyError:
        near = difflib.get_close_matches(name, PLANS, n=1, cutoff=0.0)
        raise UnknownPlanError(
            f"no plan is called {name!r}; did you mean {near[0]!r}? There are: {', '.join(PLANS)}"
        ) from None
