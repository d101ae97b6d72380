"""What can be wrong with something a person asked for."""

from __future__ import annotations

from monitor.errors import ConcladError


class PeopleError(ConcladError):
    """The root of what this package refuses."""


class BadName(PeopleError):
    """Text that cannot be the name of a class."""


class BadAnswer(PeopleError):
    """An answer that says nothing, or two things at once."""


class BadFile(PeopleError):
    """A file of answers that cannot be read at all."""


class ImportLeft(PeopleError):
    """A file of answers whose sender left before all of them were taken; give it again."""


class NotPossible(PeopleError):
    """A change that would leave no working detector, or that lacks what it needs."""
