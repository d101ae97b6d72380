"""``conclad desk``."""

from __future__ import annotations

import threading

import click

from monitor.cli.options import with_config
from monitor.config.load import Loaded
from monitor.jobs.from_config import check_port


@click.command()
@with_config
def desk(loaded: Loaded) -> None:
    """Serve the page where people answer.

    Reads and writes only the state, so it can run without the monitor, beside it, or on another
    machine that reaches the same database and files.
    """
    check_port(loaded.config.desk.host, loaded.config.desk.port, "desk.port")
    # Late: the page takes a second to load, and a mistake should not wait for it.
    from monitor.desk.server import serve

    def ready(url: str) -> None:
        click.echo(f"The desk is at {loaded.config.desk.address or url} (Ctrl-C ends it)")

    serve(loaded.config, ready=ready, stop=threading.Event())
