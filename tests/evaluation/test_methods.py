"""Every registered method passes every check, on made-up and on real data."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest

from monitor.evaluation.errors import UnknownMethodError
from monitor.evaluation.labelled_features import LabelledFeatures
from monitor.evaluation.methods.er import LARGE_BUFFER, SMALL_BUFFER, er_method
from monitor.evaluation.methods.registry import METHODS, MethodEntry, entry_for, make_method
from monitor.evaluation.methods.shared_by_baselines import hold_out
from monitor.evaluation.plans import BASELINES
from tests.evaluation import checks
from tests.evaluation.samples import digits, synthetic

AVAILABLE = [entry for entry in METHODS.values() if find_spec(entry.module)]


@pytest.mark.parametrize("data", [synthetic, digits], ids=["synthetic", "digits"])
@pytest.mark.parametrize("entry", AVAILABLE, ids=lambda entry: entry.name)
@pytest.mark.parametrize("check", checks.ALL, ids=lambda check: check.__name__)
def test_check(
    check: Callable[..., None], entry: MethodEntry, data: Callable[[], LabelledFeatures]
) -> None:
    check(lambda: make_method(entry.name), data(), entry.labels)


def test_all_baselines_are_available() -> None:
    assert set(BASELINES) <= {entry.name for entry in AVAILABLE}


def test_methods_carry_the_name_they_are_asked_for() -> None:
    assert all(make_method(entry.name).name == entry.name for entry in AVAILABLE)


def test_unknown_method_names_the_nearest() -> None:
    with pytest.raises(UnknownMethodError, match="did you mean 'incdfm-p85'"):
        entry_for("incdfm-85")


# Not by entropy: it falls for a new class as soon as the head has learnt it.
@pytest.mark.parametrize("name", [name for name in BASELINES if name not in ("er", "pseudoer")])
def test_baselines_tell_far_classes_from_known_ones(name: str) -> None:
    labels = entry_for(name).labels
    outcome = checks.run(make_method(name), synthetic(), labels, most_tasks=1)[0]
    is_new = checks.stream_of(synthetic()).tasks[0].test_new
    new, old = outcome.scores[is_new], outcome.scores[~is_new]
    chance_that_new_is_higher = (new[:, None] > old[None, :]).mean()
    assert chance_that_new_is_higher > 0.7


@pytest.mark.parametrize("name", ["er", "er-pnew", "pseudoer", "pseudoer-pnew"])
def test_er_finds_the_new_classes_by_name(name: str) -> None:
    outcome = checks.run(make_method(name), synthetic(), "spends", most_tasks=1)[0]
    assert set(outcome.seen.found) == set(checks.stream_of(synthetic()).tasks[0].new_classes)
    assert bool(outcome.seen.pseudo) == name.startswith("pseudo")


@pytest.mark.parametrize("name", ["dfm", "incdfm", "incdfm-p85"])
def test_what_was_new_is_known_after_the_update(name: str) -> None:
    data, stream = synthetic(), checks.stream_of(synthetic())
    method, names = make_method(name), np.asarray(data.labels)
    method.start(data.features[stream.initial], names[stream.initial].tolist(), 0)
    task = stream.tasks[0]
    method.observe(data.features[task.pool], lambda asked: [], 0)
    method.update()
    pool = data.features[task.pool]
    method.observe(pool[~task.pool_new], lambda asked: [], 0)
    new = method.score(pool[task.pool_new])
    threshold = method.threshold()
    assert threshold is not None
    assert (new > threshold).mean() < 0.5


def test_the_paper_gives_its_larger_sets_a_larger_buffer() -> None:
    sizes = [er_method("er", name)._settings.capacity for name in ("eurosat", "plants-20", "mine")]
    assert sizes == [SMALL_BUFFER, LARGE_BUFFER, SMALL_BUFFER]


def test_a_pool_with_nothing_above_the_threshold_adds_nothing() -> None:
    data, stream = synthetic(), checks.stream_of(synthetic())
    names = np.asarray(data.labels)
    initial = data.features[stream.initial]
    for name in ("dfm", "incdfm"):
        method = make_method(name)
        method.start(initial, names[stream.initial].tolist(), 0)
        # The samples it was fitted on are as known as any can be.
        fitted, _ = hold_out(names[stream.initial].tolist(), np.random.default_rng(0))
        seen = method.observe(initial[fitted][:10], lambda asked: [], 0)
        before = method.score(initial)
        method.update()
        method.observe(initial[fitted][:10], lambda asked: [], 0)
        assert len(seen.pseudo) == 0
        np.testing.assert_array_equal(before, method.score(initial))
