"""A stream is what the protocol says, for any labels and any seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.evaluation.errors import (
    BudgetError,
    ClassOrderError,
    ClassTooSmallError,
    EvaluationError,
    NotEnoughClassesError,
    PoolTooSmallError,
    ShareError,
)
from monitor.evaluation.protocol import (
    Stream,
    StreamSettings,
    balanced_quotas,
    build_stream,
    labels_for,
)


def labels_of(sizes: list[int]) -> list[str]:
    return [f"c{number}" for number, size in enumerate(sizes) for _ in range(size)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[str], StreamSettings, Stream]:
    sizes = draw(st.lists(st.integers(3, 40), min_size=2, max_size=9))
    initial = draw(st.integers(1, len(sizes) - 1))
    increment = draw(st.integers(1, len(sizes) - initial))
    settings_ = StreamSettings(
        initial, increment, ratio=draw(st.sampled_from([0.5, 1.0, 2.0, 3.0]))
    )
    labels = labels_of(sizes)
    return labels, settings_, build_stream(labels, settings_, draw(st.integers(0, 1000)))


@given(streams())
def test_nothing_that_teaches_is_ever_tested(
    made: tuple[list[str], StreamSettings, Stream],
) -> None:
    _, _, stream = made
    tested = {int(i) for task in stream.tasks for i in task.test}
    taught = set(stream.initial.tolist()) | {int(i) for t in stream.tasks for i in t.pool}
    assert not tested & taught


@given(streams())
def test_pools_are_made_of_the_right_classes(
    made: tuple[list[str], StreamSettings, Stream],
) -> None:
    labels, settings_, stream = made
    names = np.asarray(labels)
    assert set(names[stream.initial]) == set(stream.initial_classes)
    known = set(stream.initial_classes)
    for task in stream.tasks:
        assert set(task.old_classes) == known
        assert len(task.new_classes) == settings_.increment
        for indices, is_new in ((task.pool, task.pool_new), (task.test, task.test_new)):
            assert len(set(indices.tolist())) == len(indices)
            assert set(names[indices[is_new]]) <= set(task.new_classes)
            assert set(names[indices[~is_new]]) <= known
        assert set(names[task.pool[task.pool_new]]) == set(task.new_classes)
        known |= set(task.new_classes)


@given(streams())
def test_new_samples_and_initial_samples_are_fresh(
    made: tuple[list[str], StreamSettings, Stream],
) -> None:
    _, _, stream = made
    seen = set(stream.initial.tolist())
    for task in stream.tasks:
        assert not seen.intersection(task.pool[task.pool_new].tolist())
        seen.update(task.pool.tolist())


@given(streams())
def test_recorded_ratio_and_reuse_are_true(
    made: tuple[list[str], StreamSettings, Stream],
) -> None:
    _, settings_, stream = made
    seen: set[int] = set()
    for task in stream.tasks:
        old, new = task.pool[~task.pool_new], task.pool[task.pool_new]
        assert task.ratio == pytest.approx(len(old) / len(new))
        assert len(old) <= max(1, round(settings_.ratio * len(new)))
        assert task.reuse == pytest.approx(np.mean([int(i) in seen for i in old]))
        assert task.test_ratio == pytest.approx((~task.test_new).sum() / task.test_new.sum())
        seen.update(task.pool.tolist())


@given(streams())
def test_a_sample_returns_only_when_its_class_has_no_fresher_one(
    made: tuple[list[str], StreamSettings, Stream],
) -> None:
    labels, _, stream = made
    names, times = np.asarray(labels), np.zeros(len(labels), dtype=int)
    for task in stream.tasks:
        old = task.pool[~task.pool_new]
        times[old] += 1
        for name in set(names[old]):
            shown = times[(names == name) & (times > 0)]
            assert shown.max() - shown.min() <= 1


@given(streams(), st.integers(0, 5))
def test_same_seed_same_stream(made: tuple[list[str], StreamSettings, Stream], shift: int) -> None:
    labels, settings_, stream = made
    again = build_stream(labels, settings_, stream.seed)
    np.testing.assert_array_equal(again.initial, stream.initial)
    for one, other in zip(again.tasks, stream.tasks, strict=True):
        np.testing.assert_array_equal(one.pool, other.pool)
        np.testing.assert_array_equal(one.test, other.test)


def test_the_paper_s_proportions() -> None:
    stream = build_stream(labels_of([100] * 10), StreamSettings(4, 2), seed=0)
    assert len(stream.initial) == 4 * 52
    assert [len(task.pool_new) - task.pool_new.sum() for task in stream.tasks] == [112, 168, 208]
    assert [task.pool_new.sum() for task in stream.tasks] == [104] * 3
    assert [task.reuse for task in stream.tasks] == [
        0.0,
        pytest.approx(112 / 168),
        pytest.approx(0.75, abs=0.03),
    ]
    assert all(task.test_ratio == 2.0 and len(task.test) == 120 for task in stream.tasks)


def test_too_few_old_test_samples_cost_new_ones() -> None:
    task = build_stream(labels_of([100] * 4), StreamSettings(1, 3), seed=0).tasks[0]
    assert (task.test_new.sum(), (~task.test_new).sum()) == (10, 20)


def test_classes_are_split_alike_whatever_the_increment() -> None:
    labels = labels_of([30] * 8)
    order = tuple(f"c{i}" for i in range(8))
    by_one, by_two = (
        build_stream(labels, StreamSettings(2, k, class_order=order), 3) for k in (1, 2)
    )
    np.testing.assert_array_equal(by_one.initial, by_two.initial)
    first_two = {int(i) for t in by_one.tasks[:2] for i in t.pool[t.pool_new]}
    assert first_two == set(by_two.tasks[0].pool[by_two.tasks[0].pool_new].tolist())


def test_other_seeds_give_other_orders() -> None:
    labels = labels_of([10] * 8)
    orders = {build_stream(labels, StreamSettings(4, 2), s).initial_classes for s in range(5)}
    assert len(orders) > 1


def test_a_rest_smaller_than_an_increment_is_dropped() -> None:
    stream = build_stream(labels_of([10] * 20), StreamSettings(8, 5), seed=0)
    assert (len(stream.tasks), len(stream.dropped_classes)) == (2, 2)


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(0, 200))
def test_quotas_are_as_even_as_capacities_allow(capacities: list[int], total: int) -> None:
    quotas = balanced_quotas(capacities, total)
    assert sum(quotas) == min(total, sum(capacities))
    assert all(0 <= q <= c for q, c in zip(quotas, capacities, strict=True))
    not_full = [q for q, c in zip(quotas, capacities, strict=True) if q < c]
    assert not not_full or max(quotas) - min(not_full) <= 1


@given(st.floats(1e-6, 1.0), st.integers(1, 10_000))
def test_a_budget_pays_for_at_least_one_and_at_most_all(budget: float, pool: int) -> None:
    assert 1 <= labels_for(budget, pool) <= pool


@pytest.mark.parametrize("budget", [0.0, -0.1, float("nan")])
def test_a_budget_of_nothing_is_refused(budget: float) -> None:
    with pytest.raises(BudgetError):
        labels_for(budget, 100)


def test_a_pool_smaller_than_the_budget_is_refused() -> None:
    with pytest.raises(PoolTooSmallError, match="150 labels, but the pool has only 100"):
        labels_for(1.5, 100)


@pytest.mark.parametrize(
    ("settings_", "error"),
    [
        ({"initial": 4, "increment": 2}, NotEnoughClassesError),
        ({"initial": 0, "increment": 1}, NotEnoughClassesError),
        ({"initial": 1, "increment": 0}, NotEnoughClassesError),
        ({"initial": 1, "increment": 1, "ratio": 0.0}, ShareError),
        ({"initial": 1, "increment": 1, "test_share": 1.0}, ShareError),
        ({"initial": 1, "increment": 1, "holdout_share": 0.0}, ShareError),
        ({"initial": 1, "increment": 1, "class_order": ("c0", "c1")}, ClassOrderError),
        ({"initial": 1, "increment": 1, "class_order": ("c0", "c0", "c1")}, ClassOrderError),
        ({"initial": 1, "increment": 1, "class_order": ("c0", "c1", "x")}, ClassOrderError),
    ],
)
def test_impossible_settings_are_refused(
    settings_: dict[str, object], error: type[EvaluationError]
) -> None:
    with pytest.raises(error):
        build_stream(labels_of([10] * 3), StreamSettings(**settings_), seed=0)  # type: ignore[arg-type]


def test_a_class_too_small_to_split_is_named() -> None:
    with pytest.raises(ClassTooSmallError, match="'c1' has 2 samples"):
        build_stream(labels_of([10, 2, 10]), StreamSettings(1, 1), seed=0)
