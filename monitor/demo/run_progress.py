"""What a running monitor has done so far, read from its store while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from monitor.store import Store
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import FileState
from monitor.store.records import Event

#: Pools of which nothing more will come without people or further images.
AT_REST = frozenset(
    {PoolState.FILLING, PoolState.QUIET, PoolState.RESOLVED, PoolState.UNRESOLVED, PoolState.HELD}
)


@dataclass(frozen=True, slots=True)
class Glance:
    """One moment of the run."""

    files: int
    files_done: int
    images: int
    open_questions: int
    busy_pools: int

    @property
    def settled(self) -> bool:
        """Whether every file that was entered is done and no pool waits for anything."""
        return 0 < self.files == self.files_done and not self.busy_pools


class Watcher:
    """Looks into a store again and again, and tells each event once.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     with store.transaction() as tx:
    ...         _ = tx.events.append("pool.unresolved", {"pool": 3, "reason": "nobody answered"})
    ...     watcher = Watcher(store)
    ...     [sentence(event) for event in watcher.new_events()], watcher.new_events()
    (['pool 3: left open, nobody answered'], [])
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = 0

    def glance(self) -> Glance:
        with self._store.reading() as tx:
            files = tx.counts.files_by_state()
            pools = tx.counts.pools_by_state()
            return Glance(
                files=sum(files.values()),
                files_done=sum(n for state, n in files.items() if state in _FILE_OVER),
                images=int(sum(count.value for count in tx.counters.all("images"))),
                open_questions=tx.counts.open_questions(),
                busy_pools=sum(n for state, n in pools.items() if state not in AT_REST),
            )

    def new_events(self) -> list[Event]:
        """What has happened since the last time."""
        with self._store.reading() as tx:
            events = tx.events.after(self._last)
        if events:
            self._last = events[-1].id
        return events


def sentence(event: Event) -> str | None:
    """An event in words; None for those that only programs care about."""
    words = _WORDS.get(event.kind)
    return None if words is None else words(event.payload, event.source)


_FILE_OVER = frozenset({FileState.DONE, FileState.QUARANTINED, FileState.CHANGED})


def _triggered(told: Mapping[str, Any], source: str | None) -> str:
    # Something rare may be spread over all sources, so that none of them stands out.
    where = f", most at {source}" if source else ""
    return (
        f"pool {told['pool']}: {sum(told['novel'].values())} of {told['images']} images look "
        f"new{where}; up to {told['budget']} questions"
    )


def _probed(told: Mapping[str, Any], source: str | None) -> str:
    return (
        f"pool {told['pool']}: nothing new beyond chance; {told['budget']} questions about what "
        "looks newest"
    )


def _quiet(told: Mapping[str, Any], source: str | None) -> str:
    if "asked" in told:
        return f"pool {told['pool']}: nothing new after {told['asked']} questions"
    shifted = "".join(
        f" and {count} at {source} that are known classes seen differently"
        for source, count in told.get("explained_by_shift", {}).items()
        if count
    )
    seen = f"{sum(told['novel'].values())} of {told['images']} images look new"
    return f"pool {told['pool']}: quiet, {seen}{shifted}; nobody is asked"


def _discovered(told: Mapping[str, Any], source: str | None) -> str:
    return (
        f"pool {told['pool']}: NEW CLASS {told['name']}, at {source}, from {told['human']} "
        f"answers and {told['pseudo']} pseudo-labels"
    )


_WORDS: Mapping[str, Callable[[Mapping[str, Any], str | None], str]] = {
    "pool.triggered": _triggered,
    "pool.probed": _probed,
    "pool.quiet": _quiet,
    "pool.unresolved": lambda told, _: f"pool {told['pool']}: left open, {told['reason']}",
    "questions.opened": lambda told, _: (
        f"pool {told['pool']}: round {told['round'] + 1}, {told['count']} questions"
    ),
    "class.discovered": _discovered,
    "detector.held": lambda told, _: (
        f"detector version {told.get('version')} is held: {told.get('reason')}"
    ),
    "drift.detected": lambda told, source: (
        f"{source}: known classes look different ({told.get('words', 'drift')})"
    ),
    "drift.corrected": lambda told, source: (
        f"pool {told['pool']}: {source} looks different; its verdicts are corrected from here on"
    ),
    "drift.ended": lambda told, source: f"{source}: looks as before",
    "file.quarantined": lambda told, _: f"{told.get('file')}: quarantined, {told.get('reason')}",
    "batch.quarantined": lambda told, _: f"{told.get('file')}: quarantined, {told.get('reason')}",
    "actor.restarted": lambda told, _: f"a worker ({told.get('role')}) was restarted",
}
