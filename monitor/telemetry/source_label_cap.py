"""A bounded number of ``source`` labels, whatever the feed brings.

Which sources are shown must not change from day to day: a source that moves into ``other`` (or
out of it) makes the sum jump, and Prometheus would read the jump as images. So once there are
more than the limit, those that are shown are remembered in the store and nobody is added; a
source that is removed leaves its place empty. Changing the limit chooses again, once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from monitor.store import Store
from monitor.telemetry.store_summary import DriftSummary, SourceSummary

#: The label of all that are not shown by themselves, and of rows that name no source.
OTHER, NONE = "other", "(none)"

_ROOM, _KEY = "metrics", "sources"


class Cap:
    """Decides which sources are shown; asks the store only when there are too many.

    >>> import tempfile
    >>> store = Store.open(tempfile.mkdtemp())
    >>> sources = [SourceSummary(name) for name in "abc"]
    >>> [s.name for s in Cap(store, 2).apply(sources)]
    ['a', 'b', 'other']
    >>> store.close()
    """

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        self._shown: tuple[str, ...] = ()
        self._full = False

    def apply(self, sources: Sequence[SourceSummary]) -> tuple[SourceSummary, ...]:
        """The sources to show, the rest added up under ``other``."""
        named = [source if source.name else _named(source, NONE) for source in sources]
        if not self._full and len(named) <= self._most:
            self._shown = tuple(source.name for source in named)
            return tuple(named)
        if not self._full:
            self._shown, self._full = self._remember([source.name for source in named]), True
        shown = set(self._shown)
        rest = [source for source in named if source.name not in shown]
        kept = [source for source in named if source.name in shown]
        return (*kept, combined(rest, OTHER)) if rest else tuple(kept)

    def _remember(self, names: Sequence[str]) -> tuple[str, ...]:
        with self._store.transaction() as tx:
            note = tx.notes.get(_ROOM, _KEY)
            if isinstance(note, Mapping) and note.get("most") == self._most:
                return tuple(note["shown"])
            # Those that were shown before the limit was reached stay; at the first look after
            # a start there are none, and the order of names is as good as any.
            first = dict.fromkeys([*(n for n in self._shown if n in names), *names])
            shown = list(first)[: self._most]
            tx.notes.set(_ROOM, _KEY, {"most": self._most, "shown": shown})
            return tuple(shown)


def capped(sources: Sequence[SourceSummary], shown: Sequence[SourceSummary]) -> int:
    """How many sources have no figures of their own.

    >>> sources = [SourceSummary(name) for name in "abc"]
    >>> capped(sources, [sources[0], SourceSummary(OTHER)])
    2
    """
    return len(sources) - sum(source.name != OTHER for source in shown)


def combined(sources: Collection[SourceSummary], name: str) -> SourceSummary:
    """Many sources as one: judged with a corrected shift if one of them is.

    When it was last heard of cannot be said of many, so it is not.
    """
    drifts = [source.drift for source in sources if source.drift is not None]
    oldest = [s.oldest_question_at for s in sources if s.oldest_question_at is not None]
    return SourceSummary(
        name=name,
        images=_whole(_sum(source.images for source in sources)),
        rejected=_whole(_sum(source.rejected for source in sources)),
        settled=_whole(_sum(source.settled for source in sources)),
        above=sum(source.above for source in sources),
        expected_above=sum(source.expected_above for source in sources),
        ratios=_sum(source.ratios for source in sources),
        ratio_sum=sum(source.ratio_sum for source in sources),
        reused=sum(source.reused for source in sources),
        reuse_checks=sum(source.reuse_checks for source in sources),
        reuse_change=sum(source.reuse_change for source in sources),
        questions_open=sum(source.questions_open for source in sources),
        questions_suspected=sum(source.questions_suspected for source in sources),
        oldest_question_at=min(oldest, default=None),
        implausible=sum(source.implausible for source in sources),
        corrected=any(source.corrected for source in sources),
        drift=_strongest(drifts),
    )


def _named(source: SourceSummary, name: str) -> SourceSummary:
    return combined([source], name)


def _strongest(drifts: Sequence[DriftSummary]) -> DriftSummary | None:
    if not drifts:
        return None
    since: list[datetime] = [drift.since for drift in drifts if drift.active and drift.since]
    return DriftSummary(
        level=max(drift.level for drift in drifts),
        strength=max(drift.strength for drift in drifts),
        active=any(drift.active for drift in drifts),
        since=min(since, default=None),
    )


def _sum(counts: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for one in counts:
        for key, value in one.items():
            total[key] += value
    return total


def _whole(counts: Mapping[str, float]) -> dict[str, int]:
    return {key: int(value) for key, value in counts.items()}
