"""``conclad init``."""

from __future__ import annotations

from pathlib import Path

import click

from monitor.config.load import DEFAULT_PATH
from monitor.config.template import write_template


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=DEFAULT_PATH)
@click.option("--force", is_flag=True, help="Replace a file that is already there.")
def init(path: Path, force: bool) -> None:
    """Write a commented configuration.

    PATH is ray_config.yaml unless another is given. The file holds every key with its default
    and what it does.
    """
    write_template(path, force=force)
    click.echo(
        f"wrote {path}; next: conclad fit --config {path} --data 'LABELLED*.parquet'", err=True
    )
