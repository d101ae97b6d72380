"""What can be wrong with what somebody wants to bring into a feed."""

from __future__ import annotations

from monitor.errors import ConcladError


class IngestError(ConcladError):
    """Anything that keeps ingest from beginning or going on."""


class SourceRefused(IngestError):
    """A source is missing, of no known kind, or cannot be read."""


class OptionRefused(IngestError):
    """An option, or two of them together, make no sense."""


class FeedRefused(IngestError):
    """The feed cannot be written, or somebody else is writing it."""


class Unreadable(IngestError):
    """One file cannot be read; the others can, so it is reported and left out."""


class MissingExtra(Unreadable):
    """A library that only some kinds of source need is not installed.

    >>> str(MissingExtra("a.mp4", "video files", "video"))
    "a.mp4: video files need one more package: pip install 'conclad-monitor[video]'"
    """

    def __init__(self, where: str, what: str, extra: str) -> None:
        super().__init__(
            f"{where}: {what} need one more package: pip install 'conclad-monitor[{extra}]'"
        )
