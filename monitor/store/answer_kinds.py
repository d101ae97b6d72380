"""The kinds of answer that people can give to a question, and what becomes of an answer."""

from __future__ import annotations

from enum import StrEnum


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
