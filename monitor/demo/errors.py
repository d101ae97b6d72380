"""What stands in the way of a demonstration."""

from __future__ import annotations

from monitor.errors import ConcladError


class DemoError(ConcladError):
    """The root of everything the demo refuses."""


class TooFewImages(DemoError):
    """The images that were named do not suffice for a story."""


class FolderTaken(DemoError):
    """The folder holds something that is not an earlier demo."""


class RunFailed(DemoError):
    """The monitor ended before the story did."""
