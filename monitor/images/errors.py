"""What can be wrong with decoding as a whole; what is wrong with one image is a reject reason."""

from __future__ import annotations

from monitor.errors import ConcladError, ErrorKind


class DecodersFailed(ConcladError):
    """The decoders cannot be started, or die by themselves."""

    kind = ErrorKind.WORKER
