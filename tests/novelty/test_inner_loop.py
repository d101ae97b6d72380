"""The inner loop finds what is new, within its budget, and says how it came to that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.errors import DimensionMismatch, InvalidAnswer, InvalidBudget
from monitor.novelty.inner_loop import Update, drive, inner_loop
from monitor.novelty.presets import preset_settings
from monitor.novelty.robust.robust_settings import RobustSettings
from tests.novelty.worlds import World, name

PRESETS = ("robust", "paper")


def found(detector: Detector, pool: Floats, labels: list[str], budget: int) -> Update:
    return drive(inner_loop(detector, pool, budget=budget), lambda i: labels[i])


@pytest.mark.parametrize("preset", PRESETS)
def test_two_new_classes_at_once_are_told_apart(preset: str) -> None:
    world = World()
    detector = world.detector(settings=preset_settings(preset))
    pool, labels = world.pool({0: 80, 1: 80, 2: 80, 3: 60, 4: 60})
    update = found(detector, pool, labels, budget=20)
    assert update.outcome == "discovered"
    assert {d.name for d in update.discoveries} == {name(3), name(4)}
    for discovery in update.discoveries:
        guesses = [labels[p.sample] == discovery.name for p in discovery.pseudo]
        assert len(guesses) > 20
        assert np.mean(guesses) > 0.9
        assert all(labels[i] == discovery.name for i in discovery.human)
    score = update.score(pool)
    new = np.array([label in (name(3), name(4)) for label in labels])
    assert (score[new] > update.score.threshold).mean() > 0.8
    assert (score[~new] > update.score.threshold).mean() < 0.15


@pytest.mark.parametrize("preset", PRESETS)
def test_what_was_found_is_no_longer_news(preset: str) -> None:
    world = World()
    detector = world.detector(settings=preset_settings(preset))
    pool, labels = world.pool({0: 80, 1: 80, 2: 80, 3: 60, 4: 60})
    updated = found(detector, pool, labels, budget=20).apply(detector, pool)
    later = np.concatenate([world.draw(3, 100), world.draw(4, 100)])
    assert detector.score(later).novel.mean() > 0.9
    assert updated.score(later).novel.mean() < 0.3
    assert [c.id for c in updated.classes] == ["c1", "c2", "c3", "c4", "c5"]
    assert [c.origin for c in updated.classes] == ["fit"] * 3 + ["discovered"] * 2
    assert updated.find(name(3)).human + updated.find(name(3)).pseudo == updated.find("c4").count


@pytest.mark.parametrize("budget", [12, 24, 60])
def test_a_pool_with_nothing_new_adds_nothing_and_stays_cheap(budget: int) -> None:
    for seed in range(5):
        world = World(seed=seed)
        detector = world.detector()
        pool, labels = world.pool({0: 200, 1: 200, 2: 200}, seed=seed)
        update = found(detector, pool, labels, budget)
        assert update.outcome in ("quiet", "nothing new")
        assert update.discoveries == ()
        assert update.apply(detector, pool).classes == detector.classes
        assert update.missed is not None
        assert (1 - update.missed) ** update.labels == pytest.approx(0.05)


@pytest.mark.parametrize("budget", [60, 200])
def test_saying_that_nothing_is_new_costs_the_same_whatever_the_budget(budget: int) -> None:
    world = World(seed=8)
    detector = world.detector(5)
    pool, labels = world.pool(dict.fromkeys(range(5), 120))
    update = found(detector, pool, labels, budget)
    assert update.outcome == "quiet"
    assert update.labels == RobustSettings().quiet_labels


def test_a_new_class_that_hides_in_a_known_one_is_found() -> None:
    """Half of what looks like class 0 is called otherwise; only class 3 looks new."""
    world = World()
    detector = world.detector()
    pool, labels = world.pool({0: 120, 1: 60, 2: 60, 3: 60})
    twins = [i for i, label in enumerate(labels) if label == name(0)][::2]
    labels = ["twin" if i in set(twins) else label for i, label in enumerate(labels)]
    update = found(detector, pool, labels, budget=24)
    assert {d.name for d in update.discoveries} == {"twin", name(3)}


def test_few_labelled_samples_do_not_make_known_ones_look_new() -> None:
    false_novel, true_novel = [], []
    for seed in range(6):
        world = World(seed=seed)
        features, names = world.labelled(range(3), 30)
        detector = Detector.fit(features, names)
        assert len(detector.references) == 90
        pool, labels = world.pool({0: 50, 1: 50, 2: 50, 3: 50}, seed=seed)
        score = found(detector, pool, labels, budget=12).score
        old = np.concatenate([world.draw(c, 100) for c in range(3)])
        false_novel.append((score(old) > score.threshold).mean())
        true_novel.append((score(world.draw(3, 100)) > score.threshold).mean())
    assert np.mean(false_novel) < 0.08
    assert np.mean(true_novel) > 0.9


def test_replaying_recorded_answers_leads_to_the_same_end() -> None:
    world = World()
    detector = world.detector()
    pool, labels = world.pool({0: 60, 1: 60, 2: 60, 3: 50})
    first = found(detector, pool, labels, budget=15)
    recorded = {i: a for r in first.rounds for i, a in zip(r.asked, r.answers, strict=True)}
    again = drive(inner_loop(detector, pool, budget=15), recorded.__getitem__)
    assert again.rounds == first.rounds
    assert again.discoveries == first.discoveries
    np.testing.assert_array_equal(again.score(pool), first.score(pool))


@given(
    seed=st.integers(0, 1000),
    budget=st.integers(1, 30),
    preset=st.sampled_from(PRESETS),
    query=st.sampled_from(["own", "top", "random"]),
    blind=st.integers(1, 5),
)
@settings(max_examples=25, deadline=None)
def test_no_answer_can_break_the_budget(
    seed: int, budget: int, preset: str, query: str, blind: int
) -> None:
    world = World(seed=seed)
    chosen = preset_settings(preset)
    chosen = chosen if query == "own" else chosen.replace(query=query)
    detector = world.detector(settings=chosen)
    pool, labels = world.pool({0: 20, 1: 20, 3: 15, 4: 5}, seed=seed)
    loop = inner_loop(detector, pool, budget=budget, seed=seed)
    # Every blind-th sample cannot be told: None must neither crash nor be asked again.
    update = drive(loop, lambda i: None if i % blind == 0 else labels[i])
    asked = [i for r in update.rounds for i in r.asked]
    assert len(asked) == len(set(asked)) == update.labels <= budget
    guessed = [p.sample for d in update.discoveries for p in d.pseudo]
    assert not set(guessed) & set(asked)
    assert len(guessed) == len(set(guessed))
    assert np.isfinite(update.score(pool)).all()


def test_answers_of_known_classes_are_used_by_name_or_id() -> None:
    world = World()
    detector = world.detector()
    pool, labels = world.pool({0: 60, 1: 60, 2: 60, 3: 50})
    ids = {c.name: c.id for c in detector.classes}
    by_id = drive(inner_loop(detector, pool, budget=20), lambda i: ids.get(labels[i], labels[i]))
    by_name = found(detector, pool, labels, budget=20)
    assert by_id.known == by_name.known
    assert all(labels[i] == detector.classes[c].name for i, c in by_name.known.items())


def test_ablations_leave_out_what_they_say() -> None:
    world = World()
    pool, labels = world.pool({0: 60, 1: 60, 2: 60, 3: 50})
    for preset in PRESETS:
        bare = world.detector(settings=preset_settings(preset).replace(pseudo_labels=False))
        update = found(bare, pool, labels, budget=12)
        assert all(d.pseudo == () for d in update.discoveries)
        assert update.discoveries


def test_bad_budgets_pools_and_answers_are_refused() -> None:
    world = World()
    detector = world.detector()
    pool = world.draw(3, 10)
    with pytest.raises(InvalidBudget, match="at least 1"):
        next(inner_loop(detector, pool, budget=0))
    with pytest.raises(InvalidBudget, match="pool of 10"):
        next(inner_loop(detector, pool, budget=11))
    with pytest.raises(DimensionMismatch, match="pool: 23 columns"):
        next(inner_loop(detector, pool[:, 1:], budget=2))
    loop = inner_loop(detector, pool, budget=2)
    question = next(loop)
    with pytest.raises(InvalidAnswer, match="answered"):
        loop.send(["x"] * (len(question.samples) + 1))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("preset", PRESETS)
def test_tiny_pools_work(size: int, preset: str) -> None:
    world = World()
    detector = world.detector(settings=preset_settings(preset))
    pool = world.draw(4, size)
    update = drive(inner_loop(detector, pool, budget=1), lambda i: "new")
    assert [d.name for d in update.discoveries] == ["new"]
    assert update.apply(detector, pool).find("new").count == len(update.discoveries[0].samples)
