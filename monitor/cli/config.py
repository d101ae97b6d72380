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

#: Addresses whose path is what lets people in.
_ARE_SECRETS = frozenset({"webhooks.urls", "messages.targets"})


@click.group()
def config() -> None:
    """Show the configuration and where it comes from."""


@config.command()
@with_config
@with_output
def show(loaded: Loaded, output: Output) -> None:
    """Every key with the value in force and where it was set.

    The file, the environment (CONCLAD_FEED__PATH) and --set are merged as for every other
    command. Passwords in addresses are not shown, nor are the paths of webhooks and messages:
    whoever has one can write there.
    """
    values = {
        field.dotted: {
            "value": presentable(
                functools.reduce(getattr, field.key, loaded.config), field.dotted in _ARE_SECRETS
            ),
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


def presentable(value: Any, is_secret: bool = False) -> Any:
    """Without the password, token or key that an address may carry.

    >>> presentable("postgresql://conclad:pass@db/x?sslkey=a&token=b")
    'postgresql://conclad:***@db/x?sslkey=***&token=***'
    >>> presentable(("slack+https://hooks.example.org/services/T0/B0",), is_secret=True)
    ['slack+https://hooks.example.org/***']
    """
    if isinstance(value, list | tuple):
        return [presentable(one, is_secret) for one in value]
    if not isinstance(value, str):
        return value
    if is_secret:
        found = re.match(r"([a-z0-9+.-]+://)(?:[^/?#]*@)?([^/?#]*)(.*)", value, re.IGNORECASE)
        if found is None:
            return "***"
        return f"{found[1]}{found[2]}/***" if found[3].strip("/") or "@" in value else value
    masked = re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", value)
    return re.sub(r"([?&][^=&]*(?:key|token|secret|password|sig)[^=&]*)=[^&#]*", r"\1=***", masked)
