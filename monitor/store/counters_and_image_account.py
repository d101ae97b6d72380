"""Running totals, counts by state, and the account that finds images without a verdict.

:class:`Counters` are totals that move in the same transaction as what they count. A commit of
mixed files names thousands of sources, each with several counters. A row for each of them would
cost as much as everything else about the commit, so such steps are kept together, one row for all
of them (``counter_steps``), and are added to the counters when enough are kept: then a source that
was named in many commits is written once. Whoever reads adds what is kept.

:class:`Counts` says how many files, batches, pools and questions are in which state.

The account: every image of a listed file has a verdict, a reason, or is known to wait,

    listed images = verdicts + rejected + quarantined + waiting + dropped

for every file, and so for all of them. A file that nobody has opened yet (or that could not be
opened) is counted as a file: how many images it holds is not known.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, case, delete, func, insert, select

from monitor.store.note_and_counter_names import IMAGES
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import QUARANTINED_FILES, BatchState, FileState, QuestionState
from monitor.store.records import Count
from monitor.store.tables import (
    Repository,
    batches,
    counter_steps,
    counters,
    files,
    outputs,
    pools,
    questions,
)

if TYPE_CHECKING:
    import numpy as np

    from monitor.store.store import Transaction

#: A counter: its name, source and label.
CounterKey = tuple[str, str, str]

#: So many steps are added at once; more in one transaction are kept for later.
ADDED_AT_ONCE = 1000
#: So many steps are kept: reading them takes a tenth of a second, adding them a few.
KEPT_MOST = 1_000_000

_RAISE = "INSERT INTO counters (name, source, label, value)"
_BY = "ON CONFLICT (name, source, label) DO UPDATE SET value = counters.value + excluded.value"


@dataclass(frozen=True, slots=True, eq=False)
class SourceSteps:
    """By how much counters rise at some sources.

    ``rises`` has for each name and label the positions of sources, and a value for each of them.

    >>> import numpy as np
    >>> steps = SourceSteps(["a", "b"], {("images", "known"): (np.array([1]), np.array([2.0]))})
    >>> SourceSteps.unpacked(steps.packed()).totals()
    {('images', 'b', 'known'): 2.0}
    """

    sources: Sequence[str]
    rises: Mapping[tuple[str, str], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]

    def __len__(self) -> int:
        return sum(len(positions) for positions, _ in self.rises.values())

    @classmethod
    def of(cls, totals: Mapping[CounterKey, float]) -> SourceSteps:
        import numpy as np

        index: dict[str, int] = {}
        found: dict[tuple[str, str], tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
        for (name, source, label), value in totals.items():
            positions, values = found[name, label]
            positions.append(index.setdefault(source, len(index)))
            values.append(value)
        return cls(
            list(index),
            {key: (np.asarray(where), np.asarray(by)) for key, (where, by) in found.items()},
        )

    def totals(self) -> dict[CounterKey, float]:
        found: dict[CounterKey, float] = {}
        for (name, label), (positions, values) in self.rises.items():
            named = ((name, self.sources[position], label) for position in positions.tolist())
            found.update(zip(named, values.tolist(), strict=True))
        return found

    def packed(self) -> bytes:
        import numpy as np

        counted = [[name, label, len(where)] for (name, label), (where, _) in self.rises.items()]
        head = json.dumps([list(self.sources), counted]).encode()
        parts = [len(head).to_bytes(4, "little"), head]
        for positions, values in self.rises.values():
            parts.append(np.asarray(positions, "<u4").tobytes())
            parts.append(np.asarray(values, "<f8").tobytes())
        # Most values are ones, so the quickest level is enough.
        return zlib.compress(b"".join(parts), 1)

    @classmethod
    def unpacked(cls, body: bytes) -> SourceSteps:
        import numpy as np

        data = zlib.decompress(body)
        at = 4 + int.from_bytes(data[:4], "little")
        sources, counted = json.loads(data[4:at])
        rises = {}
        for name, label, number in counted:
            positions = np.frombuffer(data, "<u4", number, at)
            values = np.frombuffer(data, "<f8", number, at + 4 * number)
            rises[name, label] = (positions, values)
            at += 12 * number
        return cls(sources, rises)


def together(several: Iterable[SourceSteps], name: str | None = None) -> SourceSteps:
    """All of these as one, or what they say about the counters of one name."""
    import numpy as np

    index: dict[str, int] = {}
    parts: dict[tuple[str, str], list[tuple[Any, Any]]] = defaultdict(list)
    for steps in several:
        ours = (index.setdefault(source, len(index)) for source in steps.sources)
        where = np.fromiter(ours, np.intp, len(steps.sources))
        for key, (positions, values) in steps.rises.items():
            if name is None or key[0] == name:
                parts[key].append((where[positions], values))
    rises = {}
    for key, found in parts.items():
        positions, values = (np.concatenate(column) for column in zip(*found, strict=True))
        sums = np.bincount(positions, values, len(index))
        touched = np.unique(positions)
        rises[key] = (touched, sums[touched])
    return SourceSteps(list(index), rises)


class Counters(Repository):
    """Counters by name, source and label; those of no source have an empty one."""

    def add(self, counts: Iterable[Count], steps: Sequence[SourceSteps] = ()) -> None:
        """Raise counters; steps of the same counter are added up first."""
        totals: dict[CounterKey, float] = {}
        for one in counts:
            key = (one.name, one.source, one.label)
            totals[key] = totals.get(key, 0.0) + one.value
        if len(totals) + sum(map(len, steps)) > ADDED_AT_ONCE:
            some = {key: value for key, value in totals.items() if key[1]}
            several = [*steps, SourceSteps.of(some)] if some else steps
            self._keep(together(several) if len(several) > 1 else several[0])
            totals = {key: value for key, value in totals.items() if not key[1]}
        else:
            for key, value in (pair for one in steps for pair in one.totals().items()):
                totals[key] = totals.get(key, 0.0) + value
        self._raise(totals)

    def all(self, name: str | None = None) -> list[Count]:
        """Every counter, or those of one name."""
        # By position: with a thousand sources this is tens of thousands of rows, at every scrape.
        columns = (counters.c.name, counters.c.source, counters.c.label, counters.c.value)
        statement = select(*columns).order_by(*columns[:3])
        if name is not None:
            statement = statement.where(counters.c.name == name)
        rows = self._connection.execute(statement)
        kept = self._kept_totals(name)
        if not kept:
            return [Count(*row) for row in rows]
        found = {(row[0], row[1], row[2]): row[3] for row in rows}
        for key, value in kept.items():
            found[key] = found.get(key, 0.0) + value
        return [Count(*key, found[key]) for key in sorted(found)]

    def value(self, name: str, source: str = "", label: str = "") -> float:
        """One counter, zero before its first step."""
        found = self._connection.execute(
            select(counters.c.value).where(
                counters.c.name == name, counters.c.source == source, counters.c.label == label
            )
        ).scalar()
        kept = self._kept_totals(name) if source else {}
        return float(found or 0.0) + kept.get((name, source, label), 0.0)

    def _kept_totals(self, name: str | None = None) -> dict[CounterKey, float]:
        """What is kept by counter. Where that is nothing, no numbers library has to be loaded."""
        rows = self._connection.execute(
            select(counter_steps.c.body).order_by(counter_steps.c.id)
        ).all()
        if not rows:
            return {}
        return together((SourceSteps.unpacked(bytes(row.body)) for row in rows), name).totals()

    def _keep(self, steps: SourceSteps) -> None:
        number = self._next_id(counter_steps.c.id)
        row = {"id": number, "steps": len(steps), "body": steps.packed()}
        self._connection.execute(insert(counter_steps).values(row))
        kept = self._connection.execute(select(func.sum(counter_steps.c.steps))).scalar()
        if kept is not None and int(kept) > KEPT_MOST:
            self._raise(self._kept_totals())
            self._connection.execute(delete(counter_steps))

    def _raise(self, totals: Mapping[CounterKey, float]) -> None:
        if not totals:
            return
        # As text with tuples, like the digests: thousands of sources may be named at once.
        rows = [(*key, value) for key, value in sorted(totals.items())]
        if self._connection.dialect.name == "sqlite":
            self._connection.exec_driver_sql(f"{_RAISE} VALUES (?, ?, ?, ?) {_BY}", rows)
        else:
            # As JSON: the driver takes several times as long to write arrays.
            columns = "SELECT s->>0, s->>1, s->>2, (s->>3)::float8"
            several = f"{columns} FROM json_array_elements(%s::json) s"
            self._connection.exec_driver_sql(f"{_RAISE} {several} {_BY}", (json.dumps(rows),))


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the images of one file, or of all.

    >>> Account(listed=10, verdicts=6, rejected=1, quarantined=2, waiting=1).unaccounted
    0
    """

    listed: int = 0
    verdicts: int = 0
    rejected: int = 0
    """With the duplicates."""
    quarantined: int = 0
    waiting: int = 0
    dropped: int = 0
    """Given up by a person."""

    @property
    def unaccounted(self) -> int:
        """Images that have neither a verdict nor a reason nor a place in a queue."""
        placed: int = sum(getattr(self, name) for name in PLACES)
        return self.listed - placed


