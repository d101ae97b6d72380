"""A look at a machine or a cluster before it is trusted: what works, what does not, what to do."""

from monitor.doctor.all_checks import examine
from monitor.doctor.findings import Check, Level

__all__ = ["Check", "Level", "examine"]
