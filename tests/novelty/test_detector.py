"""A detector is immutable, calibrated, and tells what it has seen from what it has not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.novelty.detector import Calibration, Detector, held_out
from monitor.novelty.errors import (
    ClassTooSmall,
    DimensionMismatch,
    DuplicateClass,
    FingerprintMismatch,
    InvalidDetector,
    InvalidFeatures,
    MissingLabels,
    UnknownClass,
)
from monitor.novelty.fingerprint import Fingerprint
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.store.snapshots import from_state, to_state
from tests.novelty.worlds import World, name


@pytest.fixture
def world() -> World:
    return World()


def test_known_samples_are_known_and_strangers_are_news(world: World) -> None:
    detector = world.detector()
    known = detector.score(np.concatenate([world.draw(c, 200) for c in range(3)]))
    stranger = detector.score(world.draw(4, 200))
    assert known.novel.mean() < 0.12
    assert stranger.novel.mean() > 0.9
    expected = np.repeat(range(3), 200)
    assert (known.nearest == expected).mean() > 0.95
    np.testing.assert_allclose(known.ratio, known.score / detector.calibration.t_inner, rtol=1e-5)


def test_t_inner_comes_from_samples_that_no_subspace_has_seen(world: World) -> None:
    detector = world.detector()
    references = detector.references
    assert np.bincount(references.classes).tolist() == [120, 120, 120]  # every labelled sample
    assert detector.calibration.count == detector.fre_calibration.count == len(references)
    # A subspace reconstructs what it was fitted on better than what it was not.
    seen = detector.fre(references.features)
    own = np.arange(len(references)), references.classes
    assert (detector.reference_fre()[own] > seen[own]).mean() > 0.9
    # What was measured without a sample's help is what fresh samples have.
    fresh = np.concatenate([world.draw(c, 400) for c in range(3)])
    assert detector.score(fresh).novel.mean() == pytest.approx(0.05, abs=0.03)
    assert detector.calibration.exceedance == pytest.approx(0.06, abs=0.01)


def test_the_paper_holds_a_tenth_out(world: World) -> None:
    detector = world.detector(settings=PaperSettings())
    references = detector.references
    assert np.bincount(references.classes).tolist() == [12, 12, 12]
    np.testing.assert_allclose(detector.reference_fre(), detector.fre(references.features))
    expected = Calibration.of(detector.s0(references.features), detector.settings)
    assert detector.calibration == detector.fre_calibration == expected
    assert [known.count for known in detector.classes] == [120, 120, 120]


def test_p_known_is_uniform_for_known_samples_and_tiny_for_new_ones(world: World) -> None:
    for settings in (RobustSettings(), PaperSettings()):
        detector = world.detector(settings=settings)
        known = detector.score(np.concatenate([world.draw(c, 300) for c in range(3)])).p_known
        assert ((known > 0) & (known <= 1)).all()
        assert np.mean(known <= 0.2) == pytest.approx(0.2, abs=0.12)
        assert np.median(detector.score(world.draw(4, 100)).p_known) < 0.05


def test_memory_of_a_large_class_is_bounded(world: World) -> None:
    x, y = world.labelled(range(2), 90)
    detector = Detector.fit(x, y, settings=RobustSettings(references_most=25))
    assert [len(known.references) for known in detector.classes] == [25, 25]
    assert [known.count for known in detector.classes] == [90, 90]


@pytest.mark.parametrize(
    ("count", "held"), [(1, 0), (2, 0), (3, 0), (4, 1), (6, 3), (10, 3), (100, 10)]
)
def test_tiny_classes_keep_samples_to_fit_on(count: int, held: int) -> None:
    assert held_out(count, RobustSettings()) == held


def test_fre_or_its_square_give_the_same_order(world: World) -> None:
    x, y = world.labelled(range(3), 60)
    probe = np.concatenate([world.draw(c, 30) for c in range(6)])
    paper = PaperSettings()
    assert not paper.squared, "the paper's FRE is a norm"
    square = Detector.fit(x, y, settings=paper.replace(squared=True)).score(probe)
    norm = Detector.fit(x, y, settings=paper).score(probe)
    np.testing.assert_allclose(np.sqrt(square.score), norm.score, rtol=1e-4)
    np.testing.assert_array_equal(square.nearest, norm.nearest)


def test_changes_make_another_detector_and_leave_this_one(world: World) -> None:
    detector = world.detector()
    probe = world.draw(1, 40)
    before = detector.fre(probe)
    fewer = detector.without_class(name(0))
    assert [c.name for c in fewer.classes] == [name(1), name(2)]
    np.testing.assert_allclose(fewer.fre(probe), before[:, 1:], rtol=1e-3)
    again = fewer.with_classes([detector.find(name(0))])
    np.testing.assert_allclose(again.fre(probe)[:, 2], before[:, 0], rtol=1e-3)
    assert len(detector.classes) == 3
    np.testing.assert_array_equal(detector.fre(probe), before)


def test_a_merged_class_is_near_to_whatever_either_was_near_to(world: World) -> None:
    detector = world.detector()
    probe = world.draw(2, 40)
    merged = detector.merged(name(0), [name(2)])
    assert [(c.id, c.name) for c in merged.classes] == [("c1", name(0)), ("c2", name(1))]
    errors = detector.fre(probe)
    expected = np.minimum(errors[:, 0], errors[:, 2])
    np.testing.assert_allclose(merged.fre(probe)[:, 0], expected, rtol=1e-3)
    assert merged.classes[0].count == 240


def test_names_change_and_ids_do_not(world: World) -> None:
    detector = world.detector()
    renamed = detector.renamed(name(1), "lake")
    assert [(c.id, c.name) for c in renamed.classes][1] == ("c2", "lake")
    assert renamed.find("c2").name == renamed.find("lake").name == "lake"
    with pytest.raises(UnknownClass, match="class-1"):
        renamed.find("class-1")
    with pytest.raises(DuplicateClass, match="class-0"):
        detector.renamed(name(1), name(0))


def test_state_goes_round_bit_for_bit(world: World) -> None:
    detector = world.detector().merged(name(0), [name(2)])
    arrays, meta = to_state(detector)
    again = from_state({k: v.copy() for k, v in arrays.items()}, meta)
    probe = world.draw(5, 50)
    np.testing.assert_array_equal(again.score(probe).score, detector.score(probe).score)
    assert again.calibration == detector.calibration
    assert again.settings == detector.settings
    assert again.fingerprint == detector.fingerprint
    arrays2, meta2 = to_state(again)
    assert meta2 == meta
    assert {k: v.tobytes() for k, v in arrays2.items()} == {
        k: v.tobytes() for k, v in arrays.items()
    }


def test_state_that_makes_no_sense_is_refused(world: World) -> None:
    arrays, meta = to_state(world.detector())
    with pytest.raises(InvalidDetector, match="incomplete"):
        from_state({k: v for k, v in arrays.items() if "basis" not in k}, meta)
    with pytest.raises(InvalidDetector, match="incomplete"):
        from_state(arrays, {k: v for k, v in meta.items() if k != "fre_calibration"})
    narrow = {**arrays, "c1.references": arrays["c1.references"][:, :5]}
    with pytest.raises(InvalidDetector, match="24 features"):
        from_state(narrow, meta)


def test_bad_input_has_an_error_of_its_own(world: World) -> None:
    x, y = world.labelled(range(2), 30)
    with pytest.raises(MissingLabels, match="row 3 has no label"):
        Detector.fit(x, [*y[:3], " ", *y[4:]])
    with pytest.raises(MissingLabels, match="60 rows of features but 59 labels"):
        Detector.fit(x, y[1:])
    with pytest.raises(ClassTooSmall, match=r"lonely \(1\)"):
        Detector.fit(x, ["lonely", *y[1:]])
    with pytest.raises(FingerprintMismatch, match="7 features"):
        Detector.fit(x, y, fingerprint=Fingerprint.of_features(7))
    detector = Detector.fit(x, y)
    with pytest.raises(DimensionMismatch, match="23 columns"):
        detector.score(x[:, 1:])
    with pytest.raises(InvalidFeatures, match="row 0 has NaN"):
        detector.score(np.full((1, 24), np.nan))
    with pytest.raises(DuplicateClass, match="c1"):
        detector.with_classes([replace(detector.classes[0], name="other")])


def test_an_empty_batch_has_empty_scores(world: World) -> None:
    scores = world.detector().score(np.empty((0, 24)))
    assert scores.score.shape == scores.novel.shape == scores.nearest.shape == (0,)