PLACES = tuple(field.name for field in fields(Account) if field.name != "listed")


class Counts(Repository):
    """How many of everything are in which state, at this moment."""

    def files_by_state(self) -> dict[FileState, int]:
        rows = self._connection.execute(select(files.c.state, func.count()).group_by(files.c.state))
        return {state: int(count) for state, count in rows}

    def pools_by_state(self) -> dict[PoolState, int]:
        rows = self._connection.execute(select(pools.c.state, func.count()).group_by(pools.c.state))
        return {state: int(count) for state, count in rows}

    def pending_batches(self) -> int:
        return self._count(batches.c.state == BatchState.PENDING)

    def new_files(self, most: int) -> int:
        """Files that nobody has opened yet; counted up to ``most``, since there may be millions."""
        some = select(files.c.id).where(files.c.state == FileState.NEW).limit(most).subquery()
        return int(self._connection.execute(select(func.count()).select_from(some)).scalar_one())

    def open_questions(self, pool_id: int | None = None) -> int:
        """Those that wait for an answer, of one pool or of all."""
        is_open = questions.c.state == QuestionState.OPEN
        return self._count(
            is_open if pool_id is None else is_open & (questions.c.pool_id == pool_id)
        )

    def questions_since(self, moment: datetime) -> int:
        """How many questions were asked since a moment: what a weekly budget counts."""
        return self._count(questions.c.opened_at > moment)

    def output_files(self, kind: str) -> int:
        """Committed files of a kind, such as ``verdicts``."""
        return self._count(outputs.c.kind == kind)

    def quarantined(self) -> dict[str, int]:
        """Files, batches and images that have neither a verdict nor a reason."""
        is_quarantined = batches.c.state == BatchState.QUARANTINED
        images = select(func.coalesce(func.sum(batches.c.rows), 0)).where(is_quarantined)
        return {
            "files": self._count(files.c.state.in_(QUARANTINED_FILES)),
            "batches": self._count(is_quarantined),
            "images": int(self._connection.execute(images).scalar_one()),
        }

    def _count(self, condition: ColumnElement[bool]) -> int:
        statement = select(func.count()).where(condition)
        return int(self._connection.execute(statement).scalar_one())


