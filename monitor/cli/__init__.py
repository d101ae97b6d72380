"""The command line: ``conclad``."""

from monitor.cli.root import main

__all__ = ["main"]
