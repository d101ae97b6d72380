"""What the desk refuses, each with the HTTP status that says so."""

from __future__ import annotations

from monitor.errors import ConcladError


class DeskError(ConcladError):
    """The root of what the desk refuses; ``status`` is what a client is told."""

    status = 400


class CannotStart(DeskError):
    """The desk would be open to strangers, or its port is taken."""


class BadToken(DeskError):
    """A token that cannot be made or is not there."""


class SignInNeeded(DeskError):
    status = 401


class Forbidden(DeskError):
    status = 403


class NoSuchPage(DeskError):
    status = 404


class WrongMethod(DeskError):
    status = 405


class TooSlow(DeskError):
    status = 408


class TooLarge(DeskError):
    status = 413


class WrongType(DeskError):
    status = 415


class Unprocessable(DeskError):
    status = 422


class TooMany(DeskError):
    status = 429
