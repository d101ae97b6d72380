"""The paper's loop, part by part: routing, ratio, threshold, questions and pseudo-labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from monitor.novelty.detector import Calibration, Detector
from monitor.novelty.paper.linear_pseudo_labeller import (
    LinearLayer,
    LinearPseudoLabeller,
    RoutedRatio,
    iteration_plan,
)
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.pseudo_labeller import PoolAnswers
from monitor.novelty.subspace import Subspace
from tests.novelty.worlds import World, name

KNOWN, NEW = 3, (3, 4)
PAPER = PaperSettings()


class Setting:
    """Three known and two new classes, as the preset paper sees them."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed=seed)
        self.detector = self.world.detector(KNOWN, settings=PAPER)
        self.pool, self.labels = self.world.pool({0: 40, 1: 40, 2: 40, 3: 30, 4: 30}, seed=seed)
        self.new = np.isin(self.labels, [name(i) for i in NEW])

    def labeller(self, settings: PaperSettings = PAPER) -> LinearPseudoLabeller:
        return LinearPseudoLabeller(self.detector, self.pool, settings, np.random.default_rng(0))

    def answers(self, rows: Sequence[int]) -> PoolAnswers:
        told = [self.labels[int(i)] for i in rows]
        return PoolAnswers.none(self.detector).plus(rows, told)

    def some_of(self, index: int, count: int) -> list[int]:
        return [i for i, label in enumerate(self.labels) if label == name(index)][:count]


@pytest.fixture(scope="module")
def one() -> Setting:
    return Setting()


def test_the_layer_routes_samples_to_their_new_class(one: Setting) -> None:
    groups = [one.pool[one.some_of(i, 8)] for i in NEW]
    features, classes = np.concatenate(groups), np.repeat([0, 1], 8)
    layer = LinearLayer.fit(features, classes, 2, PAPER)
    assert layer.weights.shape == (2, 24)
    for route, index in enumerate(NEW):
        assert (layer(one.world.draw(index, 100)) == route).mean() > 0.9


def test_the_layer_is_a_function_of_its_lessons(one: Setting) -> None:
    features, classes = one.pool[:20], np.arange(20) % 3
    first, again = (LinearLayer.fit(features, classes, 3, PAPER) for _ in range(2))
    np.testing.assert_array_equal(first.weights, again.weights)
    np.testing.assert_array_equal(first.bias, again.bias)


def test_more_epochs_fit_closer(one: Setting) -> None:
    features, classes = one.pool, np.array([int(label[-1]) for label in one.labels])
    right = [
        (LinearLayer.fit(features, classes, 5, PaperSettings(epochs=n))(features) == classes).mean()
        for n in (1, 30)
    ]
    assert right[1] >= right[0]
    assert right[1] > 0.95


def test_the_ratio_is_the_papers(one: Setting) -> None:
    """log of S⁰ over the FRE to the class that the layer routes to, FRE as a norm."""
    groups = [one.pool[one.some_of(i, 10)] for i in NEW]
    ratio = RoutedRatio.fit(one.detector, groups, PAPER)
    probe = one.world.draw(3, 20)
    route = ratio.layer(probe)
    new = np.stack([Subspace.fit(g, variance=PAPER.variance).fre(probe) for g in groups], axis=1)
    expected = one.detector.s0(probe) / np.sqrt(new[np.arange(20), route])
    np.testing.assert_allclose(np.exp(ratio(probe)), expected, rtol=1e-3)


def test_t_inner_is_recomputed_for_the_ratio_on_what_is_held_out(one: Setting) -> None:
    groups = [one.pool[one.some_of(i, 10)] for i in NEW]
    ratio = RoutedRatio.fit(one.detector, groups, PAPER)
    held = np.exp(ratio(one.detector.references.features)).astype(np.float32)
    expected = held.mean(dtype=np.float64) + PAPER.deviations * held.std(dtype=np.float64)
    assert np.exp(ratio.threshold) == pytest.approx(expected, rel=1e-4)
    assert Calibration.of(held, PAPER).t_inner == pytest.approx(expected, rel=1e-4)


def test_the_ratio_tells_new_from_known_better_than_s0(one: Setting) -> None:
    groups = [one.pool[one.some_of(i, 10)] for i in NEW]
    ratio = RoutedRatio.fit(one.detector, groups, PAPER)
    test = np.concatenate([one.world.draw(i, 80) for i in range(5)])
    truth = np.repeat(range(5), 80) >= KNOWN
    by_ratio, by_s0 = roc_auc_score(truth, ratio(test)), roc_auc_score(truth, one.detector.s0(test))
    assert by_ratio > 0.98
    assert by_ratio >= by_s0


def test_a_sample_that_a_tiny_class_reproduces_exactly_scores_no_infinity(one: Setting) -> None:
    ratio = RoutedRatio.fit(one.detector, [one.pool[:1]], PAPER)
    assert np.isfinite(ratio(one.pool[:1])).all()
    assert np.isfinite(ratio.threshold)


