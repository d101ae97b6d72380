"""Where a running monitor is, in one line: read from its store, beside the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from monitor.config import Config
from monitor.plain_text import span
from monitor.store import Store
from monitor.store.output_files import KNOWN, NOVEL

#: Sources on the line, those with the largest share of novel images; 'conclad status' has all.
SOURCES_SHOWN = 3
#: Fewer images than this say little about a source.
SHARE_OF_LEAST = 20


@dataclass(frozen=True, slots=True)
class RunGlance:
    """One moment of a run."""

    at: datetime
    judged: int
    novel: Mapping[str, tuple[int, int]]
    """By source: novel images, and images with a verdict."""
    pool: int
    """Images in the pool that is filling."""
    pool_opened_at: datetime | None
    questions: int

    def to_dict(self) -> dict[str, Any]:
        opened = self.pool_opened_at.isoformat() if self.pool_opened_at else None
        return {**asdict(self), "at": self.at.isoformat(), "pool_opened_at": opened}


def glance(store: Store) -> RunGlance:
    with store.reading() as tx:
        judged: dict[str, list[int]] = {}
        for count in tx.counters.all("images"):
            if count.label in (KNOWN, NOVEL):
                both = judged.setdefault(count.source, [0, 0])
                both[0] += int(count.value) if count.label == NOVEL else 0
                both[1] += int(count.value)
        pool = tx.pools.filling()
        return RunGlance(
            at=tx.now,
            judged=sum(whole for _, whole in judged.values()),
            novel={source: (novel, whole) for source, (novel, whole) in judged.items()},
            pool=pool.size if pool else 0,
            pool_opened_at=pool.opened_at if pool else None,
            questions=tx.questions.count_open(),
        )


def line(now: RunGlance, before: RunGlance, config: Config, desk: str) -> str:
    """The moment in words; the speed is that since ``before``.

    >>> from datetime import UTC, timedelta
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> then = RunGlance(noon, 100, {"cam": (1, 100)}, 100, noon, 0)
    >>> now = RunGlance(noon + timedelta(seconds=10), 500, {"cam": (20, 500)}, 500, noon, 3)
    >>> line(now, then, Config(), "http://127.0.0.1:8484")
    '500 images, 40.0/s; novel: cam 4.0%; pool 500 of 2,000, full in 38 s; 3 questions open: \
http://127.0.0.1:8484'
    """
    seconds = (now.at - before.at).total_seconds()
    speed = (now.judged - before.judged) / seconds if seconds > 0 else 0.0
    parts = [f"{now.judged:,} images, {speed:,.1f}/s"]
    shares = {
        source: novel / whole
        for source, (novel, whole) in now.novel.items()
        if whole >= SHARE_OF_LEAST
    }
    if shares:
        most = sorted(shares.items(), key=lambda item: -item[1])[:SOURCES_SHOWN]
        more = f" and {len(shares) - len(most)} more" if len(shares) > len(most) else ""
        parts.append("novel: " + ", ".join(f"{s or '-'} {v:.1%}" for s, v in most) + more)
    parts.append(f"pool {now.pool:,} of {config.pools.size:,}{_when(now, speed, config)}")
    parts.append(f"{now.questions} questions open" + (f": {desk}" if now.questions else ""))
    return "; ".join(parts)


def _when(now: RunGlance, speed: float, config: Config) -> str:
    """When the pool will be looked at: full, or old enough."""
    if now.pool_opened_at is None:
        return ""
    pools = config.pools
    by_age = pools.age_hours * 3600 - (now.at - now.pool_opened_at).total_seconds()
    if speed > 0 and (pools.size - now.pool) / speed < by_age:
        return f", full in {span(max(pools.size - now.pool, 0) / speed)}"
    if now.pool < pools.least:
        return f", looked at from {pools.least:,} on"
    return f", closed in {span(max(by_age, 0.0))} at the latest"


def next_steps(now: RunGlance, config: Config, *, held: int, set_aside: int) -> list[str]:
    """What a person can do now that the run has ended, the most useful first."""
    steps = []
    if now.questions:
        steps.append(f"{now.questions} questions wait: conclad desk shows them ({config.desk_url})")
    if held:
        steps.append(f"{held} detector versions are held: conclad detector list")
    if set_aside:
        steps.append("see what was set aside: conclad quarantine list")
    if not now.judged:
        steps.append(
            f"no image was judged; bring some: conclad ingest IMAGES --to {config.feed.path}"
        )
    elif now.pool and not steps:
        least = f"from {config.pools.least:,} images on (pools.least)"
        steps.append(
            f"the last pool holds {now.pool:,} of {config.pools.size:,} images and is looked at "
            f"when it is full, or with age {least}; run again when there are more"
        )
    if any(novel for novel, _ in now.novel.values()):
        steps.append("see what looked new: conclad verdicts --verdict novel, or the desk")
    return steps or ["nothing waits for you; conclad status shows the rest"]
