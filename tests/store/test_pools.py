"""The table of a pool's states: every transition is walked in a real store, and no other one."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from monitor.store import Store
from monitor.store.errors import WrongState
from monitor.store.pool_transitions import (
    FINISHED_POOLS,
    TRANSITIONS,
    PoolEvent,
    PoolState,
    next_state,
)


def ways() -> dict[PoolState, tuple[PoolEvent, ...]]:
    """The shortest way from a new pool to each state."""
    found: dict[PoolState, tuple[PoolEvent, ...]] = {PoolState.FILLING: ()}
    ahead = deque([PoolState.FILLING])
    while ahead:
        state = ahead.popleft()
        for event, after in TRANSITIONS[state].items():
            if after not in found:
                found[after] = (*found[state], event)
                ahead.append(after)
    return found


def pool_in(store: Store, state: PoolState) -> int:
    with store.transaction() as tx:
        pool_id = tx.pools.open().id
        for event in ways()[state]:
            tx.pools.apply(pool_id, event)
        assert tx.pools.get(pool_id).state is state
    return pool_id


def test_every_state_is_reached_and_leads_to_an_end() -> None:
    assert set(ways()) == set(PoolState) == set(TRANSITIONS)
    for state in PoolState:
        reached = {state}
        while more := {n for s in reached for n in TRANSITIONS[s].values()} - reached:
            reached |= more
        assert reached & FINISHED_POOLS, f"{state} leads nowhere"


def test_every_event_happens_somewhere() -> None:
    assert {event for events in TRANSITIONS.values() for event in events} == set(PoolEvent)


def test_the_ends_are_those_that_nothing_follows() -> None:
    assert {PoolState.QUIET, PoolState.RESOLVED, PoolState.UNRESOLVED} == FINISHED_POOLS


@pytest.mark.parametrize("state", PoolState)
def test_the_store_takes_each_transition_of_the_table_and_refuses_the_others(
    tmp_path: Path, state: PoolState
) -> None:
    with Store.open(tmp_path) as store:
        for event in PoolEvent:
            pool_id = pool_in(store, state)
            after = next_state(state, event)
            if after is None:
                refused = f"pool {pool_id}: is {state}, so it cannot be {event}"
                with pytest.raises(WrongState, match=refused), store.transaction() as tx:
                    tx.pools.apply(pool_id, event)
                after = state
            else:
                with store.transaction() as tx:
                    moved = tx.pools.apply(pool_id, event, reason="why", evidence={"seen": 1})
                assert (moved.reason, moved.evidence) == ("why", {"seen": 1})
            with store.reading() as tx:
                pool = tx.pools.get(pool_id)
            assert pool.state is after
            assert (pool.finished_at is not None) == (after in FINISHED_POOLS)
            if pool.state is PoolState.FILLING:
                with store.transaction() as tx:
                    tx.pools.apply(pool_id, PoolEvent.FILLED)


def test_the_table_on_the_page_is_the_table_in_the_code() -> None:
    page = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
    for state, events in TRANSITIONS.items():
        if not events:
            continue
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {state} |")]
        said = {
            (event.strip(), after.strip())
            for part in line.split("|")[2].split(";")
            for names, after in [part.split("→")]
            for event in names.split(",")
        }
        assert said == {(str(event), str(after)) for event, after in events.items()}
