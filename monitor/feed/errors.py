"""What can be wrong with a feed, one type for each thing a caller does differently."""

from __future__ import annotations

from monitor.errors import ConcladError, ErrorKind


class FeedError(ConcladError):
    """Anything wrong with the feed or one of its files."""


class SourceError(FeedError):
    """The feed's place is wrong: a misspelt path, a scheme nobody knows, nothing that matches."""


class SourceUnavailable(FeedError):
    """The storage did not answer. Nothing is known about the file: try again later."""

    kind = ErrorKind.FEED


class SourceMissing(SourceUnavailable):
    """The folder or bucket is not there: unmounted, renamed, or never made."""


class FileGone(FeedError):
    """The file was listed, and is no longer there, though its folder and neighbours are."""

    kind = ErrorKind.FILE


class FileChanged(FeedError):
    """The file is not the one that was planned. Files of a feed are immutable, so this is loud."""

    kind = ErrorKind.FILE


class FileIncomplete(FeedError):
    """The file has no footer yet: somebody is still writing it, or stopped half way. Try again."""

    kind = ErrorKind.FILE


class FileRefused(FeedError):
    """The file is a link that leads out of the feed, or no regular file."""

    kind = ErrorKind.FILE


class FileCorrupt(FeedError):
    """The file will never be readable: not Parquet, or a footer that contradicts itself."""

    kind = ErrorKind.FILE


class ContractError(FeedError):
    """The file is sound Parquet, but its columns are not those of the contract."""

    kind = ErrorKind.FILE
