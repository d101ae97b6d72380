"""How many embedders there should be, by what was seen."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from actors.embedder_scaling import Bounds, FeedLoad, Scaler, wanted_embedders

BOUNDS = Bounds(least=2, most=10, lag_seconds=60.0, idle_seconds=300.0)


def loads(*seen: tuple[float, int, int, float]) -> list[FeedLoad]:
    return [FeedLoad(*values) for values in seen]


def busy(waiting: int, *, embedders: int, pace: float = 1.0, seconds: int = 600) -> list[FeedLoad]:
    """Everybody at work for a while, each batch taking ``pace`` seconds."""
    return [
        FeedLoad(at, waiting, round(at * embedders / pace), float(at * embedders))
        for at in range(0, seconds + 1, 5)
    ]


def test_nothing_is_changed_before_anything_is_known() -> None:
    assert wanted_embedders(BOUNDS, 3, loads((0, 10_000, 0, 0.0))) == 3
    assert wanted_embedders(BOUNDS, 3, loads((0, 10_000, 0, 0.0), (5, 10_000, 0, 9.0))) == 3


def test_what_waits_shall_be_done_in_time() -> None:
    # 360 batches of a second each, within a minute: six.
    assert wanted_embedders(BOUNDS, 2, busy(360, embedders=2)) == 6
    assert wanted_embedders(BOUNDS, 6, busy(360, embedders=6)) == 6


def test_never_more_or_fewer_than_allowed() -> None:
    assert wanted_embedders(BOUNDS, 2, busy(100_000, embedders=2)) == 10
    assert wanted_embedders(BOUNDS, 2, busy(0, embedders=0)) == 2


def test_those_who_keep_up_stay_though_little_waits() -> None:
    # Five of six at work all the time: with one fewer the feed would run away.
    assert wanted_embedders(BOUNDS, 6, busy(5, embedders=5)) == 6


def test_a_burst_is_remembered_for_a_while() -> None:
    calm = [FeedLoad(at, 0, 600, 600.0) for at in range(605, 605 + 300, 5)]
    assert wanted_embedders(BOUNDS, 10, [*busy(600, embedders=10), *calm[:30]]) == 10
    assert (
        wanted_embedders(
            BOUNDS, 10, [*busy(600, embedders=10), *calm, FeedLoad(910, 0, 600, 600.0)]
        )
        == 2
    )


def test_a_night_without_images_lets_everybody_go_but_the_least() -> None:
    scaler = Scaler(BOUNDS)
    running = 10
    for at in range(0, 3600, 5):
        running = scaler.wanted(FeedLoad(at, 0, 0, 0.0), running)
        assert running == 10 or at > 300
    assert running == 2


def test_a_load_between_two_numbers_does_not_swing() -> None:
    """A steady feed that needs 3.4 embedders: their number settles and stays."""
    scaler, running, waiting_now, done, worked = Scaler(BOUNDS), 2, 0.0, 0.0, 0.0
    numbers = []
    for at in range(0, 7200, 5):
        waiting_now += 3.4 * 5
        able = min(waiting_now, running * 5.0)
        waiting_now, done, worked = waiting_now - able, done + able, worked + able
        running = scaler.wanted(FeedLoad(at, round(waiting_now), round(done), worked), running)
        numbers.append(running)
    settled = numbers[len(numbers) // 4 :]
    assert set(settled) <= {4, 5}
    assert sum(a != b for a, b in pairwise(settled)) <= 2
    assert waiting_now <= 5 * 60


@given(
    running=st.integers(2, 10),
    seen=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 100), st.floats(0, 500)), min_size=1
    ),
)
def test_the_bounds_hold_whatever_is_seen(running: int, seen: list[tuple[int, int, float]]) -> None:
    done, worked, found = 0, 0.0, []
    for number, (waiting, more, seconds) in enumerate(seen):
        done, worked = done + more, worked + seconds
        found.append(FeedLoad(5.0 * number, waiting, done, worked))
    assert BOUNDS.least <= wanted_embedders(BOUNDS, running, found) <= BOUNDS.most
