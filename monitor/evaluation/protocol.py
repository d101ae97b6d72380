"""The continual protocol as a pure function of labels, settings and a seed.

A stream begins with labelled samples of a few classes and then brings one task after the
other. Each task has an unlabelled pool, in which some classes are new and the rest are
distractors from classes that are old by then, and a test set of the same make. Every method
of a seed is given exactly the same stream.

Where the samples come from: each class is split once into test, hold-out and training parts.
The training part teaches (it fits the detector for the initial classes, and is the new part
of a pool for later ones); the hold-out part returns as old samples in later pools; the test
part is only ever scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.evaluation.errors import (
    BudgetError,
    ClassOrderError,
    ClassTooSmallError,
    NotEnoughClassesError,
    PoolTooSmallError,
    ShareError,
)

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# One sample in each of the three parts.
SMALLEST_CLASS = 3


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How a labelled dataset is turned into a stream of tasks.

    ``ratio`` is old to new samples, 2:1 in the paper, in pools and in test sets alike.
    ``holdout_share`` is taken of what the test split leaves (the paper's "0.35%" read as
    35 percent, as in the configuration of its predecessor incDFM).

    >>> StreamSettings(initial=4, increment=2).ratio
    2.0
    """

    initial: int
    increment: int
    ratio: float = 2.0
    test_share: float = 0.2
    holdout_share: float = 0.35
    class_order: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.initial < 1 or self.increment < 1:
            raise NotEnoughClassesError(
                f"a stream begins with at least one class and adds at least one per task, not "
                f"{self.initial} and {self.increment}; raise --initial or --increment"
            )
        if not 0 < self.ratio < float("inf"):
            raise ShareError(f"the old:new ratio must be above 0, not {self.ratio}; set --ratio")
        for option, share in (
            ("--test-share", self.test_share),
            ("--holdout-share", self.holdout_share),
        ):
            if not 0 < share < 1:
                raise ShareError(f"{option} must lie between 0 and 1, not {share}")


@dataclass(frozen=True, slots=True)
class Task:
    """One pool and its test set, as indices into the dataset.

    ``ratio`` and ``test_ratio`` are what the data allowed, not what was asked for;
    ``reuse`` is the share of the pool's old samples that an earlier pool had shown already.
    """

    number: int
    new_classes: tuple[str, ...]
    old_classes: tuple[str, ...]
    pool: IntArray
    pool_new: BoolArray
    test: IntArray
    test_new: BoolArray
    ratio: float
    test_ratio: float
    reuse: float


@dataclass(frozen=True, slots=True)
class Stream:
    """The initial labelled samples, and the tasks that follow.

    ``dropped_classes`` are those left over when fewer than a full increment remained: a task
    with fewer new classes would not be comparable with the others.

    >>> labels = [name for name in "abcde" for _ in range(10)]
    >>> stream = build_stream(labels, StreamSettings(initial=2, increment=2), seed=0)
    >>> len(stream.initial_classes), len(stream.tasks), len(stream.dropped_classes)
    (2, 1, 1)
    """

    seed: int
    initial: IntArray
    initial_classes: tuple[str, ...]
    tasks: tuple[Task, ...]
    dropped_classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Parts:
    test: IntArray
    holdout: IntArray
    train: IntArray


def build_stream(labels: Sequence[str], settings: StreamSettings, seed: int) -> Stream:
    """The stream of ``seed``: the same arguments always give the same indices."""
    names = np.asarray(labels, dtype=np.str_)
    classes = sorted(set(names.tolist()))
    order = _class_order(classes, settings, seed)
    first_task_needs = settings.initial + settings.increment
    if first_task_needs > len(classes):
        raise NotEnoughClassesError(
            f"{settings.initial} initial classes and {settings.increment} new ones make "
            f"{first_task_needs}, but the data has only {len(classes)}; lower --initial or "
            f"--increment"
        )
    parts = {
        # A class is split alike whatever its place in the order, so that runs with other
        # increments test on the same samples.
        name: _split(np.flatnonzero(names == name), name, settings, (seed, 1, rank))
        for rank, name in enumerate(classes)
    }
    count = (len(order) - settings.initial) // settings.increment
    used = np.zeros(len(names), dtype=np.int64)
    tasks: list[Task] = []
    for number in range(1, count + 1):
        old_count = settings.initial + (number - 1) * settings.increment
        old, new = order[:old_count], order[old_count : old_count + settings.increment]
        task = _task(number, old, new, parts, used, settings.ratio, seed)
        seen = np.zeros_like(used)
        seen[task.pool] = 1
        used = used + seen
        tasks.append(task)
    initial_classes = order[: settings.initial]
    initial = np.concatenate([parts[name].train for name in initial_classes])
    return Stream(
        seed=seed,
        initial=_shuffled(initial, (seed, 2)),
        initial_classes=initial_classes,
        tasks=tuple(tasks),
        dropped_classes=order[settings.initial + count * settings.increment :],
    )


