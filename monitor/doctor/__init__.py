"""Checks of a machine or a cluster before it is used: what works, what does not, what to do."""

from monitor.doctor.all_checks import examine
from monitor.doctor.findings import Check, Level

__all__ = ["Check", "Level", "examine"]
