"""What the feed must contain for the demo to show what it promises."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.demo.errors import TooFewImages
from monitor.demo.scenes.catalog import SCENES
from monitor.demo.story import MOST_CLASSES, QUIET, SOURCES, START, Story

STORY = Story.of(list(SCENES))


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_each_new_class_first_appears_on_its_day_at_its_source(seed: int) -> None:
    shots = STORY.shots(seed)
    for arrival in STORY.arrivals:
        its = [shot for shot in shots if shot.label == arrival.label]
        assert {shot.source for shot in its} == {arrival.source}
        assert STORY.day_of(its[0].captured_at) == arrival.day
        assert len(its) > 20


def test_classes_arrive_one_after_the_other_and_two_at_once() -> None:
    days = Counter(arrival.day for arrival in STORY.arrivals)
    assert sorted(days.values()) == [1, 1, 1, 2]
    assert min(days) > 0, "the feed begins with nothing new"


def test_the_quiet_source_shows_only_known_classes_through_a_clean_lens() -> None:
    its = [shot for shot in STORY.shots(0) if shot.source == QUIET]
    assert {shot.label for shot in its} == set(STORY.known)
    assert not any(shot.dirty for shot in its)


def test_the_lens_gets_dirty_at_one_source_in_the_middle_and_is_cleaned() -> None:
    shots = STORY.shots(0)
    dirty = [shot for shot in shots if shot.dirty]
    assert {shot.source for shot in dirty} == {STORY.lens.source}
    days = {STORY.day_of(shot.captured_at) for shot in dirty}
    assert days == set(range(STORY.lens.first_day, STORY.lens.last_day + 1))
    assert 0.25 * STORY.days < min(days)
    assert max(days) < 0.75 * STORY.days
    assert not days & {arrival.day for arrival in STORY.arrivals}, "one thing at a time"


def test_no_image_is_shown_twice_nor_learnt_before_it_is_shown() -> None:
    shots = STORY.shots(0)
    assert len({shot.image_id for shot in shots}) == len(shots)
    assert len({(shot.label, shot.number) for shot in shots}) == len(shots)
    assert all(shot.number >= STORY.training for shot in shots if shot.label in STORY.known)


def test_every_source_sends_the_same_number_every_day() -> None:
    sent = Counter((shot.source, STORY.day_of(shot.captured_at)) for shot in STORY.shots(3))
    assert set(sent.values()) == {STORY.per_day}
    assert len(sent) == len(SOURCES) * STORY.days


@given(st.integers(5, 40), st.integers(8, 60), st.integers(5, 50))
def test_any_number_of_classes_tells_a_story(classes: int, days: int, per_day: int) -> None:
    story = Story.of([f"class {i}" for i in range(classes)], days=days, per_day=per_day)
    assert len(story.known) >= 2
    assert len(story.arrivals) >= 3
    assert len(set(story.labels)) == len(story.labels) <= MOST_CLASSES
    pairs = Counter(arrival.day for arrival in story.arrivals)
    assert 2 in pairs.values(), "two arrive at once"
    for source in SOURCES:
        for day in range(days):
            shares = story.shares(source, day)
            assert abs(sum(shares.values()) - 1) < 1e-9
            assert min(shares.values()) > 0


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(TooFewImages, match="at least 5"):
        Story.of(["a", "b", "c", "d"])


def test_times_increase_and_begin_at_the_start() -> None:
    times = [shot.captured_at for shot in STORY.shots(0)]
    assert times == sorted(times)
    assert times[0] >= START
