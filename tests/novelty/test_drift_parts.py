"""Drift, part by part: displacements, alarms, words, and what is remembered of a source."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.novelty.detector import Detector
from monitor.novelty.drift import drift_alarm
from monitor.novelty.drift.drift_settings import DRIFT_DEFAULTS, DriftSettings
from monitor.novelty.drift.pool_drift import split_by_shift, wider
from monitor.novelty.drift.sketch import Sketch, coherence
from monitor.novelty.drift.source_state import (
    CleanEvidence,
    Condition,
    Displacement,
    DriftSignature,
    SourceState,
    packed,
    unpacked,
)
from monitor.novelty.drift.wording import changes
from tests.novelty.worlds import World

KNOWN = 4
GROUPS = DRIFT_DEFAULTS.groups * DRIFT_DEFAULTS.halves
DIRT = np.random.default_rng(7).normal(size=24).astype(np.float32)


@pytest.fixture(scope="module")
def world() -> World:
    return World(classes=8, seed=15)


@pytest.fixture(scope="module")
def sketch(world: World) -> Sketch:
    return Sketch.of(world.detector(KNOWN))


def moved(shift: float, count: float = 20.0, *, seed: int = 0, width: int = 64) -> Displacement:
    rng = np.random.default_rng(seed)
    noise = rng.normal(shift, 1 / count**0.5, size=(GROUPS, width))
    return Displacement(noise * count, np.full(GROUPS, count))


def test_evidence_of_still_classes_is_about_standard_normal() -> None:
    found = [coherence(moved(0.0, seed=seed)).evidence for seed in range(200)]
    assert abs(np.mean(found)) < 0.3
    assert np.std(found) < 1.2
    assert np.max(found) < 4


def test_strength_is_the_length_of_the_shift_however_many_images_there_were() -> None:
    for shift in (0.2, 0.5, 1.0):
        few, many = (coherence(moved(shift, n)).strength for n in (20.0, 2000.0))
        assert few == pytest.approx(shift, abs=0.05)
        assert many == pytest.approx(shift, abs=0.01)
    few, many = (coherence(moved(0.3, n)).evidence for n in (20.0, 2000.0))
    assert many > 10 * few, "but the evidence does"


def test_a_group_that_moves_alone_is_no_evidence() -> None:
    """As a new class does, which is taken for one known class."""
    one = moved(0.0)
    sums = one.sums.copy()
    sums[:2] += 5.0 * one.counts[:2, None]
    found = coherence(Displacement(sums, one.counts))
    assert found.evidence < 3
    assert found.strength < 0.3


def test_halves_of_one_group_say_nothing_of_other_classes() -> None:
    """A few images of a source, half of them new: only the class they are taken for is seen."""
    counts = np.array([2.0, 1.0, 11.0, 9.0, 1.0, 0.0])
    found = coherence(Displacement(np.full((GROUPS, 64), 0.4) * counts[:, None], counts))
    assert found.evidence > DRIFT_DEFAULTS.alone_evidence
    assert found.across == 0.0
    everywhere = coherence(moved(0.4))
    assert everywhere.across > DRIFT_DEFAULTS.alone_evidence


def test_a_baseline_takes_away_what_was_always_there() -> None:
    habit = moved(0.8, 5000.0)
    now = moved(0.8, 50.0, seed=1)
    assert coherence(now).evidence > 20
    assert coherence(now, habit.means).evidence < 4


def test_groups_with_a_handful_of_images_do_not_count() -> None:
    counts = np.array([20.0, 20.0, 2.0, 2.0, 0.0, 0.0])
    odd = Displacement(np.full((GROUPS, 8), 9.0) * counts[:, None], counts)
    assert coherence(odd).evidence > 0
    assert coherence(odd, settings=DriftSettings(group_least=50)).evidence == 0


def test_displacements_add_up() -> None:
    first, second = moved(0.1, 10.0), moved(0.3, 30.0, seed=1)
    both = first + second
    assert both.total == first.total + second.total
    np.testing.assert_allclose(both.means * 40, first.means * 10 + second.means * 30)
    again = Displacement.from_json(json.loads(json.dumps(both.to_json())))
    np.testing.assert_allclose(again.means, both.means, atol=1e-3)


def test_a_shift_of_all_classes_shows_and_one_of_the_mixture_does_not(
    world: World, sketch: Sketch
) -> None:
    pool, _ = world.pool(dict.fromkeys(range(KNOWN), 60))
    skewed, _ = world.pool({0: 200, 1: 20, 2: 10, 3: 10})
    clean, other, dirty = (
        coherence(sketch.displacement(x)) for x in (pool, skewed, pool + 1.5 * DIRT)
    )
    assert dirty.evidence > 5 * max(clean.evidence, other.evidence, 1.0)
    assert dirty.strength > 3 * max(clean.strength, other.strength)


def test_the_shift_itself_is_found_in_feature_space(world: World, sketch: Sketch) -> None:
    pool, _ = world.pool(dict.fromkeys(range(KNOWN), 80))
    found = sketch.shift((pool + DIRT).astype(np.float32)) - sketch.shift(pool)
    cosine = found @ DIRT / np.linalg.norm(found) / np.linalg.norm(DIRT)
    assert cosine > 0.9
    assert np.linalg.norm(found) == pytest.approx(float(np.linalg.norm(DIRT)), rel=0.35)
    assert np.linalg.norm(sketch.shift(pool)) < 0.3 * np.linalg.norm(DIRT)


def test_many_sources_at_once_move_as_each_does_alone(world: World, sketch: Sketch) -> None:
    """One of them has a single image, and one has none."""
    pool, _ = world.pool(dict.fromkeys(range(6), 40))
    owners = np.random.default_rng(3).integers(0, 5, len(pool))
    owners[owners == 3] = 4
    owners[17] = 3
    together = sketch.displacements(pool, owners, 6)
    for number, found in enumerate(together):
        alone = sketch.displacement(pool[owners == number])
        np.testing.assert_array_equal(found.counts, alone.counts)
        np.testing.assert_allclose(found.sums, alone.sums, atol=1e-3)
    assert [found.total > 0 for found in together] == [True] * 5 + [False]


def test_nobody_moves_where_nobody_is(sketch: Sketch) -> None:
    nothing = np.empty((0, 24), np.float32)
    np.testing.assert_array_equal(sketch.shift(nothing), np.zeros(24))
    assert sketch.displacement(nothing).total == 0


def test_the_clearest_are_those_that_lie_in_their_class(world: World, sketch: Sketch) -> None:
    pool, labels = world.pool({0: 40, 1: 40, 2: 40, 3: 40, KNOWN + 1: 80})
    errors = sketch.detector.fre(pool)
    half, _ = sketch.clearest(errors)
    everyone, _ = sketch.clearest(errors, 1.0)
    assert len(everyone) == len(pool)
    assert len(half) <= len(pool) / 2 + KNOWN

    def share_new(rows: np.ndarray) -> float:
        return float(np.mean([labels[i] == f"class-{KNOWN + 1}" for i in rows]))

    assert share_new(half) < share_new(everyone)


def test_a_detector_of_one_class_has_a_sketch_too(world: World) -> None:
    alone = Detector.fit(world.draw(0, 60), ["only"] * 60)
    sketch = Sketch.of(alone)
    assert np.isfinite(coherence(sketch.displacement(world.draw(0, 80))).evidence)
    still, dirty = (
        coherence(sketch.displacement(world.draw(0, 80) + move)).strength for move in (0, 2 * DIRT)
    )
    assert dirty > still


def test_classes_that_never_vary_have_a_sketch_without_directions() -> None:
    flat = np.repeat(np.eye(3, dtype=np.float32) * 9, 20, axis=0)
    sketch = Sketch.of(Detector.fit(flat, sorted("abc" * 20)))
    assert coherence(sketch.displacement(flat)).evidence == 0


def test_t_inner_grows_with_the_blur_and_no_further_than_allowed(
    world: World, sketch: Sketch
) -> None:
    pool, _ = world.pool(dict.fromkeys(range(KNOWN), 60))
    rng = np.random.default_rng(0)

    def blurred(scale: float) -> float:
        return wider(sketch, (pool + rng.normal(size=pool.shape) * scale).astype(np.float32))

    assert blurred(0.0) == pytest.approx(1.0, abs=0.35)
    assert 1.0 <= blurred(0.4) <= blurred(2.0)
    assert blurred(50.0) == DRIFT_DEFAULTS.wider_most


def test_a_clean_pool_is_split_into_nothing(world: World, sketch: Sketch) -> None:
    pool, _ = world.pool(dict.fromkeys(range(KNOWN), 50))
    found = split_by_shift(sketch, pool, ["a"] * 100 + ["b"] * 100)
    assert not found.explained.any()
    np.testing.assert_array_equal(found.corrected, pool)
    assert found.share == 0.0
    assert sum(part.samples for part in found.sources.values()) == 200


def test_a_source_named_as_shifted_is_corrected_though_its_pool_is_small(
    world: World, sketch: Sketch
) -> None:
    pool = np.concatenate([world.draw(i, 10) for i in range(KNOWN)]) + 0.8 * DIRT
    alone = split_by_shift(sketch, pool, ["cam"] * 40)
    named = split_by_shift(sketch, pool, ["cam"] * 40, shifted=["cam"])
    assert named.sources["cam"].shifted
    assert named.sources["cam"].left <= alone.sources["cam"].left
    other = split_by_shift(sketch, pool, ["cam"] * 40, shifted=[])
    assert other.sources["cam"].explained == 0


@given(run=st.floats(20, 1e6))
def test_a_longer_promise_has_a_higher_limit(run: float) -> None:
    assert drift_alarm.limit(run) <= drift_alarm.limit(run * 2)
    assert drift_alarm.limit(1.0) == drift_alarm.limit(DRIFT_DEFAULTS.least_run)


def test_the_level_rises_with_evidence_and_falls_back_to_zero() -> None:
    height = drift_alarm.limit(1000.0)
    assert drift_alarm.step(0.0, DRIFT_DEFAULTS.reference, height) == 0.0
    assert drift_alarm.step(0.0, 1.75, height) == pytest.approx(1.0)
    assert drift_alarm.step(3.0, -100.0, height) == 0.0
    most = DRIFT_DEFAULTS.most_at_once * height
    assert drift_alarm.step(0.0, 1e9, height) == pytest.approx(most)
    assert drift_alarm.step(0.0, 1e9, height, DriftSettings(most_at_once=1.0)) == pytest.approx(
        height
    )


@pytest.mark.parametrize(
    ("effects", "words"),
    [
        ({"brightness": 1.0}, ("brighter",)),
        ({"brightness": -1.0}, ("darker",)),
        ({"sharpness": -2.0}, ("blurred",)),
        ({"noise": -3.0}, ()),
        ({"brightness": 0.3, "red": 0.39}, ()),
        ({"unheard": 9.0}, ()),
        ({"noise": 3.0, "sharpness": 1.0}, ("noisier",)),
        ({"noise": 1.0, "sharpness": 3.0}, ("sharper", "noisier")),
        ({"brightness": -2.0, "contrast": -1.0, "blue": 1.5}, ("darker", "bluer")),
        ({"black": 3.0, "brightness": 2.0, "sharpness": -1.0}, ("hazier",)),
        ({"blocks": 2.0, "red": -1.0}, ("more compressed", "less red")),
    ],
)
def test_what_changed_is_said_as_a_person_would(
    effects: dict[str, float], words: tuple[str, ...]
) -> None:
    assert changes(effects) == words


def test_no_more_words_than_help() -> None:
    effects = {"brightness": 5.0, "noise": 4.0, "red": 3.0, "blue": 2.0, "blocks": 1.0}
    assert len(changes(effects)) == DRIFT_DEFAULTS.words_most
    assert changes(effects, DriftSettings(words_most=1)) == ("brighter",)
    assert changes({"brightness": 0.1}, DriftSettings(worth_a_word=0.05)) == ("brighter",)


def signature(shift: float, images: float = 0.0) -> DriftSignature:
    if not images:
        return DriftSignature(moved(shift))
    mean = np.array([shift, 1.0])
    return DriftSignature(moved(shift), images, mean * images, (mean**2 + 0.25) * images)


def test_signatures_add_up_and_statistics_may_be_missing() -> None:
    both = signature(0.0, 10.0) + signature(1.0, 30.0)
    assert both.images == 40.0
    np.testing.assert_allclose(both.mean, [0.75, 1.0])
    assert (both.spread > 0.4).all()
    half = signature(0.0) + signature(1.0, 30.0)
    assert half.images == 30.0
    np.testing.assert_allclose(half.mean, [1.0, 1.0])
    assert half.moved.total == 2 * GROUPS * 20.0


def test_the_state_of_a_source_goes_through_json() -> None:
    state = SourceState(
        key="k",
        first=0.0,
        last=5.0,
        pools=3,
        conditions=(
            Condition("normal", signature(0.0, 8.0), 0.0, 1.0),
            Condition("past", signature(1.0), 2.0, 3.0, pools=2),
        ),
        clean=CleanEvidence().plus(0.4).plus(-0.2),
        level=1.5,
        since=4.0,
        moved=signature(0.7, 3.0),
    )
    again = SourceState.from_json(json.loads(json.dumps(state.to_json())))
    assert json.dumps(again.to_json()) == json.dumps(state.to_json())
    assert again.clean == state.clean
    assert [c.kind for c in again.normal] == ["normal"]
    assert again.moved is not None
    assert again.waiting is None


def test_packed_states_stay_readable() -> None:
    """What a state folder holds was packed by this release, or by one without common words."""
    state = {"key": "k", "pools": 3, "level": 0.0, "since": None}
    assert unpacked("eAGrVspOrVSyUlDKVtJRUCrIz88pBvKMawFWBAbZ") == {"key": "k", "pools": 3}
    assert unpacked("eD+BNMf5g8dANjieoeEATPx4QroWAIphDyA=") == state
    assert unpacked(packed(state)) == state


def test_a_condition_grows_with_the_pools_that_join_it() -> None:
    grown = Condition("normal", signature(0.0), 0.0, 0.0).joined(signature(0.0), 9.0)
    assert (grown.pools, grown.first, grown.last) == (2, 0.0, 9.0)
    assert grown.signature.moved.total == 2 * GROUPS * 20.0


def test_clean_evidence_is_never_surer_than_the_guess_it_began_with() -> None:
    settings = DRIFT_DEFAULTS
    fresh = CleanEvidence()
    assert fresh.standard(settings.prior_spread, settings) == pytest.approx(1.0)
    calm = fresh
    for _ in range(200):
        calm = calm.plus(0.0)
    assert calm.standard(settings.prior_spread, settings) == pytest.approx(1.0)
    wild = fresh
    for number in range(200):
        wild = wild.plus(3.0 if number % 2 else -3.0)
    assert wild.standard(3.0, settings) < 1.5


def test_pools_of_a_backlog_do_not_make_a_source_look_busy() -> None:
    backlog = SourceState(key="k", first=0.0, last=60.0, pools=50)
    month = SourceState(key="k", first=0.0, last=30 * 86_400.0, pools=60)
    assert backlog.pools_a_day == 50
    assert month.pools_a_day == 2
