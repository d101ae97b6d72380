"""The robust loop, part by part: views of a pool, what answers make of them, which are asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.pseudo_labeller import AT_THE_END, PoolAnswers
from monitor.novelty.robust.choose_questions import question_parts
from monitor.novelty.robust.graph_pseudo_labeller import GraphPseudoLabeller
from monitor.novelty.robust.pool_belief import (
    PlacedPool,
    PoolBelief,
    believed,
    pool_views,
    unanswered,
)
from monitor.novelty.robust.robust_settings import VIEWS, RobustSettings
from tests.novelty.worlds import BackboneWorld, name

KNOWN, NEW = 4, (4, 5)
SIZES = {0: 50, 1: 50, 2: 50, 3: 50, 4: 30, 5: 15}


class Setting:
    """A detector, a pool with two new classes, and the truth."""

    def __init__(self, seed: int = 0, settings: RobustSettings | None = None) -> None:
        self.settings = settings or RobustSettings()
        self.world = BackboneWorld(seed=seed)
        features, labels = self.world.labelled(range(KNOWN), 80)
        self.detector = Detector.fit(features, labels, settings=self.settings)
        self.pool, self.labels = self.world.pool(SIZES, seed=seed)
        self.new = np.isin(self.labels, [name(i) for i in NEW])
        self.placed = PlacedPool.of(self.detector, self.pool, self.settings)

    def answers(self, rows: Sequence[int]) -> PoolAnswers:
        told = [self.labels[int(i)] for i in rows]
        return PoolAnswers.none(self.detector).plus(rows, told)

    def first_of_each(self, classes: Sequence[int] = range(6)) -> list[int]:
        return [self.labels.index(name(i)) for i in classes]

    def belief(self, rows: Sequence[int]) -> PoolBelief:
        return believed(self.placed, unanswered(self.placed), self.answers(rows))


@pytest.fixture(scope="module")
def one() -> Setting:
    return Setting()


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_tells_new_samples_from_known_ones_without_a_label(view: str) -> None:
    found = []
    for seed in range(3):
        case = Setting(seed, RobustSettings(views=(view,)))
        worth = pool_views(case.placed, case.detector, ()).worth
        found.append(roc_auc_score(case.new, worth))
    assert np.mean(found) > 0.75


def test_the_views_together_are_better_than_most_alone() -> None:
    aurocs: dict[tuple[str, ...], list[float]] = {}
    for seed in range(3):
        for views in (VIEWS, *((view,) for view in VIEWS)):
            case = Setting(seed, RobustSettings(views=views))
            worth = pool_views(case.placed, case.detector, ()).worth
            aurocs.setdefault(views, []).append(float(roc_auc_score(case.new, worth)))
    alone = sorted(float(np.mean(aurocs[(view,)])) for view in VIEWS)
    assert np.mean(aurocs[VIEWS]) > alone[1] - 0.01


def test_without_views_every_sample_is_worth_the_same() -> None:
    case = Setting(0, RobustSettings(views=()))
    views = pool_views(case.placed, case.detector, ())
    assert np.ptp(views.worth) == 0
    np.testing.assert_allclose(views.new, 0.5)


def test_how_likely_a_sample_is_new_is_a_probability_that_means_something(one: Setting) -> None:
    views = pool_views(one.placed, one.detector, ())
    assert ((views.new > 0) & (views.new < 1)).all()
    assert views.new[one.new].mean() > 2 * views.new[~one.new].mean()
    assert len(views.s0) == len(one.pool) + len(one.detector.references)
    np.testing.assert_allclose(views.s0[: len(one.pool)], one.detector.s0(one.pool), rtol=1e-5)


def test_a_few_corrupt_samples_do_not_take_all_questions(one: Setting) -> None:
    """However extreme, a sample counts no more than so many deviations."""
    pool = one.pool.copy()
    pool[0] *= 1e4
    placed = PlacedPool.of(one.detector, pool, one.settings)
    worth = pool_views(placed, one.detector, ()).worth
    most = np.exp(one.settings.contrast * one.settings.extreme)
    assert worth.max() <= most * (1 + 1e-6)


def test_samples_called_known_count_as_references_where_classes_have_moved(one: Setting) -> None:
    row = int(np.flatnonzero(one.new)[0])
    before = pool_views(one.placed, one.detector, ())
    after = pool_views(one.placed, one.detector, [row])
    order_before = (before.new < before.new[row]).mean()
    order_after = (after.new < after.new[row]).mean()
    assert order_after < order_before


def test_a_belief_is_a_function_of_the_answers(one: Setting) -> None:
    rows = one.first_of_each()
    first, again = one.belief(rows), one.belief(rows)
    assert first.names == again.names == (name(4), name(5))
    assert first.shares is not None
    assert again.shares is not None
    np.testing.assert_array_equal(first.shares, again.shares)
    early = one.belief(rows[:2])
    later = one.belief(rows)
    assert early.names == ()
    np.testing.assert_array_equal(later.shares, first.shares)


def test_answers_reach_the_samples_of_their_class(one: Setting) -> None:
    belief = one.belief(one.first_of_each())
    assert belief.shares is not None
    np.testing.assert_allclose(belief.shares.sum(axis=1), 1.0, rtol=1e-5)
    guessed = [belief.name_of(i, one.detector) for i in range(len(one.pool))]
    right = np.array([g == truth for g, truth in zip(guessed, one.labels, strict=True)])
    assert right.mean() > 0.85
    assert right[one.new].mean() > 0.85


def test_before_the_first_answer_nothing_is_suggested(one: Setting) -> None:
    first = unanswered(one.placed)
    assert first.shares is None
    assert first.name_of(0, one.detector) is None
    assert first.names == ()
    assert first.known == KNOWN


def test_the_views_move_the_odds_but_never_decide() -> None:
    shares = {}
    for least in (0.1, 0.5):
        case = Setting(0, RobustSettings(least_evidence=least, mind_shift=False))
        belief = case.belief(case.first_of_each())
        assert belief.shares is not None
        shares[least] = belief.shares[:, KNOWN:].sum(axis=1)
        new = case.new
    odds = [s / np.maximum(1 - s, 1e-9) for s in (shares[0.1], shares[0.5])]
    inside = (shares[0.5] > 0.01) & (shares[0.5] < 0.99)
    ratio = odds[0][inside] / odds[1][inside]
    assert ratio.max() <= 9 * 1.01
    assert ratio.min() >= 1 / 9 * 0.99
    assert shares[0.1][new].mean() >= shares[0.5][new].mean() - 0.01


def test_what_was_answered_stays_as_it_was_answered(one: Setting) -> None:
    rows = one.first_of_each()
    belief = one.belief(rows)
    assert belief.shares is not None
    for row in rows:
        assert belief.shares[row].max() == 1.0
        assert belief.name_of(row, one.detector) == one.labels[row]


def test_a_common_shift_gives_every_class_a_shifted_one() -> None:
    case = Setting(1)
    dirt = 0.8 * case.pool.std(axis=0) * np.where(np.arange(96) % 2, 1, -1)
    moved: Floats = (case.pool + dirt).astype(np.float32)
    placed = PlacedPool.of(case.detector, moved, case.settings)
    rows = case.first_of_each(range(KNOWN))
    belief = believed(placed, unanswered(placed), case.answers(rows))
    assert belief.moved >= 2
    assert belief.known == 2 * KNOWN
    ids = [c.id for c in belief.classes.classes]
    assert ids[KNOWN:] == [f"{one}'" for one in ids[:KNOWN]]
    still = case.belief(rows)
    assert (still.moved, still.known) == (0, KNOWN)
    blind = PlacedPool.of(case.detector, moved, RobustSettings(mind_shift=False))
    assert believed(blind, unanswered(blind), case.answers(rows)).moved == 0


def labeller(case: Setting, settings: RobustSettings | None = None) -> GraphPseudoLabeller:
    chosen = settings or case.settings
    return GraphPseudoLabeller.of(case.detector, case.pool, chosen, np.random.default_rng(0))


def test_the_first_questions_go_where_the_pool_looks_new(one: Setting) -> None:
    none = PoolAnswers.none(one.detector)
    step = labeller(one).step(0, none, 6)
    assert len(step.ask) == 6
    assert step.suggestions == (None,) * 6
    assert one.new[step.ask].mean() > 2 * one.new.mean()
    assert {one.labels[i] for i in step.ask} >= {name(4), name(5)}


def test_a_step_changes_nothing_in_the_labeller(one: Setting) -> None:
    asks = labeller(one)
    answers = one.answers(one.first_of_each())
    first = asks.step(1, answers, 5)
    asks.step(2, answers.plus(first.ask, [one.labels[i] for i in first.ask]), 5)
    asks.conclude(answers)
    again = asks.step(1, answers, 5)
    np.testing.assert_array_equal(first.ask, again.ask)
    assert first.suggestions == again.suggestions


def test_once_something_is_new_later_questions_go_everywhere(one: Setting) -> None:
    answers = one.answers(one.first_of_each(NEW))
    spread = RobustSettings(ask_confirm=0.0)
    where_new = labeller(one, spread.replace(everywhere_from=10**6)).step(2, answers, 10)
    everywhere = labeller(one, spread).step(2, answers, 10)
    assert one.new[everywhere.ask].sum() < one.new[where_new.ask].sum()
    assert len({one.labels[i] for i in everywhere.ask}) >= KNOWN


def test_top_asks_for_the_highest_share_of_new_classes(one: Setting) -> None:
    answers = one.answers(one.first_of_each())
    step = labeller(one, RobustSettings(query="top")).step(1, answers, 8)
    assert one.new[step.ask].mean() > 0.9
    assert not set(step.ask.tolist()) & set(answers.asked.tolist())


def test_a_pool_is_quiet_after_enough_answers_and_not_before() -> None:
    case = Setting(2)
    clean, labels = case.world.pool(dict.fromkeys(range(KNOWN), 60), seed=2)
    asks = GraphPseudoLabeller.of(case.detector, clean, case.settings, np.random.default_rng(0))
    answers = PoolAnswers.none(case.detector)
    rows = list(range(case.settings.quiet_labels))
    few = answers.plus(rows[:-1], [labels[i] for i in rows[:-1]])
    assert asks.step(1, few, 5).ask.size == 5
    enough = answers.plus(rows, [labels[i] for i in rows])
    done = asks.step(1, enough, 5)
    assert (done.ask.size, done.done) == (0, True)
    with_new = enough.plus([100], ["ship"])
    assert asks.step(1, with_new, 5).ask.size == 5


def test_pseudo_labels_are_the_surest_of_what_nobody_was_asked_about(one: Setting) -> None:
    rows = one.first_of_each()
    result = labeller(one).conclude(one.answers(rows))
    assert {p.name for p in result.pseudo} == {name(4), name(5)}
    assert all(p.round == AT_THE_END for p in result.pseudo)
    assert not {p.sample for p in result.pseudo} & set(rows)
    assert all(p.confidence >= one.settings.confidence for p in result.pseudo)
    right = np.mean([one.labels[p.sample] == p.name for p in result.pseudo])
    assert right > 0.85
    for chosen in (name(4), name(5)):
        sure = [p.confidence for p in result.pseudo if p.name == chosen]
        assert sure == sorted(sure, reverse=True)


def test_no_pseudo_labels_where_there_shall_be_none(one: Setting) -> None:
    answers = one.answers(one.first_of_each())
    assert labeller(one).conclude(answers).pseudo
    assert labeller(one, RobustSettings(pseudo_labels=False)).conclude(answers).pseudo == ()


@pytest.mark.parametrize("second", [True, False])
def test_the_final_score_tells_new_from_known_on_samples_of_no_pool(
    one: Setting, second: bool
) -> None:
    result = labeller(one, RobustSettings(second_opinion=second)).conclude(
        one.answers(one.first_of_each())
    )
    test = np.concatenate([one.world.draw(i, 60) for i in range(6)])
    truth = np.repeat(range(6), 60) >= KNOWN
    score = result.score(test)
    assert roc_auc_score(truth, score) > 0.97
    called = score > result.score.threshold
    assert called[truth].mean() > 0.8
    assert called[~truth].mean() < 0.12


def test_without_anything_new_the_score_is_that_of_known_classes(one: Setting) -> None:
    result = labeller(one).conclude(one.answers(one.first_of_each(range(KNOWN))))
    assert result.pseudo == ()
    np.testing.assert_array_equal(result.score(one.pool), one.detector.s0(one.pool))
    assert result.score.threshold == one.detector.fre_calibration.t_inner


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 15, 40, 333])
def test_the_parts_of_a_budget_are_the_budget(budget: int) -> None:
    parts = question_parts(budget, RobustSettings())
    assert sum(parts) == budget
    assert all(part > 0 for part in parts)
    assert parts[0] <= RobustSettings().quiet_labels
    assert question_parts(budget, RobustSettings(one_shot=True)) == [budget]
