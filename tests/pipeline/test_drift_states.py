"""The drift of many sources is kept together, and no state is lost or old for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from monitor.pipeline import drift_states
from monitor.pipeline.drift_states import TOGETHER_FROM, DriftStates
from monitor.store import Store
from monitor.store.note_and_counter_names import DRIFT_STATES, RECENT_DRIFT_STATES

MANY = [f"cam-{number:04d}" for number in range(TOGETHER_FROM)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path) as opened:
        yield opened


def keep(store: Store, states: DriftStates, said: str, sources: list[str] = MANY) -> None:
    with store.transaction() as tx:
        states.keep(tx, dict.fromkeys(sources, said))


def read(store: Store, states: DriftStates, *sources: str) -> dict[str, str]:
    with store.reading() as tx:
        return states.read(tx, sources)


def notes(store: Store, room: str) -> int:
    with store.reading() as tx:
        return len(tx.notes.keys(room))


def test_few_sources_have_rows_and_many_have_a_note(store: Store) -> None:
    states = DriftStates()
    keep(store, states, "first", ["cam-1", "cam-2"])
    assert (notes(store, DRIFT_STATES), notes(store, RECENT_DRIFT_STATES)) == (2, 0)
    keep(store, states, "second")
    assert (notes(store, DRIFT_STATES), notes(store, RECENT_DRIFT_STATES)) == (2, 1)
    assert read(store, states, "cam-1", "cam-0007", "nobody") == {
        "cam-1": "first",
        "cam-0007": "second",
    }


def test_the_latest_state_counts_however_few_sources_brought_it(store: Store) -> None:
    states = DriftStates()
    keep(store, states, "first")
    keep(store, states, "second", MANY[:3])
    assert read(store, states, MANY[0], MANY[5]) == {MANY[0]: "second", MANY[5]: "first"}


def test_who_starts_anew_reads_the_same(store: Store) -> None:
    states = DriftStates()
    keep(store, states, "first")
    assert read(store, states, MANY[0]) == {MANY[0]: "first"}
    # Another one has written since, as a round that was learnt does.
    keep(store, DriftStates(), "second", MANY[:1])
    for reader in (states, DriftStates()):
        assert read(store, reader, MANY[0], MANY[1]) == {MANY[0]: "second", MANY[1]: "first"}


def test_what_was_rolled_back_was_never_kept(store: Store) -> None:
    states = DriftStates()
    keep(store, states, "first")
    with suppress(RuntimeError), store.transaction() as tx:
        states.keep(tx, dict.fromkeys(MANY, "lost"))
        raise RuntimeError("the disk is full")
    assert read(store, states, MANY[0]) == {MANY[0]: "first"}
    keep(store, states, "second", MANY[:1])
    assert read(store, states, MANY[0], MANY[1]) == {MANY[0]: "second", MANY[1]: "first"}


@pytest.mark.parametrize("bound", ["POOLS_MOST", "BYTES_MOST"])
def test_notes_are_merged_into_rows_in_time(
    bound: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift_states, bound, 3 if bound == "POOLS_MOST" else 3 * len(MANY))
    states = DriftStates()
    for said in "abc":
        keep(store, states, said)
    assert (notes(store, DRIFT_STATES), notes(store, RECENT_DRIFT_STATES)) == (0, 3)
    keep(store, states, "d", MANY[:1])
    assert (notes(store, DRIFT_STATES), notes(store, RECENT_DRIFT_STATES)) == (len(MANY), 0)
    for reader in (states, DriftStates()):
        assert read(store, reader, *MANY[:2]) == {MANY[0]: "d", MANY[1]: "c"}
