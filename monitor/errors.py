"""Every error, by what has to be done about it.

The table :data:`TREATMENT` is the whole policy. An error names the thing that is at fault through
its :class:`ErrorKind`; whoever catches it looks the kind up and never judges by the type. Nothing
permanent is done for a cause that may pass: an outage is waited out, whatever it interrupted is
done again, and what is quarantined can be taken back (``conclad quarantine``).

Whatever derives from :class:`ConcladError` carries one sentence that a person can act on.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from monitor.plain_text import MESSAGE_LONGEST, visible


class ErrorKind(StrEnum):
    """Whose error it is."""

    IMAGE = "image"
    FILE = "file"
    BATCH = "batch"
    WORKER = "worker"
    FEED = "feed"
    STORE = "store"
    DISK = "disk"
    DEVICE = "device"
    CLUSTER = "cluster"
    OPERATOR = "operator"
    OURS = "ours"


class Treatment(StrEnum):
    """What is done about it."""

    REJECT = "reject the row, with its reason"
    QUARANTINE = "quarantine the file, with its reason; reversible"
    BISECT = "try again, then halve, then quarantine the rest; reversible"
    REPLACE = "replace the worker and do its work again"
    WAIT = "wait with growing pauses, say so, export it, resume where it stopped"
    EXIT = "one sentence, exit code 2"
    TRACEBACK = "traceback, exit code 1"


TREATMENT: Mapping[ErrorKind, Treatment] = {
    ErrorKind.IMAGE: Treatment.REJECT,
    ErrorKind.FILE: Treatment.QUARANTINE,
    ErrorKind.BATCH: Treatment.BISECT,
    ErrorKind.WORKER: Treatment.REPLACE,
    ErrorKind.FEED: Treatment.WAIT,
    ErrorKind.STORE: Treatment.WAIT,
    ErrorKind.DISK: Treatment.WAIT,
    ErrorKind.DEVICE: Treatment.WAIT,
    ErrorKind.CLUSTER: Treatment.WAIT,
    ErrorKind.OPERATOR: Treatment.EXIT,
    ErrorKind.OURS: Treatment.TRACEBACK,
}

#: Kinds that pass by themselves, or after somebody has repaired something outside of conclad.
OUTAGES = frozenset(kind for kind, done in TREATMENT.items() if done is Treatment.WAIT)


class ConcladError(Exception):
    """Something that a person can act on: bad input, bad configuration, a broken file."""

    kind: ClassVar[ErrorKind] = ErrorKind.OPERATOR

    def __str__(self) -> str:
        # Sentences quote what they are about: names of files, values, what a library said.
        return visible(super().__str__(), MESSAGE_LONGEST, lines=True)


#: What the kernel says of a disk that is full (bytes, inodes or quota), read-only, or away.
_DISK_ERRORS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.ESTALE,
        errno.ENODEV,
        errno.ENXIO,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENOTCONN,
    }
)


def kind_of(error: BaseException) -> ErrorKind:
    """Whose error this is; what nobody foresaw is ours.

    >>> str(kind_of(OSError(errno.ENOSPC, "No space left on device"))), str(kind_of(KeyError()))
    ('disk', 'ours')
    """
    if isinstance(error, ConcladError):
        return error.kind
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        return ErrorKind.DISK
    return ErrorKind.OURS


def is_outage(error: BaseException) -> bool:
    """Whether waiting is the right thing to do."""
    return kind_of(error) in OUTAGES
