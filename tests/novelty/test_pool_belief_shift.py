"""Answers of "known" teach a shift: within a pool, and for good."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.novelty.array_types import Floats
from monitor.novelty.class_separation import auroc
from monitor.novelty.detector import Detector
from monitor.novelty.drift.adaptation import adapt, adapted
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.inner_loop import drive, inner_loop
from monitor.novelty.pool_graph import PoolSpace
from monitor.novelty.pseudo_labeller import PoolAnswers
from monitor.novelty.robust.choose_questions import is_quiet
from monitor.novelty.robust.class_posterior import ClassPosterior, placed_pool, pool_posterior
from monitor.novelty.robust.graph_pseudo_labeller import GraphPseudoLabeller
from monitor.novelty.robust.pool_belief import shifted_answers, with_shifted_classes
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.store.snapshots import from_state, to_state
from tests.novelty.worlds import World, name

KNOWN, NEW = 4, 5
DIRT = 1.5 * np.random.default_rng(3).normal(size=24).astype(np.float32)


@pytest.fixture(scope="module")
def world() -> World:
    return World(classes=8, seed=2)


@pytest.fixture(scope="module")
def detector(world: World) -> Detector:
    return world.detector(KNOWN)


def drawn(world: World, count: int, dirt: Floats | float = 0.0) -> tuple[Floats, list[str]]:
    features, labels = world.labelled(range(KNOWN), count)
    return (features + dirt).astype(np.float32), labels


def sketch(detector: Detector, furthest: float) -> Sketch:
    return Sketch.of(detector, DriftSettings(furthest=furthest))


def moved(detector: Detector, pool: Floats, said: dict[int, int]) -> tuple[int, ...]:
    """The shifted ones among answers that have reached nobody but the samples asked about."""
    known = detector.references
    space = PoolSpace.of(pool, known.features, known.classes, detector.settings.graph)
    return shifted_answers(detector, space, pool, shares(pool, said), said, RobustSettings())


def shares(pool: Floats, said: dict[int, int]) -> np.ndarray:
    found = np.zeros((len(pool), KNOWN))
    for row, place in said.items():
        found[row, place] = 1
    return found


def test_answers_that_agree_tell_the_shift(world: World, detector: Detector) -> None:
    clean, _ = drawn(world, 40)
    dirty, _ = drawn(world, 40, DIRT)
    pool = np.concatenate([clean, dirty])
    said = {len(clean) + i: i // 40 for i in (3, 50, 90)}
    among = {7: 0, 133: 3}
    assert moved(detector, pool, said | among) == tuple(said), "clean samples have not moved"
    shifted = with_shifted_classes(detector, pool, shares(pool, said), said, RobustSettings())
    assert shifted.classes[:KNOWN] == detector.classes
    for known, other in zip(detector.classes, shifted.classes[KNOWN:], strict=True):
        shift = other.modes[0].mean - known.modes[0].mean
        cosine = shift @ DIRT / np.linalg.norm(shift) / np.linalg.norm(DIRT)
        assert cosine > 0.7, "the class that nobody named moves with the others"
    assert shifted.score(dirty).novel.mean() < detector.score(dirty).novel.mean() / 2
    assert shifted.score(clean).novel.mean() < 0.2


def test_answers_about_clean_samples_tell_none(world: World, detector: Detector) -> None:
    clean, _ = drawn(world, 40)
    assert moved(detector, clean, {i: i // 40 for i in range(160)}) == ()
    dirty, _ = drawn(world, 40, DIRT)
    assert moved(detector, dirty, {0: 0, 1: 0}) == (), "one class cannot agree"


def test_shifted_samples_are_not_taken_for_new_ones(world: World) -> None:
    """Equal parts of known, shifted and new, and ten answers; scored on samples not in the pool."""
    found = {}
    for mind in (False, True):
        detector = world.detector(KNOWN, settings=RobustSettings(mind_shift=mind))
        (clean, names), (dirty, again) = drawn(world, 30), drawn(world, 30, DIRT)
        pool = np.concatenate([clean, dirty, world.draw(NEW, 120)])
        truth = names + again + [name(NEW)] * 120
        update = drive(inner_loop(detector, pool, budget=10), truth.__getitem__)
        if mind:
            assert [d.name for d in update.discoveries] == [name(NEW)]
        test = update.score(world.draw(NEW, 100)), update.score(drawn(world, 30, DIRT)[0])
        found[mind] = auroc(*test)
    assert found[True] > 0.97
    assert found[True] >= found[False] - 0.01


def test_questions_go_to_what_is_shifted_where_references_speak_for_the_rest(world: World) -> None:
    """Two thirds clean: asked alike, most questions would go where nobody needs to be asked."""
    shares = {}
    for worth in (0.1, 1.0):
        detector = world.detector(KNOWN, settings=RobustSettings(ask_clean=worth))
        (clean, names), (dirty, again) = drawn(world, 80), drawn(world, 30, DIRT)
        pool = np.concatenate([clean, dirty, world.draw(NEW, 40) + DIRT])
        truth = names + again + [name(NEW)] * 40
        update = drive(inner_loop(detector, pool, budget=40), truth.__getitem__)
        assert [d.name for d in update.discoveries] == [name(NEW)]
        last = np.array(update.rounds[-1].asked)
        shares[worth] = float((last >= len(clean)).mean())
    assert shares[0.1] > shares[1.0] + 0.1, shares
    assert shares[0.1] < 1, "some are still asked about"


def settled(world: World, dirt: Floats | float, lessons: int) -> tuple[ClassPosterior, list[str]]:
    """A pool with something new and one answer in eight, settled after so many lessons."""
    settings = RobustSettings(shift_lessons=lessons)
    detector = world.detector(KNOWN, settings=settings)
    known, names = drawn(world, 40, dirt)
    pool = np.concatenate([known, world.draw(NEW, 40) + dirt]).astype(np.float32)
    truth = [*names, *[name(NEW)] * 40]
    told = range(0, len(pool), 8)
    answers = PoolAnswers.none(detector).plus(told, [truth[i] for i in told])
    return pool_posterior(placed_pool(detector, pool), answers), truth


@pytest.mark.parametrize("lessons", [1, 3, 6])
def test_lessons_change_no_answer_and_leave_probabilities(lessons: int) -> None:
    found, truth = settled(World(classes=8, seed=2), DIRT, lessons)
    assert found.shifted == KNOWN
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0, atol=1e-5)
    columns = [f"class-{i % KNOWN}" for i in range(2 * KNOWN)] + list(found.names)
    said = [columns[found.probabilities[i].argmax()] for i in range(0, len(truth), 8)]
    assert said == truth[::8]
    is_new = np.array(truth) == name(NEW)
    assert auroc(found.new[is_new], found.new[~is_new]) > 0.97


def test_without_a_shift_nothing_is_taught_twice() -> None:
    once, often = (settled(World(classes=8, seed=2), 0.0, lessons)[0] for lessons in (1, 6))
    assert once.shifted == often.shifted == 0
    np.testing.assert_array_equal(once.probabilities, often.probabilities)


def test_a_learnt_shift_is_no_longer_news_but_a_new_class_is(
    world: World, detector: Detector
) -> None:
    pool, labels = drawn(world, 60, DIRT)
    names = [known.name for known in detector.classes]
    told = {i: names.index(labels[i]) for i in (0, 70, 130, 200)}
    found = adapt(sketch(detector, 5.0), pool, told)
    assert len(found.adapted) == KNOWN
    assert not found.refused
    later, _ = drawn(world, 60, DIRT)
    assert detector.score(later).novel.mean() > 0.5
    assert found.detector.score(later).novel.mean() < 2 * 0.08
    new = world.draw(NEW, 100)
    before, after = (d.score(new).novel.mean() for d in (detector, found.detector))
    assert after > before - 0.05
    for known, first in zip(found.detector.classes, detector.classes, strict=True):
        assert known.modes[0] is first.modes[0], "what was fitted at first never moves"


def test_a_learnt_shift_leaves_the_verdicts_on_clean_images_as_they_were() -> None:
    """In many directions: a further mode has those of the first, which references took part in."""
    wide = World(classes=4, dimension=200, seed=5)
    detector = wide.detector(KNOWN)
    dirt = np.random.default_rng(3).normal(size=200).astype(np.float32)
    pool, labels = drawn(wide, 60, dirt)
    names = [known.name for known in detector.classes]
    told = {i: names.index(labels[i]) for i in (0, 70, 130, 200)}
    found = adapt(sketch(detector, 50.0), pool, told)
    assert len(found.adapted) == KNOWN
    clean, _ = drawn(wide, 100)
    before, after = (d.score(clean).novel.mean() for d in (detector, found.detector))
    assert abs(after - before) < 0.05


def test_a_class_is_never_carried_further_than_allowed(world: World, detector: Detector) -> None:
    """Ten small steps, each learnt: the modes stay within the bound of the first look."""
    now, furthest = detector, 1.5
    refused = 0
    for step in range(1, 11):
        pool, _ = drawn(world, 60, 0.3 * step * DIRT)
        found = adapt(sketch(now, furthest), pool, {})
        now, refused = found.detector, refused + len(found.refused)
        assert all(c.distance <= furthest for c in found.adapted)
    assert refused
    assert all(
        0 < share <= 1.01 for share in adapted(now, DriftSettings(furthest=furthest)).values()
    )
    assert len(adapted(now)) == KNOWN, "the first steps were learnt"
    assert all(len(known.modes) <= 4 for known in now.classes)
    gone, _ = drawn(world, 60, 3.0 * DIRT)
    assert now.score(gone).novel.mean() > 0.9


def test_how_far_a_class_has_moved_is_kept_with_it_and_a_merge_is_no_move(
    world: World, detector: Detector
) -> None:
    pool, _ = drawn(world, 60, DIRT)
    learnt = adapt(sketch(detector, 5.0), pool, {}).detector
    shares = adapted(learnt)
    assert set(shares) == {known.id for known in learnt.classes}
    assert adapted(from_state(*to_state(learnt))) == pytest.approx(shares)
    merged = detector.merged("c1", ["c2"])
    assert adapted(merged) == {}
    for step in range(1, 6):
        dirty, _ = drawn(world, 60, 0.2 * step * DIRT)
        merged = adapt(sketch(merged, 5.0), dirty, {}, seed=step).detector
    modes = merged.find("c1").modes
    assert modes[1] is detector.find("c2").modes[0], "looks take no place of what was fitted"
    assert len(modes) == 2 + 3


def test_answers_that_contradict_the_shift_lead_nowhere_far(
    world: World, detector: Detector
) -> None:
    """Each class is said to look like another: that is further than a class may be carried."""
    pool, labels = drawn(world, 40, DIRT)
    names = [known.name for known in detector.classes]
    wrong = {i: (names.index(labels[i]) + 1) % KNOWN for i in (0, 50, 100, 150)}
    found = adapt(sketch(detector, 1.5), pool, wrong)
    assert found.detector is detector
    assert set(found.refused) == {known.id for known in detector.classes}


def test_a_shift_that_mixes_classes_up_is_learnt_from_what_lies_near_the_answers(
    world: World, detector: Detector
) -> None:
    """As noise does: every class goes to nearly the same place, by a way of its own."""
    centre = np.mean([known.modes[0].mean for known in detector.classes], axis=0)

    def mixed(count: int) -> tuple[Floats, list[str]]:
        clean, labels = drawn(world, count, np.zeros_like(DIRT))
        return (centre + 3 * DIRT + 0.25 * (clean - centre)).astype(np.float32), labels

    pool, labels = mixed(60)
    names = [known.name for known in detector.classes]
    told = {i: names.index(labels[i]) for i in range(0, 240, 24)}
    found = adapt(sketch(detector, 10.0), pool, told)
    assert len(found.adapted) == KNOWN
    later, _ = mixed(60)
    assert detector.score(later).novel.mean() > 0.5
    assert found.detector.score(later).novel.mean() < 0.1
    new = world.draw(NEW, 100)
    before, after = (d.score(new).novel.mean() for d in (detector, found.detector))
    assert after > before - 0.05
    # What people called new is no look of anything known, nor is what lies around it.
    strangers = (world.draw(NEW, 60) + 9 * DIRT).astype(np.float32)
    both = np.concatenate([pool, strangers])
    beside = adapt(sketch(detector, 10.0), both, told, new=(240, 260, 280))
    assert len(beside.adapted) == KNOWN
    assert beside.detector.score(strangers).novel.mean() > 0.9


def test_the_same_answers_lead_to_the_same_detector(world: World, detector: Detector) -> None:
    pool, _ = drawn(world, 60, DIRT)
    one, two = (adapt(sketch(detector, 5.0), pool, {}, seed=4) for _ in range(2))
    np.testing.assert_array_equal(one.detector.s0(pool), two.detector.s0(pool))


def test_a_shifted_pool_is_not_called_quiet_by_answers_that_knew_of_no_shift(
    world: World, detector: Detector
) -> None:
    """Noise hides in no excess above T_inner; the first answers go to it, and say known."""
    pool, labels = drawn(world, 30)
    enough = RobustSettings().quiet_labels
    asked = np.linspace(0, len(pool) - 1, enough).astype(np.intp)
    answers = PoolAnswers.none(detector).plus(asked, [labels[i] for i in asked])
    labeller = GraphPseudoLabeller.of(detector, pool, RobustSettings(), np.random.default_rng(0))
    labeller = replace(labeller, placed=replace(labeller.placed, above=0))
    calm = labeller.first
    moved = replace(calm, moved=enough - 1)
    assert is_quiet(labeller.placed, calm, answers)
    assert not is_quiet(labeller.placed, moved, answers)
    others = np.setdiff1d(np.arange(len(pool)), asked)[:enough]
    assert is_quiet(labeller.placed, moved, answers.plus(others, [labels[i] for i in others]))
