"""Copies of the state to put aside, and the way back.

A backup is a complete state folder: a SQLite file and the files it refers to, with a note
on top that says it is complete. It is taken while the monitor runs, from either database, and
goes back into either.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import delete

from monitor import __version__
from monitor.store.atomic_files import CHUNK, Folder, FolderEntry, is_temporary
from monitor.store.copy_between_databases import copy_rows, is_empty
from monitor.store.database import DATABASE_FILE
from monitor.store.errors import BackupIncomplete, RestoreRefused
from monitor.store.file_modes import make_private_file, make_private_folder
from monitor.store.integrity_check import Severity, check
from monitor.store.note_and_counter_names import DESK_KEY, STAGING
from monitor.store.store import Store
from monitor.store.tables import SCHEMA_VERSION, schema_version

#: Written last: a folder without it is a backup that was interrupted.
NOTE = "backup.json"

#: Files that the database speaks of can be merged away while they are copied; then the newer
#: database is copied, with the files it speaks of. Merging happens minutes apart, so a second
#: round finds peace, and a fifth says that something else is wrong.
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Backup:
    """What was copied: the moment it shows, and how much there was to move."""

    where: str
    at: datetime
    files: int
    bytes: int


def back_up(store: Store, destination: str | Path) -> Backup:
    """Copy a consistent moment of the state into a local folder; the monitor may go on running.

    1. The note of an older backup goes: from here on the folder is incomplete.
    2. The database is copied, as of one moment.
    3. Files that are not there yet are copied. A folder that holds yesterday's backup therefore
       costs one day's files.
    4. The copy is checked, every hash and every reference. If files went away under our hands,
       steps 2 to 4 are repeated.
    5. Files that this moment no longer has go, and the note is written.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with Store.open(folder + "/state") as store:
    ...     backup = back_up(store, folder + "/copy")
    >>> backup.files
    0
    """
    target = Folder.local(_usable(Path(destination)))
    target.delete(NOTE)
    moved = 0
    for _ in range(ROUNDS):
        at = _copy_database(store, Path(target.root))
        listed = list(_files(store.folder))
        moved += sum(_copy_new(store.folder, target, entry) for entry in listed)
        wrong = _errors(target)
        if not wrong:
            break
        for name in wrong:
            _drop(target, name)
    else:
        raise BackupIncomplete(
            f"{target}: after {ROUNDS} rounds the copy still lacks {len(wrong)} files, the first "
            f"is {wrong[0]}; see what 'conclad store check' says of the state itself"
        )
    # Small files may have been merged since the database was copied; what that moment names
    # stays, although the state itself no longer has it.
    names = {entry.name for entry in listed} | _named(target)
    for entry in _files(target):
        if entry.name not in names:
            target.delete(entry.name)
    note = {"at": at.isoformat(), "conclad": __version__, "layout": SCHEMA_VERSION}
    target.write(NOTE, json.dumps(note, indent=2).encode())
    return Backup(str(target), at, len(names), moved)


def restore(source: str | Path, store: Store) -> Backup:
    """Fill an empty store from a backup, and check every hash on the way out.

    The backup itself is not touched, not even brought to a newer layout: that happens to a copy.
    """
    origin = Folder.local(Path(source).expanduser())
    if origin.size(NOTE) is None:
        raise RestoreRefused(
            f"{origin}: holds no complete backup ({NOTE} is missing); name the folder that "
            "'conclad store backup' wrote"
        )
    with store.reading() as tx:
        if not is_empty(tx.connection):
            raise RestoreRefused(
                f"{store.database.where}: already holds state; restore into an empty place, or "
                "move what is there out of the way"
            )
    at = datetime.fromisoformat(json.loads(origin.read(NOTE))["at"])
    listed = list(_files(origin))
    moved = sum(_copy_new(origin, store.folder, entry) for entry in listed)
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(Path(origin.root) / DATABASE_FILE, scratch)
        with (
            Store.open(scratch) as copy,
            copy.database.read() as rows,
            store.database.write() as empty,
        ):
            empty.execute(delete(schema_version))
            copy_rows(rows, empty)
    wrong = [found for found in check(store) if found.severity is Severity.ERROR]
    if wrong:
        raise RestoreRefused(
            f"{origin}: the backup is damaged, {len(wrong)} findings, the first: {wrong[0]}"
        )
    return Backup(str(store.folder), at, len(listed), moved)


def _usable(destination: Path) -> Path:
    folder = destination.expanduser()
    if folder.is_dir() and any(folder.iterdir()):
        held = {path.name for path in folder.iterdir()}
        # A state that is in use looks like a backup, but for the log beside its database.
        if NOTE not in held and (DATABASE_FILE not in held or f"{DATABASE_FILE}-wal" in held):
            raise BackupIncomplete(
                f"{folder}: holds something that is no backup; name an empty or new folder"
            )
    make_private_folder(folder)
    return folder


def _copy_database(store: Store, folder: Path) -> datetime:
    """A new file in one step: SQLite's own copy where it can be, row by row from a server."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".database-") as scratch:
        fresh = Path(scratch) / DATABASE_FILE
        with store.reading() as tx:
            if store.database.is_sqlite:
                with closing(sqlite3.connect(str(store.database.url.database))) as live:
                    _copy_sqlite(live, fresh)
            else:
                with Store.open(scratch) as copy, copy.database.write() as empty:
                    empty.execute(delete(schema_version))
                    copy_rows(tx.connection, empty)
            at = tx.now
        with closing(sqlite3.connect(fresh)) as done:
            # Out of the log and into the one file that is moved.
            done.execute("PRAGMA journal_mode = DELETE")
        fresh.replace(folder / DATABASE_FILE)
    return at


