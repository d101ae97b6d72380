"""What stands in the way of a job."""

from __future__ import annotations

from monitor.errors import ConcladError


class JobError(ConcladError):
    """The root of everything a job refuses."""


class GroupNeeded(JobError):
    """There are several states, and nobody said which one is meant."""


class NoDetector(JobError):
    """The state holds no detector yet."""


class AlreadyFitted(JobError):
    """The state holds a detector that came from other images or settings."""


class OutputTaken(JobError):
    """The folder for the output holds something else."""


class NothingReadable(JobError):
    """Not one of the files could be read."""


class NotWritable(JobError):
    """A folder for output cannot be written."""


class OtherBackbone(JobError):
    """The detector understands features of another backbone than the one that is configured."""


class PortTaken(JobError):
    """Nobody can listen at an address."""
