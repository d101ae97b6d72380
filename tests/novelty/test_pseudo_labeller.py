"""Answers about a pool, checked features, fingerprints and references: the small parts."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.novelty.cluster_unanswered_pool import provisional_clusters
from monitor.novelty.detector import Detector
from monitor.novelty.errors import DimensionMismatch, InvalidAnswer, InvalidFeatures
from monitor.novelty.fingerprint import Fingerprint
from monitor.novelty.pseudo_labeller import PoolAnswers
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.subspace import References, as_features
from tests.novelty.worlds import World, name


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def detector(world: World) -> Detector:
    return world.detector()


def test_answers_are_sorted_into_known_new_and_untold(detector: Detector) -> None:
    answers = PoolAnswers.none(detector).plus(
        [4, 7, 9, 11, 13], [name(0), "ship", None, "c2", "boat"]
    )
    assert len(answers.asked) == 5
    assert answers.asked.tolist() == [4, 7, 9, 11, 13]
    assert answers.known == {4: 0, 11: 1}, "by name, or by id"
    assert answers.new == {"boat": [13], "ship": [7]}
    assert list(answers.new) == ["boat", "ship"]
    assert 9 not in answers.told


def test_answers_are_immutable(detector: Detector) -> None:
    first = PoolAnswers.none(detector)
    second = first.plus([1], ["ship"])
    third = second.plus([2], ["boat"])
    assert (len(first.asked), len(second.asked), len(third.asked)) == (0, 1, 2)
    assert list(second.new) == ["ship"]


def test_a_later_answer_about_the_same_sample_replaces_the_earlier(detector: Detector) -> None:
    answers = PoolAnswers.none(detector).plus([1], ["ship"]).plus([1], [name(1)])
    assert answers.new == {}
    assert answers.known == {1: 1}
    assert len(answers.asked) == 1


def test_names_are_stripped_and_empty_ones_refused(detector: Detector) -> None:
    none = PoolAnswers.none(detector)
    assert list(none.plus([0], ["  ship "]).new) == ["ship"]
    with pytest.raises(InvalidAnswer, match="empty name"):
        none.plus([0], ["  "])
    with pytest.raises(InvalidAnswer, match="2 samples were asked about, 1 answered"):
        none.plus([0, 1], ["ship"])


def test_a_class_may_be_called_by_the_id_of_another(detector: Detector) -> None:
    """A name that looks like an id means the class of that name."""
    odd = detector.renamed(name(1), "c1")
    assert PoolAnswers.none(odd).plus([0], ["c1"]).known == {0: 1}


@given(asked=st.sets(st.integers(0, 29), max_size=30))
def test_what_was_asked_is_remembered_in_order(asked: set[int]) -> None:
    answers = PoolAnswers({"a": 0}, dict.fromkeys(sorted(asked), "a"))
    assert answers.asked.tolist() == sorted(asked)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([1.0, 2.0], "one row of numbers per image"),
        (np.zeros((3, 0)), "no columns"),
        ([["a", "b"]], "not a matrix of numbers"),
        ([[1.0], [float("nan")]], r"row 1 has NaN or infinite values \(1 such"),
        ([[float("inf")], [float("nan")]], r"row 0 has NaN or infinite values \(2 such"),
    ],
)
def test_features_that_are_none_are_refused(values: object, match: str) -> None:
    with pytest.raises(InvalidFeatures, match=match):
        as_features(values, what="pool")


def test_features_of_another_width_name_both_widths() -> None:
    with pytest.raises(DimensionMismatch, match="3 columns, but the detector was fitted on 4"):
        as_features(np.zeros((2, 3)), dimension=4, what="pool")


def test_large_finite_numbers_are_features_although_their_sum_is_not() -> None:
    huge = np.full((2, 4), 3e38, dtype=np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(as_features(huge), huge)


def test_features_are_copied_only_when_they_must_be() -> None:
    ready = np.zeros((3, 4), dtype=np.float32)
    assert as_features(ready) is ready or np.shares_memory(as_features(ready), ready)
    assert as_features(np.zeros((3, 4))).dtype == np.float32
    assert as_features(ready.T.copy().T).flags["C_CONTIGUOUS"]


FINGERPRINT = Fingerprint("embedded", "ab" * 32, '{"size": 224}', 1280, "float32")


@pytest.mark.parametrize(
    "change",
    [
        {"backbone": "other"},
        {"weights": "cd" * 32},
        {"preprocessing": '{"size": 192}'},
        {"dimension": 640},
        {"precision": "bfloat16"},
    ],
)
def test_every_part_of_a_fingerprint_tells_features_apart(change: dict[str, object]) -> None:
    other = replace(FINGERPRINT, **change)  # type: ignore[arg-type]
    assert other.digest() != FINGERPRINT.digest()
    [(part, value)] = change.items()
    assert FINGERPRINT.difference(other).startswith(f"{part} ")
    assert repr(value) in FINGERPRINT.difference(other)
    assert FINGERPRINT.difference(FINGERPRINT) == ""


def test_a_fingerprint_goes_through_json() -> None:
    assert Fingerprint(**asdict(FINGERPRINT)) == FINGERPRINT
    assert Fingerprint.of_features(7).dimension == 7


def test_some_references_are_as_many_of_each_class() -> None:
    classes = np.repeat([0, 1, 2], [50, 10, 30])
    all_of = References(np.arange(90, dtype=np.float32)[:, None], classes, np.zeros((90, 3), "f"))
    assert len(all_of) == 90
    np.testing.assert_array_equal(all_of.some(90), np.arange(90))
    chosen = all_of.some(30)
    assert np.bincount(classes[chosen]).tolist() == [10, 10, 10]
    assert chosen[0] == 0, "the first ones of each"
    part = all_of.taken(np.array([3, 60]))
    assert part.classes.tolist() == [0, 2]
    assert part.features.ravel().tolist() == [3.0, 60.0]


def test_clusters_without_a_name_are_the_new_classes(world: World, detector: Detector) -> None:
    pool, labels = world.pool({0: 80, 1: 80, 3: 40, 4: 25})
    groups = provisional_clusters(detector, pool)
    assert [len(group) for group in groups] == sorted(map(len, groups), reverse=True)
    rows = np.concatenate(groups)
    assert len(set(rows.tolist())) == len(rows), "a sample is in one group at most"
    new = np.isin(labels, [name(3), name(4)])
    assert new[rows].sum() > 0.9 * new.sum()
    assert new[groups[0]].mean() > 0.9


def test_a_clean_pool_has_no_cluster_to_speak_of(world: World, detector: Detector) -> None:
    pool, _ = world.pool({0: 100, 1: 100, 2: 100})
    assert sum(map(len, provisional_clusters(detector, pool))) < 0.1 * len(pool)


def test_a_cluster_too_small_for_a_class_makes_none(world: World) -> None:
    pool, _ = world.pool({0: 100, 1: 100, 3: 30})
    assert provisional_clusters(world.detector(), pool)
    strict = world.detector(settings=RobustSettings(provisional_share=0.2))
    assert provisional_clusters(strict, pool) == []