def _copy_sqlite(live: sqlite3.Connection, target: Path) -> None:
    make_private_file(target)
    with closing(sqlite3.connect(target)) as copy:
        live.backup(copy)


def _files(folder: Folder) -> Iterator[FolderEntry]:
    """The files of a state beside its database: committed ones, and those about to be named."""
    for entry in folder.list():
        first = entry.name.partition("/")[0]
        if first in (NOTE, DESK_KEY) or first.startswith((DATABASE_FILE, ".")):
            continue
        if first == STAGING or not is_temporary(entry.name):
            yield entry


def _copy_new(source: Folder, target: Folder, entry: FolderEntry) -> int:
    """Copy a file unless it is there already; returns the bytes moved.

    The size is enough to know one again: the check that follows reads every byte, and what
    differs is dropped and copied in the next round.
    """
    if target.size(entry.name) == entry.size:
        return 0
    try:
        with source.filesystem.open_input_stream(source.path(entry.name)) as stream:
            staged = target.stage(
                entry.name, lambda sink: shutil.copyfileobj(stream, sink, length=CHUNK)
            )
    except FileNotFoundError:
        return 0  # merged or named since it was listed; the check says if that matters
    staged.publish()
    return staged.size


def _drop(folder: Folder, name: str) -> None:
    """Remove what a finding names, be it a file or a detector's folder."""
    if folder.size(name) is not None:
        folder.delete(name)
    elif name:
        folder.delete_folder(name)


def _named(target: Folder) -> set[str]:
    """The outputs and spooled files that the copied database refers to."""
    with closing(sqlite3.connect(Path(target.root) / DATABASE_FILE)) as copy:
        rows = copy.execute("SELECT name FROM outputs UNION SELECT name FROM pool_members")
        return {str(name) for (name,) in rows}


def _errors(folder: Folder) -> list[str]:
    with Store.open(Path(folder.root)) as copy:
        found = check(copy)
    # Opening it turned the log on again; a backup is one file that can be moved.
    with closing(sqlite3.connect(Path(folder.root) / DATABASE_FILE)) as done:
        done.execute("PRAGMA journal_mode = DELETE")
    return [finding.where for finding in found if finding.severity is Severity.ERROR]
