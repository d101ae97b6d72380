"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]


class Moment(click.ParamType[datetime]):
    """A date or a moment, in UTC where it names no zone."""

    name = "TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a date such as 2026-01-31 or 2026-01-31T12:00Z")
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def with_config(command: Command) -> Command:
    """Adds ``--config``, ``--set`` and ``--group``; the command receives ``loaded``."""

    @click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The configuration; without it ray_config.yaml is read if it is here.",
    )
    @click.option(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help="Set one key for this run, such as state.dir=/data/state; repeatable.",
    )
    @click.option(
        "--group",
        metavar="NAME",
        envvar="CONCLAD_GROUP",
        help="The group of sources that is meant, where the configuration has groups.",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        config_path: Path | None,
        overrides: tuple[str, ...],
        group: str | None,
        **options: Any,
    ) -> Any:
        from monitor.config import load

        loaded = load(config_path, overrides=overrides, group=group)
        return command(*arguments, loaded=loaded, **options)

    return wrapped


def with_output(command: Command) -> Command:
    """Adds ``--json`` and ``--quiet``; the command receives ``output``."""

    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option("--quiet", "-q", is_flag=True, help="No progress and no notes on stderr.")
    @functools.wraps(command)
    def wrapped(*arguments: Any, as_json: bool, quiet: bool, **options: Any) -> Any:
        from monitor.cli.output import Output

        with Output(as_json=as_json, quiet=quiet) as output:
            return command(*arguments, output=output, **options)

    return wrapped
