"""Kill -9 at every fault point, start again: the state is that of a run without the kill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.store import Severity, check, repair
from monitor.store.atomic_files import declared
from monitor.store.verdict_columns import current
from tests.store.building import dump, verdict_ids
from tests.store.conftest import Place, Prepare
from tests.store.crashing import WORK, open_store, run_and_die

POINTS = [(work, name) for work in WORK for name in declared(work.partition(":")[0])]

_uninterrupted: dict[tuple[str, str], dict[str, Any]] = {}


def expected(database: str, prefix: str, prepared: Callable[[Prepare], Place]) -> dict[str, Any]:
    """The state after the same work without a fault, computed once per database."""
    key = (database, prefix)
    if key not in _uninterrupted:
        prepare, work = WORK[prefix]
        place = prepared(prepare)
        with open_store(place.where, place.files) as store:
            work(store)
            _uninterrupted[key] = comparable(dump(store))
    return _uninterrupted[key]


def comparable(state: dict[str, Any]) -> dict[str, Any]:
    """Leases count how often they were taken, which a restart may well raise."""
    return {name: value for name, value in state.items() if name != "leases"}


def test_every_declared_point_is_tried() -> None:
    tried = {name for _, name in POINTS}
    # The points of the running monitor are tried in tests/actors.
    elsewhere = {n for n in declared() if n.startswith(("coordinator.", "intake.", "pool."))}
    assert set(declared()) - elsewhere - {"example.before_write"} == tried


@pytest.mark.parametrize(("prefix", "point"), POINTS)
def test_a_kill_costs_nothing_but_time(
    prepared: Callable[[Prepare], Place],
    places: Callable[[], Place],
    database: str,
    prefix: str,
    point: str,
) -> None:
    prepare, work = WORK[prefix]
    place = places() if prefix == "migrate." else prepared(prepare)
    assert run_and_die(prefix, place.where, place.files, point), f"{point} was never reached"

    with open_store(place.where, place.files) as store:
        if prefix.startswith("compact."):
            _let_lease_expire(store, "settled" if "settled" in prefix else "verdicts")
        work(store)
        repair(store)
        assert comparable(dump(store)) == expected(database, prefix, prepared)
        worst = [f for f in check(store) if f.severity is not Severity.NOTE]
        assert worst == []


# On one database: what differs between the two was tried with the first batch on both.
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("turn", [2, 3])
@pytest.mark.parametrize("point", declared("commit."))
def test_a_kill_in_a_later_batch_leaves_the_earlier_ones(
    prepared: Callable[[Prepare], Place], database: str, point: str, turn: int
) -> None:
    place = prepared(WORK["commit."][0])
    assert run_and_die("commit.", place.where, place.files, f"{point}:{turn}")
    with open_store(place.where, place.files) as store:
        WORK["commit."][1](store)
        assert comparable(dump(store)) == expected(database, "commit.", prepared)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("point", declared("commit."))
def test_after_a_kill_the_groups_may_be_others(
    prepared: Callable[[Prepare], Place], database: str, point: str
) -> None:
    """A restart finds other batches ready together; no file of the first try may disturb."""
    place = prepared(WORK["commit."][0])
    assert run_and_die("commit.:group", place.where, place.files, point)
    with open_store(place.where, place.files) as store:
        WORK["commit."][1](store)
        names = current(store.folder, "verdicts")
        assert sorted(verdict_ids(store, names)) == list("abcdefg")
        assert check(store) == []


def _let_lease_expire(store: Any, kind: str) -> None:
    """The clock stands still in these tests, so the dead owner's lease is released by hand."""
    with store.transaction() as tx:
        lease = tx.leases.get(f"compact:{kind}")
        if lease is not None:
            tx.leases.release(lease)
