"""``conclad desk``."""

from __future__ import annotations

import threading

import click

from monitor.cli.options import with_config
from monitor.config.load import Loaded


@click.command()
@with_config
def desk(loaded: Loaded) -> None:
    """Serve the page where people answer.

    Reads and writes only the state, so it can run without the monitor, beside it, or on another
    machine that reaches the same database and files.
    """
    from monitor.desk.server import serve

    def ready(url: str) -> None:
        click.echo(f"The desk is at {loaded.config.desk.address or url} (Ctrl-C ends it)")

    serve(loaded.config, ready=ready, stop=threading.Event())
