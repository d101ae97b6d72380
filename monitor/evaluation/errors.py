"""What can be wrong with an evaluation before it starts, each with a type of its own."""

from __future__ import annotations

from monitor.errors import ConcladError


class EvaluationError(ConcladError):
    """The root of everything the evaluation refuses."""


class FeatureFileError(EvaluationError):
    """A feature file cannot be read, or lacks ``X`` or ``y``."""


class FeatureShapeError(EvaluationError):
    """``X`` is not a matrix with one row per label, or two files disagree on its width."""


class FeatureValueError(EvaluationError):
    """``X`` holds NaN or infinity, or is not made of numbers."""


class MissingLabelsError(EvaluationError):
    """Labels are absent, empty, or fewer than the samples."""


class EmptyClassError(EvaluationError):
    """A class is named but has no sample."""


class ClassTooSmallError(EvaluationError):
    """A class has too few samples to be split into test, hold-out and training parts."""


class NotEnoughClassesError(EvaluationError):
    """The data has fewer classes than the plan introduces."""


class ClassOrderError(EvaluationError):
    """The class order asked for does not match the classes in the data."""


class ShareError(EvaluationError):
    """A share or ratio lies outside the range in which it means something."""


class BudgetError(EvaluationError):
    """A budget of zero or less: there would be nothing to ask."""


class PoolTooSmallError(EvaluationError):
    """A pool has fewer samples than the labels the budget pays for."""


class BudgetExceededError(EvaluationError):
    """A method asked for more labels than it was given."""


class QuestionError(EvaluationError):
    """A method asked twice for one sample, or for a sample that is not in the pool."""


class UnknownMethodError(EvaluationError):
    """No method goes by that name."""


class MethodUnavailableError(EvaluationError):
    """The method is registered, but the code behind it cannot be imported."""


class MethodOutputError(EvaluationError):
    """A method returned something the evaluation cannot measure."""


class UnknownPlanError(EvaluationError):
    """No plan goes by that name."""


class IncompletePlanError(EvaluationError):
    """Neither the command nor the named plan says how many classes to begin or go on with."""


class DuplicateDatasetError(EvaluationError):
    """Two inputs would be reported under the same name and backbone."""


class OutputInUseError(EvaluationError):
    """The output folder holds the results of another plan or other data."""


class CellsFailedError(EvaluationError):
    """Some cells failed; the results of the others are written."""


class ShiftError(EvaluationError):
    """A corruption or severity that does not exist, or data that no shift can be measured on."""
