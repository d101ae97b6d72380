"""What was quarantined: seen, tried again, or given up by a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select, update

from monitor.store.errors import NotFound
from monitor.store.record_states import QUARANTINED_FILES, BatchState, FileState
from monitor.store.records import FileRow
from monitor.store.tables import Repository, batches, chunks, files

_QUARANTINED = batches.c.state == BatchState.QUARANTINED


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    """A file of which something was quarantined."""

    file_id: int
    path: str
    state: FileState
    """``quarantined``, ``gone`` or ``changed`` as a whole; else only some of its rows are."""
    reason: str
    at: datetime
    images: int | None
    """Rows that have neither verdict nor reason; None of a file that was never opened."""
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last row of each batch that was quarantined."""


class Quarantine(Repository):
    """Files and batches that have neither a verdict nor a reason, and wait for a person."""

    def list(self, paths: Sequence[str] | None = None) -> list[QuarantinedFile]:
        """All of them, or those of some files, in feed order."""
        rows = self._connection.execute(
            select(batches).where(_QUARANTINED).order_by(batches.c.file_id, batches.c.first_row)
        ).all()
        by_file: dict[int, list[tuple[int, int]]] = {}
        why: dict[int, tuple[str, datetime]] = {}
        for row in rows:
            by_file.setdefault(row.file_id, []).append(
                (row.first_row, row.first_row + row.rows - 1)
            )
            why.setdefault(row.file_id, (row.reason or "", row.settled_at))
        found = self._files(by_file, paths)
        return [
            QuarantinedFile(
                file_id=file.id,
                path=file.path,
                state=file.state,
                reason=file.reason or why.get(file.id, ("", None))[0],
                at=why[file.id][1] if file.id in why else file.updated_at,
                images=_rows(by_file.get(file.id, []), file),
                ranges=tuple(by_file.get(file.id, ())),
            )
            for file in found
        ]

    def retry(self, paths: Sequence[str] | None = None) -> int:
        """Retry them: every row without a verdict is planned again."""
        chosen = self._choose(paths)
        for piece in chunks(item.file_id for item in chosen):
            self._connection.execute(
                delete(batches).where(batches.c.file_id.in_(piece), _QUARANTINED)
            )
            self._connection.execute(
                update(files)
                .where(files.c.id.in_(piece))
                .values(state=FileState.NEW, reason=None, tries=0, updated_at=self._now)
            )
        return len(chosen)

    def drop(self, paths: Sequence[str] | None = None) -> int:
        """Give them up: they are counted as dropped and raise no more alerts."""
        chosen = self._choose(paths)
        for piece in chunks(item.file_id for item in chosen):
            self._connection.execute(
                update(batches)
                .where(batches.c.file_id.in_(piece), _QUARANTINED)
                .values(state=BatchState.DROPPED, settled_at=self._now)
            )
            self._connection.execute(
                update(files)
                .where(files.c.id.in_(piece), files.c.state.in_(QUARANTINED_FILES))
                .values(state=FileState.DROPPED, updated_at=self._now)
            )
        return len(chosen)

    def _choose(self, paths: Sequence[str] | None) -> Sequence[QuarantinedFile]:
        chosen = self.list(paths)
        for missing in set(paths or ()) - {item.path for item in chosen}:
            raise NotFound(
                f"{missing}: is not quarantined; 'conclad quarantine list' shows what is"
            )
        return chosen

    def _files(self, with_batches: Iterable[int], paths: Sequence[str] | None) -> Sequence[FileRow]:
        found = {
            file.id: file
            for file in self._all(
                FileRow, select(files).where(files.c.state.in_(QUARANTINED_FILES))
            )
        }
        for piece in chunks(sorted(set(with_batches) - set(found))):
            some = self._all(FileRow, select(files).where(files.c.id.in_(piece)))
            found.update((file.id, file) for file in some)
        wanted = None if paths is None else set(paths)
        return [f for _, f in sorted(found.items()) if wanted is None or f.path in wanted]


def _rows(ranges: Sequence[tuple[int, int]], file: FileRow) -> int | None:
    if file.rows is None:
        return None
    return sum(last - first + 1 for first, last in ranges)
