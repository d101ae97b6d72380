"""What can be wrong with a backbone, its weights, or the engine that runs it."""

from __future__ import annotations

from monitor.errors import ConcladError, ErrorKind


class BackboneError(ConcladError):
    """Anything wrong with a backbone or its engine."""


class UnknownBackbone(BackboneError):
    """Neither one of our named choices nor a model that timm knows."""


class BackboneSyntax(BackboneError):
    """A backbone was written in a way that cannot be understood."""


class WeightsUnreachable(BackboneError):
    """The weights would have to come over the network, and did not."""


class WeightsUnreadable(BackboneError):
    """The weights file is missing, broken, or holds more than plain tensors."""


class WeightsMismatch(BackboneError):
    """The weights belong to another network: keys or shapes do not fit."""


class WeightsChanged(BackboneError):
    """The weights are not those that were pinned by their hash."""


class LayersUnavailable(BackboneError):
    """This network does not show its intermediate stages."""


class SizeUnavailable(BackboneError):
    """This network only takes images of the size that it was trained with."""


class UnsupportedPreprocessing(BackboneError):
    """The weights want their images prepared in a way that we do not offer."""


class EngineUnavailable(BackboneError):
    """The asked-for engine or precision cannot run on this machine."""


class EngineInput(BackboneError):
    """The images handed to an engine have the wrong shape or type."""


class EngineFailure(BackboneError):
    """The engine ran and produced nothing usable for any image of a batch."""

    kind = ErrorKind.BATCH


class DeviceFull(BackboneError):
    """The device has no memory left for a single image: somebody else has it, for a while."""

    kind = ErrorKind.DEVICE


class DeviceFailed(BackboneError):
    """The device or its driver failed; the process that used it is of no use any more."""

    kind = ErrorKind.WORKER