def test_the_first_questions_are_above_t_inner(one: Setting) -> None:
    step = one.labeller().step(0, PoolAnswers.none(one.detector), 10)
    s0, t_inner = one.detector.s0(one.pool), one.detector.fre_calibration.t_inner
    assert (s0[step.ask] > t_inner).all()
    assert step.above == int((s0 > t_inner).sum())
    assert step.t_inner == pytest.approx(t_inner)
    assert step.suggestions == (None,) * 10


def test_later_questions_are_the_nearest_to_t_inner(one: Setting) -> None:
    asks = one.labeller()
    answers = one.answers([*one.some_of(3, 4), *one.some_of(4, 4)])
    step = asks.step(1, answers, 6)
    score = RoutedRatio.fit(one.detector, [one.pool[r] for r in answers.new.values()], PAPER)
    away = np.abs(np.exp(score(one.pool)) - np.exp(score.threshold))
    free = np.isin(np.arange(len(one.pool)), answers.asked, invert=True)
    assert away[step.ask].max() <= np.sort(away[free])[5] + 1e-6
    assert set(step.suggestions) <= {name(3), name(4)}


@pytest.mark.parametrize("query", ["top", "random"])
def test_ablations_of_the_questions(one: Setting, query: str) -> None:
    answers = one.answers([*one.some_of(3, 4), *one.some_of(4, 4)])
    step = one.labeller(PaperSettings(query=query)).step(1, answers, 12)
    share = one.new[step.ask].mean()
    assert share > 0.9 if query == "top" else share < 0.8
    assert not set(step.ask.tolist()) & set(answers.asked.tolist())


def test_the_surest_fifth_above_t_inner_is_pseudo_labelled(one: Setting) -> None:
    answers = one.answers([*one.some_of(3, 4), *one.some_of(4, 4)])
    counts = []
    for alpha in (0.2, 1.0):
        asks = one.labeller(PaperSettings(alpha=alpha))
        step = asks.step(1, answers, 0)
        given = asks._pseudo
        counts.append(len(given))
        assert len(given) == int(np.ceil(alpha * (step.above - _asked_above(one, answers))))
        assert all(p.round == 1 for p in given.values())
    assert counts[0] < counts[1]


def _asked_above(one: Setting, answers: PoolAnswers) -> int:
    score = RoutedRatio.fit(one.detector, [one.pool[r] for r in answers.new.values()], PAPER)
    return int((score(one.pool[answers.asked]) > score.threshold).sum())


def test_pseudo_labels_accumulate_and_are_mostly_right() -> None:
    right = []
    for seed in range(3):
        case = Setting(seed)
        asks = case.labeller()
        answers = case.answers([*case.some_of(3, 5), *case.some_of(4, 5)])
        seen: set[int] = set()
        for number in range(1, 6):
            asks.step(number, answers, 0)
            assert seen <= set(asks._pseudo)
            seen = set(asks._pseudo)
        result = asks.conclude(answers)
        assert len(result.pseudo) > 15
        right += [case.labels[p.sample] == p.name for p in result.pseudo]
    assert np.mean(right) > 0.9


def test_what_a_person_was_shown_is_no_longer_guessed(one: Setting) -> None:
    asks = one.labeller(PaperSettings(alpha=1.0))
    answers = one.answers([*one.some_of(3, 5), *one.some_of(4, 5)])
    asks.step(1, answers, 0)
    guessed = list(asks._pseudo)[:3]
    told = answers.plus(guessed, [None, "other", name(0)])
    asks.step(2, told, 0)
    assert not set(guessed) & set(asks._pseudo)


def test_nothing_above_t_inner_ends_the_loop(one: Setting) -> None:
    known = np.repeat(one.detector.classes[0].modes[0].mean[None], 5, axis=0)
    asks = LinearPseudoLabeller(one.detector, known, PAPER, np.random.default_rng(0))
    step = asks.step(0, PoolAnswers.none(one.detector), 3)
    assert (step.above, step.done, step.ask.size) == (0, True, 0)


def test_without_answers_the_score_is_s0(one: Setting) -> None:
    result = one.labeller().conclude(PoolAnswers.none(one.detector))
    assert result.pseudo == ()
    np.testing.assert_array_equal(result.score(one.pool), one.detector.s0(one.pool))


@pytest.mark.parametrize("budget", [1, 2, 5, 12, 100])
def test_a_plan_spends_the_budget_and_then_only_pseudo_labels(budget: int) -> None:
    plan = iteration_plan(budget, PAPER)
    assert sum(plan) == budget
    assert plan[0] == max(1, -(-budget // 2))
    assert len(plan) == 1 + PAPER.iterations
    asked = [count > 0 for count in plan]
    assert asked == sorted(asked, reverse=True)


def test_a_detector_of_the_paper_measures_fre_as_a_norm(one: Setting) -> None:
    mode = one.detector.classes[0].modes[0]
    probe = one.world.draw(5, 10)
    np.testing.assert_allclose(
        one.detector.fre(probe)[:, 0], mode.fre(probe, squared=False), rtol=1e-4
    )
    fitted = Detector.fit(*one.world.labelled(range(2), 40), settings=PAPER)
    assert fitted.opinions is None
    scores = fitted.score(probe)
    np.testing.assert_allclose(scores.score, fitted.s0(probe), rtol=1e-6)
