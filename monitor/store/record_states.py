"""The states of files, batches, questions and versions; a pool's are in pool_transitions.py."""

from __future__ import annotations

from enum import StrEnum


class FileState(StrEnum):
    """A feed file: seen, cut into batches, finished, quarantined, or given up by a person."""

    NEW = "new"
    PLANNED = "planned"
    DONE = "done"
    QUARANTINED = "quarantined"
    GONE = "gone"
    """It was listed and is no longer there; it continues when it is listed again."""
    CHANGED = "changed"
    """It is another one than when some of its rows were read."""
    DROPPED = "dropped"


#: Files that wait for a person, or (the gone) for their return.
QUARANTINED_FILES = (FileState.QUARANTINED, FileState.GONE, FileState.CHANGED)


class BatchState(StrEnum):
    """A row range of a file: to do, committed, quarantined with a reason, or given up."""

    PENDING = "pending"
    DONE = "done"
    QUARANTINED = "quarantined"
    DROPPED = "dropped"


class QuestionState(StrEnum):
    """A question: open, answered (can be undone), or closed with its round."""

    OPEN = "open"
    ANSWERED = "answered"
    CLOSED = "closed"


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
