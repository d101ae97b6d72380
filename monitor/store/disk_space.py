"""How much room is left where the state is written, and whether a monitor waits for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.errors import ErrorKind
from monitor.outages import Outage, from_note
from monitor.store.note_and_counter_names import COORDINATOR_LEASE, OUTAGES

if TYPE_CHECKING:
    from monitor.store.store import Store, Transaction

#: Less than this is nothing: a commit needs a page of the database and a file.
FULL_BYTES = 64 << 10

#: Such a disk does not take the renewal of a lease either: a monitor that has not given back its
#: lease is taken for one that waits for the disk until so long after the lease ran out.
WAITS = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk: bytes, and the share of its inodes that is free (None where it counts none).

    >>> Disk(free=0, size=100).is_full, Disk(free=1 << 30, size=1 << 40, inodes=0.0).is_full
    (True, True)
    """

    free: int
    size: int
    inodes: float | None = None
    is_read_only: bool = False

    @property
    def is_full(self) -> bool:
        return self.free < FULL_BYTES or self.inodes == 0


def disk_of(store: Store) -> Disk | None:
    """The disk of the state: of files and database, the one with less room.

    None where neither is on a disk of this machine (a bucket, a database server), or where the
    disk cannot be asked.

    >>> import tempfile
    >>> from monitor.store import Store
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     disk_of(store).size > 0
    True
    """
    places = [Path(store.folder.root)] if store.folder.is_local else []
    if store.database.url.drivername == "sqlite":
        places.append(Path(str(store.database.url.database)).parent)
    try:
        disks = [_disk_at(place) for place in places]
    except OSError:
        return None
    return min(disks, key=_order, default=None)


def _order(disk: Disk) -> tuple[bool, bool, int]:
    return not disk.is_read_only, not disk.is_full, disk.free


def _disk_at(place: Path) -> Disk:
    found = os.statvfs(place)
    # Some file systems make inodes as they need them, and count none.
    inodes = found.f_favail / found.f_files if found.f_files else None
    return Disk(
        found.f_bavail * found.f_frsize,
        found.f_blocks * found.f_frsize,
        inodes,
        is_read_only=bool(found.f_flag & os.ST_RDONLY),
    )


@dataclass(frozen=True, slots=True)
class OutageReport:
    """What the monitor of a state waits for, and a disk that takes nothing while none waits."""

    outages: tuple[Outage, ...] = ()
    unwritable: str | None = None
    """A sentence about the disk, of a state without a monitor: a copy, say."""


def read_outages(tx: Transaction, store: Store) -> OutageReport:
    """Outages that a running monitor has noted, and a full or read-only disk, which it cannot."""
    lease = tx.leases.get(COORDINATOR_LEASE)
    runs = lease is not None and lease.is_held(tx.now)
    noted = from_note(tx.notes.get(*OUTAGES)) if runs else ()
    sentence = _refusal(store)
    if sentence is None or any(one.kind is ErrorKind.DISK for one in noted):
        return OutageReport(noted)
    if lease is None or lease.is_released or tx.now - lease.expires_at >= WAITS:
        return OutageReport(noted, unwritable=sentence)
    return OutageReport((*noted, Outage(ErrorKind.DISK, sentence, tx.now)))


def _refusal(store: Store) -> str | None:
    """Why the disk of the state takes nothing; None if it takes what comes."""
    disk = disk_of(store)
    if disk is None or not (disk.is_read_only or disk.is_full):
        return None
    if disk.is_read_only:
        return f"{store.folder}: the disk of the state is read-only"
    what = "inode" if disk.inodes == 0 else "space"
    return f"{store.folder}: no {what} is left on the disk of the state"
