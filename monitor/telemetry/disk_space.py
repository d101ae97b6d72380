"""How much room is left where the state is written."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from monitor.store import Store


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk, in bytes."""

    free: int
    size: int


def disk_of(store: Store) -> Disk | None:
    """The disk of the state: of files and database, the one with less room.

    None where neither is on a disk of this machine (a bucket, a database server), or where the
    disk cannot be asked.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     disk_of(store).size > 0
    True
    """
    places = [Path(store.folder.root)] if store.folder.is_local else []
    if store.database.url.drivername == "sqlite":
        places.append(Path(str(store.database.url.database)).parent)
    try:
        found = [shutil.disk_usage(place) for place in places]
    except OSError:
        return None
    disks = [Disk(usage.free, usage.total) for usage in found]
    return min(disks, key=lambda disk: disk.free, default=None)
