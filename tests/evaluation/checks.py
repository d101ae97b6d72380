"""What every method owes the evaluation, whatever it does inside.

Each check takes a way to make the method and labelled data, and fails with an assertion. A new
method passes them all before its figures mean anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from monitor.evaluation.labelled_features import LabelledFeatures
from monitor.evaluation.methods.base import Method, Observation, ScoreArray
from monitor.evaluation.methods.registry import Labels
from monitor.evaluation.oracle import Oracle
from monitor.evaluation.protocol import Stream, StreamSettings, build_stream, labels_for

Make = Callable[[], Method]
BUDGET = 0.1


@dataclass(frozen=True)
class Outcome:
    seen: Observation
    scores: ScoreArray
    threshold: float | None
    asked: frozenset[int]
    allowed: int


def stream_of(data: LabelledFeatures, seed: int = 0) -> Stream:
    return build_stream(data.labels, StreamSettings(initial=2, increment=2), seed)


def run(
    method: Method, data: LabelledFeatures, labels: Labels, *, most_tasks: int = 2
) -> list[Outcome]:
    """Take a method through the first tasks of a stream."""
    stream, names = stream_of(data), np.asarray(data.labels)
    method.start(data.features[stream.initial], names[stream.initial].tolist(), stream.seed)
    outcomes = []
    for task in stream.tasks[:most_tasks]:
        allowed = _allowed(labels, len(task.pool))
        oracle = Oracle(names[task.pool].tolist(), allowed)
        seen = method.observe(data.features[task.pool], oracle.ask, allowed)
        scores = method.score(data.features[task.test])
        outcomes.append(Outcome(seen, scores, method.threshold(), oracle.asked, allowed))
        method.update()
    return outcomes


def same_seed_same_result(make: Make, data: LabelledFeatures, labels: Labels) -> None:
    first, second = run(make(), data, labels), run(make(), data, labels)
    for one, other in zip(first, second, strict=True):
        assert one.seen.found == other.seen.found
        assert one.seen.pseudo == other.seen.pseudo
        assert one.threshold == other.threshold
        np.testing.assert_array_equal(one.scores, other.scores)


def inputs_are_not_mutated(make: Make, data: LabelledFeatures, labels: Labels) -> None:
    method, stream, names = make(), stream_of(data), np.asarray(data.labels)
    task = stream.tasks[0]
    initial, known = data.features[stream.initial], names[stream.initial].tolist()
    pool, test = data.features[task.pool], data.features[task.test]
    before = [initial.copy(), list(known), pool.copy(), test.copy()]
    for array in (initial, pool, test):
        array.flags.writeable = False
    method.start(initial, known, 0)
    allowed = _allowed(labels, len(pool))
    method.observe(pool, Oracle(names[task.pool].tolist(), allowed).ask, allowed)
    method.score(test)
    method.update()
    for value, copy in zip([initial, known, pool, test], before, strict=True):
        np.testing.assert_array_equal(value, copy)


def outputs_are_sound(make: Make, data: LabelledFeatures, labels: Labels) -> None:
    """Within budget, finite, and about samples of the pool that nobody was asked about."""
    stream, names = stream_of(data), np.asarray(data.labels)
    known = set(stream.initial_classes)
    for outcome, task in zip(run(make(), data, labels), stream.tasks, strict=False):
        # The oracle raises on the first label too many; this says that none was hidden from it.
        assert len(outcome.asked) <= outcome.allowed
        assert outcome.scores.shape == task.test.shape
        assert np.isfinite(outcome.scores).all()
        assert outcome.threshold is None or np.isfinite(outcome.threshold)
        assert set(outcome.seen.pseudo) <= set(range(len(task.pool)))
        assert not outcome.asked.intersection(outcome.seen.pseudo)
        assert not known.intersection(outcome.seen.found)
        assert set(outcome.seen.found) <= set(names[task.pool].tolist())
        known.update(outcome.seen.found)


def a_single_label_is_enough_to_run(make: Make, data: LabelledFeatures, labels: Labels) -> None:
    method, stream, names = make(), stream_of(data), np.asarray(data.labels)
    task = stream.tasks[0]
    method.start(data.features[stream.initial], names[stream.initial].tolist(), 0)
    allowed = 1 if labels == "spends" else _allowed(labels, len(task.pool))
    method.observe(
        data.features[task.pool], Oracle(names[task.pool].tolist(), allowed).ask, allowed
    )
    assert np.isfinite(method.score(data.features[task.test])).all()


def order_does_not_depend_on_batch_size(make: Make, data: LabelledFeatures, labels: Labels) -> None:
    method, stream, names = make(), stream_of(data), np.asarray(data.labels)
    task = stream.tasks[0]
    method.start(data.features[stream.initial], names[stream.initial].tolist(), 0)
    allowed = _allowed(labels, len(task.pool))
    method.observe(
        data.features[task.pool], Oracle(names[task.pool].tolist(), allowed).ask, allowed
    )
    test = data.features[task.test]
    whole = np.asarray(method.score(test), dtype=np.float64)
    for size in (1, 7, 64):
        parts = [method.score(test[i : i + size]) for i in range(0, len(test), size)]
        pieces = np.concatenate(parts).astype(np.float64)
        # Products of other shapes add in another order: scores may differ in their last
        # digits, so only samples closer than that may change places.
        slack = 1e-4 * (np.abs(whole).max() + 1e-12)
        np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=slack)
        order = np.argsort(whole, kind="stable")
        assert (np.diff(pieces[order]) >= -2 * slack).all()


ALL = (
    same_seed_same_result,
    inputs_are_not_mutated,
    outputs_are_sound,
    a_single_label_is_enough_to_run,
    order_does_not_depend_on_batch_size,
)


def _allowed(labels: Labels, pool_size: int) -> int:
    if labels == "everything":
        return pool_size
    return labels_for(BUDGET, pool_size) if labels == "spends" else 0
