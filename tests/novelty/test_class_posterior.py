"""The posterior of every class over a pool: what answers spread, and what they confirm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.novelty.array_types import Floats
from monitor.novelty.class_separation import auroc
from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.confirmed_classes import confirmed_names
from monitor.novelty.detector import Detector
from monitor.novelty.pseudo_labeller import PoolAnswers
from monitor.novelty.robust.choose_questions import to_confirm
from monitor.novelty.robust.class_posterior import (
    ClassPosterior,
    doubted,
    known_as_new,
    nearest_labelled,
    placed_pool,
    pool_lessons,
    pool_posterior,
)
from monitor.novelty.robust.pool_belief import PlacedPool, PoolBelief, believed, unanswered
from tests.novelty.worlds import BackboneWorld, name

KNOWN, NEW = 3, 4
SIZES = {0: 60, 1: 60, 2: 60, NEW: 20}


@pytest.fixture(scope="module")
def world() -> BackboneWorld:
    return BackboneWorld(seed=3)


@pytest.fixture(scope="module")
def detector(world: BackboneWorld) -> Detector:
    return world.detector(KNOWN)


@pytest.fixture(scope="module")
def pool(world: BackboneWorld) -> tuple[Floats, np.ndarray]:
    features, labels = world.pool(SIZES)
    return features, np.array(labels)


def some(labels: np.ndarray, kind: int, count: int) -> list[int]:
    rows: list[int] = np.flatnonzero(labels == name(kind))[:count].tolist()
    return rows


def given(detector: Detector, said: dict[int, str | None]) -> PoolAnswers:
    return PoolAnswers.none(detector).plus(list(said), list(said.values()))


def truly(labels: np.ndarray, rows: list[int]) -> dict[int, str | None]:
    return {row: str(labels[row]) for row in rows}


def found(detector: Detector, pool: Floats, said: dict[int, str | None]) -> ClassPosterior:
    return pool_posterior(placed_pool(detector, pool), given(detector, said))


def belief(
    detector: Detector, pool: Floats, said: dict[int, str | None]
) -> tuple[PlacedPool, PoolBelief, PoolAnswers]:
    placed = PlacedPool.of(detector, pool, detector.settings)  # type: ignore[arg-type]
    answers = given(detector, said)
    return placed, believed(placed, unanswered(placed), answers), answers


def names_confirmed(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers) -> frozenset[str]:
    near = nearest_labelled(placed, now, answers)
    return confirmed_names(now, answers, near, placed.settings)


def test_rows_are_probabilities_and_people_have_the_last_word(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    said = truly(labels, [*some(labels, 0, 2), *some(labels, NEW, 2)])
    post = found(detector, features, said)
    assert post.probabilities.shape == (len(features), KNOWN + 1)
    assert (post.known, post.shifted, post.names) == (KNOWN, 0, (name(NEW),))
    np.testing.assert_allclose(post.probabilities.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(post.new, post.probabilities[:, KNOWN])
    columns = [*(c.name for c in detector.classes), *post.names]
    for row, answer in said.items():
        assert post.probabilities[row].max() == 1
        assert columns[int(post.probabilities[row].argmax())] == answer


def test_without_answers_every_sample_belongs_to_what_is_known(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    post = found(detector, features, {})
    assert post.names == ()
    assert post.new.sum() == 0
    known = labels != name(NEW)
    right = np.array([c.name for c in detector.classes])[post.probabilities.argmax(axis=1)]
    assert (right == labels)[known].mean() > 0.9


def test_one_answer_reaches_the_others_of_its_class(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    new = labels == name(NEW)
    one = found(detector, features, truly(labels, some(labels, NEW, 1)))
    assert auroc(one.new[new], one.new[~new]) > 0.9
    several = found(detector, features, truly(labels, [*some(labels, NEW, 6), *some(labels, 0, 3)]))
    assert auroc(several.new[new], several.new[~new]) >= auroc(one.new[new], one.new[~new]) - 0.01


def test_a_wrong_answer_about_one_image_does_not_carry_a_known_class_away(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    said = truly(labels, [*some(labels, NEW, 3), *some(labels, 0, 4)])
    [liar] = some(labels, 0, 5)[4:]
    post = found(detector, features, said | {liar: name(NEW)})
    others = np.setdiff1d(np.flatnonzero(labels == name(0)), [liar])
    assert (post.new[others] > 0.5).mean() < 0.3


def test_cannot_tell_teaches_nothing_and_is_remembered_as_asked(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    said = truly(labels, some(labels, NEW, 3))
    [doubtful] = some(labels, 1, 1)
    without, with_it = (
        found(detector, features, said),
        found(detector, features, said | {doubtful: None}),
    )
    others = np.setdiff1d(np.arange(len(features)), [doubtful])
    np.testing.assert_allclose(without.new[others], with_it.new[others], atol=0.05)
    assert doubtful in with_it.near
    assert doubtful not in without.near


def test_the_nearest_label_of_a_sample_is_never_its_own(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    [alone] = some(labels, NEW, 1)
    placed, now, answers = belief(detector, features, {alone: name(NEW)})
    assert nearest_labelled(placed, now, answers)[alone] < KNOWN, "it is the only one of its class"
    pair = some(labels, NEW, 6)
    placed, now, answers = belief(detector, features, truly(labels, pair))
    near = nearest_labelled(placed, now, answers)
    assert sum(near[row] == KNOWN for row in pair) >= 4


def test_of_known_classes_only_answers_teach_the_discriminant(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    said = truly(labels, [*some(labels, 0, 2), *some(labels, NEW, 2)])
    _, now, answers = belief(detector, features, said)
    assert now.shares is not None
    lessons = pool_lessons(now.shares, now, answers, KNOWN, pseudo_labels=True)
    unasked = now.free
    assert np.flatnonzero(~unasked).tolist() == sorted(said)
    assert lessons[unasked, :KNOWN].sum() == 0
    assert lessons[unasked, KNOWN].sum() > 0
    strict = pool_lessons(now.shares, now, answers, KNOWN, pseudo_labels=False)
    assert strict[unasked].sum() == 0
    np.testing.assert_array_equal(strict[list(said)], lessons[list(said)])


@pytest.mark.parametrize(("named", "confirmed"), [(1, False), (2, False), (3, True), (5, True)])
def test_three_answers_confirm_a_name(
    detector: Detector, pool: tuple[Floats, np.ndarray], named: int, confirmed: bool
) -> None:
    features, labels = pool
    said = truly(labels, [*some(labels, NEW, named), *some(labels, 0, 2)])
    placed, now, answers = belief(detector, features, said)
    assert names_confirmed(placed, now, answers) == ({name(NEW)} if confirmed else set())


def test_dissent_around_a_class_leaves_it_unconfirmed(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    rows = some(labels, NEW, 9)
    said: dict[int, str | None] = dict.fromkeys(rows[:3], "lie")
    said |= dict.fromkeys(rows[3:], None)
    placed, now, answers = belief(detector, features, said)
    assert names_confirmed(placed, now, answers) == frozenset()


def test_confirming_questions_go_to_the_class_and_stop_when_it_is_confirmed(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    rows = some(labels, NEW, 1)
    placed, now, answers = belief(detector, features, truly(labels, rows))
    chosen = to_confirm(placed, now, answers, 5)
    assert len(chosen) == 2, "two answers are missing"
    assert not set(chosen.tolist()) & set(rows)
    assert (labels[chosen] == name(NEW)).all()
    assert len(to_confirm(placed, now, answers, 1)) == 1
    assert len(to_confirm(placed, now, answers, 0)) == 0
    placed, now, answers = belief(detector, features, truly(labels, some(labels, NEW, 3)))
    assert len(to_confirm(placed, now, answers, 5)) == 0


def test_the_presets_settings_are_used_for_a_detector_of_the_paper(
    world: BackboneWorld, pool: tuple[Floats, np.ndarray]
) -> None:
    from monitor.novelty.paper.paper_settings import PaperSettings

    settings: MethodSettings = PaperSettings()
    features, labels = pool
    post = found(world.detector(KNOWN, settings=settings), features, truly(labels, [0, 1, 2]))
    np.testing.assert_allclose(post.probabilities.sum(axis=1), 1, atol=1e-5)


def test_known_samples_that_take_part_unlabelled_look_as_new_as_those_of_the_pool(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    said = truly(labels, [*some(labels, 0, 1), *some(labels, NEW, 3)])
    known = known_as_new(placed_pool(detector, features), given(detector, said))
    assert sorted(known.rows.tolist()) == list(range(len(detector.references)))
    assert known.doubted.max() == 0
    new = found(detector, features, said).new
    truth = labels == name(NEW)
    assert auroc(new[truth], known.named) > 0.95
    fresh = np.delete(new[~truth], 0)
    limit = float(np.quantile(known.named, 0.95))
    assert (fresh > limit).mean() < 0.1
    some_of_them = known.taken(np.array([2, 5]))
    assert some_of_them.rows.tolist() == known.rows[[2, 5]].tolist()


def test_only_what_people_labelled_of_confirmed_classes_takes_part(
    detector: Detector, pool: tuple[Floats, np.ndarray]
) -> None:
    features, labels = pool
    first, second, third = detector.classes
    guessed = np.arange(len(first.references)) >= 10
    mixed = replace(
        detector,
        classes=(replace(first, said=~guessed), replace(second, confirmed=False), third),
    )
    answers = given(mixed, truly(labels, some(labels, NEW, 3)))
    known = known_as_new(placed_pool(mixed, features), answers)
    owners = mixed.references.classes[known.rows]
    assert np.bincount(owners, minlength=3).tolist() == [10, 0, len(third.references)]
    post = pool_posterior(placed_pool(mixed, features), answers)
    np.testing.assert_allclose(doubted(mixed, post), post.probabilities[:, 1])