def labels_for(budget: float, pool_size: int) -> int:
    """How many labels a budget pays for: a share of the pool, at least one.

    >>> labels_for(0.00625, 6000)
    38
    >>> labels_for(0.00625, 20)
    1
    """
    if not budget > 0:
        raise BudgetError(f"a budget of {budget} asks for nothing; give a share above 0")
    count = max(1, round(budget * pool_size))
    if count > pool_size:
        raise PoolTooSmallError(
            f"a budget of {budget} pays for {count} labels, but the pool has only {pool_size} "
            f"samples; a budget is a share of the pool, at most 1"
        )
    return count


def balanced_quotas(capacities: Sequence[int], total: int) -> list[int]:
    """Share ``total`` as evenly as the capacities allow; what one lacks, the others give.

    >>> balanced_quotas([10, 2, 10], 12)
    [5, 2, 5]
    """
    total = min(total, sum(capacities))
    level = 0
    while sum(min(capacity, level + 1) for capacity in capacities) <= total and level < total:
        level += 1
    quotas = [min(capacity, level) for capacity in capacities]
    left = total - sum(quotas)
    for i, capacity in enumerate(capacities):
        if left and capacity > level:
            quotas[i] += 1
            left -= 1
    return quotas


def _class_order(classes: list[str], settings: StreamSettings, seed: int) -> tuple[str, ...]:
    if settings.class_order is None:
        shuffled = np.random.default_rng((seed, 0)).permutation(len(classes))
        return tuple(classes[i] for i in shuffled)
    order = settings.class_order
    if len(set(order)) != len(order):
        raise ClassOrderError(f"--class-order names a class twice: {', '.join(order)}")
    unknown = [name for name in order if name not in classes]
    if unknown:
        raise ClassOrderError(
            f"--class-order names {', '.join(unknown)}, but the data has {', '.join(classes)}"
        )
    missing = [name for name in classes if name not in order]
    if missing:
        raise ClassOrderError(f"--class-order leaves out {', '.join(missing)}; name every class")
    return order


def _split(members: IntArray, name: str, settings: StreamSettings, seed: tuple[int, ...]) -> _Parts:
    if len(members) < SMALLEST_CLASS:
        raise ClassTooSmallError(
            f"class {name!r} has {len(members)} samples, but test, hold-out and training parts "
            f"need one each; add samples or leave the class out"
        )
    shuffled = _shuffled(members, seed)
    test = _at_least_one(settings.test_share, len(shuffled), leave=2)
    holdout = _at_least_one(settings.holdout_share, len(shuffled) - test, leave=1)
    return _Parts(shuffled[:test], shuffled[test : test + holdout], shuffled[test + holdout :])


def _at_least_one(share: float, size: int, leave: int) -> int:
    return min(max(1, round(share * size)), size - leave)


def _task(
    number: int,
    old: tuple[str, ...],
    new: tuple[str, ...],
    parts: Mapping[str, _Parts],
    used: IntArray,
    ratio: float,
    seed: int,
) -> Task:
    rng = np.random.default_rng((seed, 3, number))
    pool_new = np.concatenate([parts[name].train for name in new])
    holdouts = [parts[name].holdout for name in old]
    pool_old = _least_used(holdouts, used, max(1, round(ratio * len(pool_new))), rng)
    pool, pool_is_new = _mixed(pool_old, pool_new, rng)

    tests_new = [parts[name].test for name in new]
    tests_old = [parts[name].test for name in old]
    new_size, old_size = sum(map(len, tests_new)), sum(map(len, tests_old))
    if ratio * new_size > old_size:
        # Too few old samples: fewer new ones keep the ratio.
        new_size = max(1, round(old_size / ratio))
    else:
        old_size = max(1, round(ratio * new_size))
    nothing_used = np.zeros_like(used)
    test, test_is_new = _mixed(
        _least_used(tests_old, nothing_used, old_size, rng),
        _least_used(tests_new, nothing_used, new_size, rng),
        rng,
    )
    return Task(
        number=number,
        new_classes=new,
        old_classes=old,
        pool=pool,
        pool_new=pool_is_new,
        test=test,
        test_new=test_is_new,
        ratio=len(pool_old) / len(pool_new),
        test_ratio=float((~test_is_new).sum() / test_is_new.sum()),
        reuse=float(np.mean(used[pool_old] > 0)),
    )


def _least_used(
    groups: Sequence[IntArray], used: IntArray, total: int, rng: np.random.Generator
) -> IntArray:
    """``total`` samples, balanced over the groups; within a group those seen least often."""
    chosen: list[IntArray] = []
    for group, quota in zip(groups, balanced_quotas([len(g) for g in groups], total), strict=True):
        candidates = rng.permutation(group)
        chosen.append(candidates[np.argsort(used[candidates], kind="stable")][:quota])
    return np.concatenate(chosen)


def _mixed(old: IntArray, new: IntArray, rng: np.random.Generator) -> tuple[IntArray, BoolArray]:
    both = np.concatenate([old, new])
    is_new = np.arange(len(both)) >= len(old)
    order = rng.permutation(len(both))
    return both[order], is_new[order]


def _shuffled(values: IntArray, seed: tuple[int, ...]) -> IntArray:
    return np.random.default_rng(seed).permutation(values)
