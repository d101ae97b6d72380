"""What can go wrong with the state on disk, one type for each thing a person would do."""

from __future__ import annotations

from monitor.errors import ConcladError, ErrorKind


class StoreError(ConcladError):
    """The root of everything the store refuses."""


class DriverMissing(StoreError):
    """The database named in the URL needs a package that is not installed."""


class StoreAddress(StoreError):
    """The place of the state is named in a way that cannot be understood."""


class StoreUnreachable(StoreError):
    """The database does not answer, or broke the connection."""

    kind = ErrorKind.STORE


class StoreBusy(StoreError):
    """Another process kept the write lock for longer than we are willing to wait."""

    kind = ErrorKind.STORE


class DiskUnavailable(StoreError):
    """The disk or bucket of the state is full, read-only, or does not answer."""

    kind = ErrorKind.DISK


class SchemaTooNew(StoreError):
    """The state was written by a newer conclad; this one would not understand it."""


class SchemaTooOld(StoreError):
    """The state was written by a conclad of before; there is no way from there to here."""


class LeaseHeld(StoreError):
    """Somebody else already does this work."""


class LeaseLost(StoreError):
    """We no longer own the lease under which the work was begun."""


class NotFound(StoreError):
    """No row with this name or number."""


class WrongState(StoreError):
    """The step is not allowed from the state the thing is in."""


class BudgetExceeded(StoreError):
    """More questions than the pool's label budget allows."""


class QuestionClosed(StoreError):
    """The question's round has ended; an answer can no longer change anything."""


class ClientIdReused(StoreError):
    """One client id was used for two different requests."""


class ClassNameTaken(StoreError):
    """A living class already has this name."""


class BatchMismatch(StoreError):
    """The rows handed to a commit do not add up to the batch that was planned."""

    kind = ErrorKind.BATCH


class TableMismatch(StoreError):
    """A table does not have the columns of the file it should become."""

    kind = ErrorKind.BATCH


class BackupIncomplete(StoreError):
    """The copy of the state could not be finished, or has no place to go."""


class RestoreRefused(StoreError):
    """The backup is not whole, or there is something that it would overwrite."""


class SnapshotError(StoreError):
    """A saved detector cannot be used."""


class SnapshotMissing(SnapshotError):
    """There is no detector at this place."""


class SnapshotExists(SnapshotError):
    """There already is a different detector at this place; versions are never overwritten."""


class SnapshotTruncated(SnapshotError):
    """A part is shorter than the manifest says."""


class SnapshotTampered(SnapshotError):
    """A part does not have the hash that the manifest says."""


class SnapshotSchemaError(SnapshotError):
    """The snapshot is of a layout that this code does not read."""


class BackboneMismatch(SnapshotError):
    """The detector belongs to features of another backbone."""
