"""The home page: is the monitor alive, what is new, what waits, and what was learnt lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from monitor.desk.full_pools import why_full_pools_wait
from monitor.desk.novelty_activity import Series, novelty_over_time
from monitor.desk.outcomes import RoundOutcome, in_progress, is_alive, latest_outcomes, monitor_seen
from monitor.people.version_manifest import knowledge_of
from monitor.store.pool_transitions import PoolState
from monitor.store.records import Pool
from monitor.store.store import Store, Transaction

SOURCES = 60
"""Sources on the page, the ones with the latest images; a person reads no longer list."""

LATEST_POINTS = 6
"""Stretches of the activity that count as "lately": an eighth of what is shown."""

MORE_THAN_EXPECTED = 2.0
"""A source is called unusual from twice the expected share on, as the gate and drift do."""


@dataclass(frozen=True, slots=True)
class SourceView:
    """One source: its last image, and how much of it is new lately."""

    name: str
    last_captured_at: datetime | None
    images: int
    share: float | None
    """Of its latest images, those that look new; None if there are none with a time."""
    is_unusual: bool
    drifting: str | None


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool that fills, or that people are asked about."""

    id: int
    state: str
    size: int
    full: int
    novel: int
    since: datetime
    words: str


@dataclass(frozen=True, slots=True)
class Home:
    alive: bool
    seen_at: datetime | None
    expected: float
    version: int | None
    classes: int
    open: int
    oldest: datetime | None
    sources: tuple[SourceView, ...]
    more_sources: int
    filling: PoolView | None
    full: int
    """Pools that hold enough and have yet to be examined."""
    full_words: str
    """What they wait for; empty if there are none."""
    asked: tuple[PoolView, ...]
    progress: str | None
    outcomes: tuple[RoundOutcome, ...]


def read_home(store: Store, who: str, pool_size: int) -> Home:
    """One look at the whole state; cheap, because counts and notes are kept up to date."""
    series = novelty_over_time(store)
    with store.reading() as tx:
        current = tx.versions.current()
        knowledge = knowledge_of(store, current)
        sources = _sources(tx, series, knowledge.exceedance)
        filling = tx.pools.filling()
        queue = tx.questions.list_open(limit=1)
        return Home(
            alive=is_alive(tx),
            seen_at=monitor_seen(tx),
            expected=knowledge.exceedance,
            version=None if current is None else current.number,
            classes=len(knowledge.classes),
            open=tx.counts.open_questions(),
            oldest=queue[0].opened_at if queue else None,
            sources=tuple(sources[:SOURCES]),
            more_sources=max(0, len(sources) - SOURCES),
            filling=None if filling is None else _pool(filling, pool_size, "gathering images"),
            full=len(tx.pools.in_state(PoolState.CLOSED)),
            full_words=why_full_pools_wait(tx),
            asked=tuple(
                _pool(pool, pool_size, _why(pool.evidence))
                for pool in tx.pools.in_state(PoolState.WAITING, PoolState.ASKING)
            ),
            progress=None if queue else in_progress(tx),
            outcomes=tuple(latest_outcomes(tx, who)),
        )


def _sources(tx: Transaction, series: Sequence[Series], expected: float) -> list[SourceView]:
    notes = tx.notes.all("source")
    drift = tx.notes.all("drift")
    images: dict[str, int] = {}
    for count in tx.counters.all("images"):
        if count.label in ("known", "novel"):
            images[count.source] = images.get(count.source, 0) + int(count.value)
    lately = {one.source: one for one in series}
    found = []
    for name in sorted({*notes, *images, *lately}):
        note = notes.get(name, {})
        share = _share(lately.get(name))
        found.append(
            SourceView(
                name=name,
                last_captured_at=_moment(note.get("last_captured_at")) or _last(lately.get(name)),
                images=images.get(name, 0),
                share=share,
                is_unusual=share is not None and share > MORE_THAN_EXPECTED * expected,
                drifting=_drifting(drift.get(name)),
            )
        )
    found.sort(key=lambda one: one.name)
    found.sort(key=lambda one: one.last_captured_at or _NEVER, reverse=True)
    found.sort(key=lambda one: not one.is_unusual)
    return found


_NEVER = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _share(series: Series | None) -> float | None:
    if series is None:
        return None
    points = series.points[-LATEST_POINTS:]
    images = sum(point.known + point.novel for point in points)
    return sum(point.novel for point in points) / images if images else None


def _last(series: Series | None) -> datetime | None:
    return series.points[-1].at if series is not None and series.points else None


def _drifting(note: object) -> str | None:
    """How a source that drifts has changed, in words."""
    verdict = note.get("verdict") if isinstance(note, Mapping) else None
    if not verdict or not verdict.get("shifted"):
        return None
    return ", ".join(verdict.get("words") or ()) or "looks different"


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _pool(pool: Pool, full: int, words: str) -> PoolView:
    # What was found when the pool was examined, as the history says it; before, what came.
    novel = pool.evidence.get("novel")
    return PoolView(
        id=pool.id,
        state=str(pool.state),
        size=pool.size,
        full=full,
        novel=sum(novel.values()) if isinstance(novel, Mapping) else pool.above,
        since=pool.opened_at,
        words=words,
    )


def _why(evidence: Mapping[str, object]) -> str:
    if evidence.get("probe"):
        return "a spot check of a quiet time"
    shifted = evidence.get("shifted")
    if isinstance(shifted, Sequence) and shifted:
        return f"{', '.join(map(str, shifted))} looks different lately"
    sources = evidence.get("sources")
    where = (
        f" at {', '.join(map(str, sources))}" if isinstance(sources, Sequence) and sources else ""
    )
    return f"more looks new{where} than chance explains"
