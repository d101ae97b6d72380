"""The oracle answers truly, counts, and does not let itself be cheated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.evaluation.errors import BudgetExceededError, QuestionError
from monitor.evaluation.oracle import Oracle


@given(st.lists(st.integers(0, 19), unique=True), st.integers(0, 20))
def test_the_budget_is_never_exceeded(asked: list[int], budget: int) -> None:
    oracle = Oracle([str(i) for i in range(20)], budget)
    for index in asked:
        try:
            assert oracle.ask(np.array([index])) == [str(index)]
        except BudgetExceededError:
            assert oracle.used == budget
    assert oracle.used == min(len(asked), budget)


def test_a_question_too_many_is_not_answered_in_part() -> None:
    oracle = Oracle(["a", "b", "c"], budget=2)
    with pytest.raises(BudgetExceededError, match="3 more labels were asked for after 0"):
        oracle.ask(np.array([0, 1, 2]))
    assert oracle.used == 0


@pytest.mark.parametrize("again", [[0], [1, 1]])
def test_asking_twice_is_an_error(again: list[int]) -> None:
    oracle = Oracle(["a", "b", "c"], budget=3)
    oracle.ask(np.array([0]))
    with pytest.raises(QuestionError, match="twice"):
        oracle.ask(np.array(again))


@pytest.mark.parametrize("index", [-1, 3])
def test_samples_outside_the_pool_are_refused(index: int) -> None:
    with pytest.raises(QuestionError, match="the pool has 3"):
        Oracle(["a", "b", "c"], budget=3).ask(np.array([index]))


def test_asking_for_nothing_is_free() -> None:
    oracle = Oracle(["a"], budget=0)
    assert oracle.ask(np.empty(0, dtype=np.int64)) == []
