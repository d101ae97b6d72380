"""The verdict, part by part: whitening, opinions, calibration and what is saved of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from monitor.novelty.array_types import Floats
from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.detector import Calibration, Detector
from monitor.novelty.errors import InvalidDetector, InvalidSettings
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.robust.single_image_score import ModeMeans, Opinions, Whitening
from monitor.novelty.subspace import References
from monitor.store.snapshots import from_state, to_state
from tests.novelty.worlds import BackboneWorld, World, name

KNOWN = 4
ROBUST = RobustSettings()


@pytest.fixture(scope="module")
def world() -> BackboneWorld:
    return BackboneWorld()


@pytest.fixture(scope="module")
def detector(world: BackboneWorld) -> Detector:
    return Detector.fit(*world.labelled(range(KNOWN), 80))


def spread(count: int = 200, *, seed: int = 0) -> Floats:
    """Samples around their class mean: loud in some directions, quiet in others."""
    loud = np.geomspace(5.0, 0.1, 16)
    drawn: Floats = (np.random.default_rng(seed).normal(size=(count, 16)) * loud).astype(np.float32)
    return drawn


def test_whitening_is_the_inverse_of_the_shrunk_covariance() -> None:
    within = spread()
    white = Whitening.of(within, np.zeros(16, np.float32), ROBUST)
    covariance = within.T.astype(np.float64) @ within / len(within)
    shrunk = 0.4 * covariance + 0.6 * np.trace(covariance) / 16 * np.eye(16)
    probe = spread(10, seed=1)
    exact = probe @ np.linalg.inv(shrunk) @ probe.T
    np.testing.assert_allclose(white.product(probe, probe), exact, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(white.squares(probe), np.diag(exact), rtol=1e-3)


def test_full_shrinkage_leaves_space_as_it_is() -> None:
    within = spread()
    white = Whitening.of(within, np.zeros(16, np.float32), RobustSettings(whitening=1.0))
    probe = spread(5, seed=1)
    scale = (within.astype(np.float64) ** 2).sum() / len(within) / 16
    np.testing.assert_allclose(white.squares(probe), (probe**2).sum(axis=1) / scale, rtol=1e-3)


def test_few_axes_come_near_to_all_of_them() -> None:
    within = spread()
    centre = np.zeros(16, np.float32)
    probe = spread(50, seed=1)
    exact = Whitening.of(within, centre, ROBUST).squares(probe)
    near, far = (
        np.abs(
            Whitening.of(within, centre, RobustSettings(whitening_axes=n)).squares(probe) - exact
        )
        for n in (8, 1)
    )
    assert near.mean() < far.mean()


def test_samples_that_are_all_alike_have_nothing_to_whiten_by() -> None:
    white = Whitening.of(np.zeros((20, 8), np.float32), np.zeros(8, np.float32), ROBUST)
    assert np.isfinite(white.squares(np.ones((3, 8), np.float32))).all()


def test_the_middle_of_the_means_and_the_home_of_each_reference() -> None:
    places = np.array([[0, 0], [10, 0], [0, 10]], dtype=np.float32)
    means = ModeMeans(places, np.array([5, 5, 5]), np.array([0, 1]))
    np.testing.assert_allclose(means.middle(), [10 / 3, 10 / 3], rtol=1e-6)
    features = np.array([[1, 0], [9, 1], [1, 9]], dtype=np.float32)
    references = References(features, np.array([0, 1, 1]), np.zeros((3, 2), np.float32))
    assert means.home(references).tolist() == [0, 1, 2], "the nearest mode of its own class"
    alone = ModeMeans(places[:1], np.array([5]), np.array([0]))
    np.testing.assert_array_equal(alone.middle(), [0, 0])


def test_the_score_of_the_usual_sample_is_one_and_never_negative(
    world: BackboneWorld, detector: Detector
) -> None:
    known = np.concatenate([world.draw(i, 200) for i in range(KNOWN)])
    scores = detector.score(known).score
    assert (scores > 0).all()
    assert np.median(scores) == pytest.approx(1.0, abs=0.35)


def test_how_long_a_feature_vector_is_says_nothing(
    world: BackboneWorld, detector: Detector
) -> None:
    """Only what is far beyond everything known is held against an image."""
    known = world.draw(0, 100)
    half, plain = (detector.score(known * np.float32(f)).score for f in (0.8, 1.0))
    order = np.corrcoef(np.log(half), np.log(plain))[0, 1]
    assert order > 0.8


def test_new_images_are_told_from_known_ones_and_by_fre_alone_less_so(
    world: BackboneWorld, detector: Detector
) -> None:
    test = np.concatenate([world.draw(i, 100) for i in range(6)])
    truth = np.repeat(range(6), 100) >= KNOWN
    by_fre = Detector.fit(
        *world.labelled(range(KNOWN), 80), settings=RobustSettings(opinions=False)
    )
    whole = roc_auc_score(truth, detector.score(test).score)
    assert whole > roc_auc_score(truth, by_fre.score(test).score) + 0.05
    assert whole > 0.95


def test_the_rate_of_false_novelty_is_what_was_set(world: BackboneWorld) -> None:
    fresh = np.concatenate([world.draw(i, 300) for i in range(KNOWN)])
    features, labels = world.labelled(range(KNOWN), 150)
    rates = []
    for share in (0.02, 0.06, 0.2):
        fitted = Detector.fit(features, labels, settings=RobustSettings(false_novel=share))
        rates.append(float(fitted.score(fresh).novel.mean()))
        assert rates[-1] == pytest.approx(share, abs=0.5 * share + 0.02)
    assert rates == sorted(rates)


def test_p_known_orders_images_as_their_score_does_within_a_class(
    world: BackboneWorld, detector: Detector
) -> None:
    scored = detector.score(np.concatenate([world.draw(i, 50) for i in range(6)]))
    for position in range(KNOWN):
        mine = scored.nearest == position
        order = np.argsort(scored.score[mine])
        assert (np.diff(scored.p_known[mine][order]) <= 1e-6).all()
    assert ((scored.p_known > 0) & (scored.p_known <= 1)).all()


def test_opinions_survive_as_arrays_and_are_not_computed_again(
    world: BackboneWorld, detector: Detector
) -> None:
    assert detector.opinions is not None
    arrays = detector.opinions.to_arrays()
    again = Opinions.from_arrays({key: value.copy() for key, value in arrays.items()})
    saved = replace(detector, saved=again)
    probe = world.draw(5, 40)
    # The same numbers in another memory layout may be added up in another order.
    np.testing.assert_allclose(saved.score(probe).score, detector.score(probe).score, rtol=1e-5)
    assert saved.opinions is again
    assert arrays["location"].shape == arrays["scale"].shape == (3, KNOWN)


def test_references_are_judged_without_their_own_help(detector: Detector) -> None:
    judged = detector.judged
    assert sorted(judged.rows.tolist()) == list(range(len(detector.references)))
    seen = detector.score(detector.references.features[judged.rows]).score
    assert judged.score.mean() > seen.mean(), "a fit that has seen them finds them usual"


@pytest.mark.parametrize("chosen", [ROBUST, RobustSettings(opinions=False), PaperSettings()])
def test_a_detector_of_any_settings_goes_through_its_state(chosen: MethodSettings) -> None:
    world = World(seed=3)
    detector = world.detector(settings=chosen.replace(graph={"neighbours": 7}))
    arrays, meta = to_state(detector)
    again = from_state(arrays, meta)
    assert again.settings == detector.settings
    assert again.settings.graph.neighbours == 7
    probe = world.draw(4, 30)
    np.testing.assert_array_equal(again.score(probe).p_known, detector.score(probe).p_known)
    assert any(key.startswith("opinions.") for key in arrays) == (detector.opinions is not None)


def test_a_state_with_settings_that_do_not_exist_is_refused() -> None:
    arrays, meta = to_state(World().detector())
    for stored in ({"preset": "robust", "old_number": 100}, {"preset": "other"}, {}):
        with pytest.raises((InvalidDetector, InvalidSettings), match=r"old_number|other|preset"):
            from_state(arrays, {**meta, "settings": stored})


@given(
    values=st.lists(st.floats(0.01, 1e4), min_size=2, max_size=60),
    rate=st.floats(0.01, 0.5),
)
@settings(max_examples=60)
def test_a_calibrated_rate_is_not_exceeded_by_what_it_was_calibrated_on(
    values: list[float], rate: float
) -> None:
    scores = np.asarray(values, dtype=np.float32)
    found = Calibration.at_rate(scores, rate)
    assert found.exceedance <= rate + 1e-9
    assert found.count == len(values)
    assert scores.min() <= found.t_inner <= scores.max()


@given(values=st.lists(st.floats(0.01, 1e4), min_size=2, max_size=60))
def test_mean_plus_deviations(values: list[float]) -> None:
    scores = np.asarray(values, dtype=np.float32)
    low, high = (Calibration.of(scores, PaperSettings(deviations=n)).t_inner for n in (0.0, 2.0))
    assert low == pytest.approx(float(scores.mean(dtype=np.float64)), rel=1e-4)
    assert high >= low


def test_merging_renaming_and_forgetting_keep_the_settings(detector: Detector) -> None:
    for changed in (
        detector.merged(name(0), [name(1)]),
        detector.renamed(name(0), "lake"),
        detector.without_class(name(0)),
    ):
        assert changed.settings == detector.settings
        assert changed.calibration.exceedance <= ROBUST.false_novel + 0.01
