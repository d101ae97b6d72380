"""The states that things in the store can be in, and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class FileState(StrEnum):
    """A feed file: seen, cut into batches, finished, or set aside."""

    NEW = "new"
    PLANNED = "planned"
    DONE = "done"
    QUARANTINED = "quarantined"
    CHANGED = "changed"


class BatchState(StrEnum):
    """A row range of a file: to do, committed, or given up with a reason."""

    PENDING = "pending"
    DONE = "done"
    QUARANTINED = "quarantined"


class PoolState(StrEnum):
    """A pool of scored samples on its way from the feed to an answer."""

    FILLING = "filling"
    CLOSED = "closed"
    QUIET = "quiet"
    ASKING = "asking"
    WAITING = "waiting"
    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    HELD = "held"


#: ``asking`` is the machine's turn (the inner loop picks), ``waiting`` is the people's turn.
#: ``held`` waits for an operator who releases (resolved) or refuses (unresolved) the update.
#: An unresolved pool may be asked about again while its features are kept.
POOL_MOVES: Mapping[PoolState, frozenset[PoolState]] = {
    PoolState.FILLING: frozenset({PoolState.CLOSED}),
    PoolState.CLOSED: frozenset({PoolState.QUIET, PoolState.ASKING, PoolState.UNRESOLVED}),
    PoolState.QUIET: frozenset(),
    PoolState.ASKING: frozenset(
        {PoolState.WAITING, PoolState.RESOLVED, PoolState.UNRESOLVED, PoolState.HELD}
    ),
    PoolState.WAITING: frozenset({PoolState.ASKING, PoolState.UNRESOLVED}),
    PoolState.RESOLVED: frozenset(),
    PoolState.UNRESOLVED: frozenset({PoolState.ASKING}),
    PoolState.HELD: frozenset({PoolState.RESOLVED, PoolState.UNRESOLVED}),
}

#: Nothing will be asked of these any more, so what was spooled for them may be dropped.
FINISHED_POOLS = frozenset({PoolState.QUIET, PoolState.RESOLVED, PoolState.UNRESOLVED})


class QueryState(StrEnum):
    """A question: open, answered (can be undone), or closed with its round."""

    OPEN = "open"
    ANSWERED = "answered"
    CLOSED = "closed"


class AnswerKind(StrEnum):
    """What a person said; ``undo`` takes an earlier answer back and is a row of its own."""

    KNOWN_CLASS = "known_class"
    NEW_CLASS = "new_class"
    CANNOT_TELL = "cannot_tell"
    BAD_IMAGE = "bad_image"
    UNDO = "undo"


class AnswerOutcome(StrEnum):
    """What became of an answer when it arrived."""

    ACCEPTED = "accepted"
    CONFLICT = "conflict"


class ClassOrigin(StrEnum):
    """Who brought a class into the world."""

    FIT = "fit"
    PERSON = "person"
    PROVISIONAL = "provisional"


class VersionState(StrEnum):
    """A detector version: in use once, waiting for an operator, or taken back."""

    PUBLISHED = "published"
    HELD = "held"
    ROLLED_BACK = "rolled_back"