def account(tx: Transaction) -> Account:
    """Of the whole feed."""
    listed = tx.connection.execute(select(func.coalesce(func.sum(files.c.rows), 0))).scalar_one()
    row = tx.connection.execute(select(*_places())).one()
    return Account(int(listed), *map(int, row))


def uneven_files(tx: Transaction, limit: int = 1000) -> Iterator[tuple[str, Account]]:
    """Files whose images do not add up; there are none unless something was lost."""
    listed = func.coalesce(files.c.rows, 0)
    together = func.coalesce(func.sum(_settled()), 0)
    found = (
        select(files.c.path, listed.label("listed"), *_places())
        .select_from(files.outerjoin(batches, batches.c.file_id == files.c.id))
        .group_by(files.c.id, files.c.path, files.c.rows)
        .having(listed != together)
        .order_by(files.c.id)
        .limit(limit)
    )
    for path, *numbers in tx.connection.execute(found):
        yield path, Account(*map(int, numbers))


def by_source(tx: Transaction) -> dict[str, Account]:
    """What was committed of each source; waiting images are in files not read yet."""
    found: dict[str, dict[str, int]] = {}
    for row in tx.counters.all(IMAGES):
        mine = found.setdefault(row.source, {})
        mine[row.label] = mine.get(row.label, 0) + int(row.value)
    return {
        source: Account(
            listed=sum(mine.values()),
            verdicts=mine.get("known", 0) + mine.get("novel", 0),
            rejected=mine.get("rejected", 0) + mine.get("duplicate", 0),
        )
        for source, mine in sorted(found.items())
    }


def _places() -> list[ColumnElement[int]]:
    """Sums over batches, in the order of :data:`PLACES`."""
    verdicts = batches.c.known + batches.c.novel
    rejected = batches.c.rejected + batches.c.duplicates
    sums = {
        "verdicts": verdicts,
        "rejected": rejected,
        "quarantined": _rows_in(BatchState.QUARANTINED),
        "waiting": _rows_in(BatchState.PENDING),
        "dropped": _rows_in(BatchState.DROPPED),
    }
    return [func.coalesce(func.sum(sums[name]), 0).label(name) for name in PLACES]


def _settled() -> ColumnElement[int]:
    done = batches.c.known + batches.c.novel + batches.c.rejected + batches.c.duplicates
    return case((batches.c.state == BatchState.DONE, done), else_=batches.c.rows)


def _rows_in(state: BatchState) -> ColumnElement[int]:
    return case((batches.c.state == state, batches.c.rows), else_=0)
