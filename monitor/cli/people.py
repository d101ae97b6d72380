"""What the commands about questions, classes and versions share."""

from __future__ import annotations

import functools
import getpass
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def me() -> str:
    """The name under which an answer is recorded unless ``--who`` says another."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "somebody"


def with_who(command: Command) -> Command:
    """Adds ``--who``; the command receives ``who``."""

    @click.option("--who", metavar="NAME", help="Who does this; by default the user of the system.")
    @functools.wraps(command)
    def wrapped(*arguments: Any, who: str | None, **options: Any) -> Any:
        return command(*arguments, who=who or me(), **options)

    return wrapped
