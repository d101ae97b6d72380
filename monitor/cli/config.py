"""``conclad config``."""

from __future__ import annotations

import functools
import re
from typing import Any

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output
from monitor.config.fields import fields_of
from monitor.config.load import Loaded
from monitor.config.schema import Config
from monitor.config.template import reference_table, scalar


@click.group()
def config() -> None:
    """Show the configuration and where it comes from."""


@config.command()
@with_config
@with_output
def show(loaded: Loaded, output: Output) -> None:
    """Every key with the value in force and where it was set.

    The file, the environment (CONCLAD_FEED__PATH) and --set are merged as for every other
    command. Passwords in addresses are not shown.
    """
    values = {
        field.dotted: {
            "value": _presentable(functools.reduce(getattr, field.key, loaded.config)),
            "from": str(loaded.origin(field.dotted)),
        }
        for field in fields_of(Config).values()
    }
    output.result(
        values,
        "\n".join(f"{key}: {scalar(at['value'])}  # {at['from']}" for key, at in values.items()),
    )


@config.command()
def keys() -> None:
    """Every key there is, as a Markdown table."""
    click.echo(reference_table(), nl=False)


@config.command()
def numbers() -> None:
    """Every number of the method with its reason, as Markdown tables."""
    from monitor.novelty.settings_table import settings_tables

    click.echo(settings_tables(), nl=False)


def _presentable(value: Any) -> Any:
    """Without the password that an address may carry."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", value) if isinstance(value, str) else value
