"""What a check of the state can say.

An ``error`` means that something committed is missing or differs; a ``warning`` that something
should be looked at; a ``note`` that something is left over and harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be; ``where`` is a file or a row."""

    severity: Severity
    code: str
    where: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.sentence}"
