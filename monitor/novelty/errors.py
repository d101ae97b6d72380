"""What can be wrong with features, labels, budgets and detectors: one type for each."""

from __future__ import annotations

from monitor.errors import ConcladError


class NoveltyError(ConcladError):
    """Root of the errors of this package."""


class InvalidFeatures(NoveltyError):
    """Features that are not a finite matrix of numbers."""


class DimensionMismatch(NoveltyError):
    """Features of another width than the detector was fitted on."""


class MissingLabels(NoveltyError):
    """Labels that are absent, empty, or of another number than the features."""


class ClassTooSmall(NoveltyError):
    """A class with too few samples to fit and hold some out."""


class InvalidBudget(NoveltyError):
    """A label budget that is zero, negative, or larger than the pool."""


class UnknownClass(NoveltyError):
    """A class id or name that the detector does not have."""


class DuplicateClass(NoveltyError):
    """A class id or name that the detector already has."""


class FingerprintMismatch(NoveltyError):
    """Features or a detector of another backbone."""


class InvalidDetector(NoveltyError):
    """A detector's stored state that does not make sense."""


class InvalidSettings(NoveltyError):
    """A setting outside the range in which the method means anything."""


class InvalidAnswer(NoveltyError):
    """Answers that do not fit the questions asked."""
