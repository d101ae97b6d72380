"""``conclad quarantine``."""

from __future__ import annotations

import getpass
from collections.abc import Sequence

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, table
from monitor.config.load import Loaded
from monitor.jobs.from_config import open_existing_store
from monitor.store.quarantine import QuarantinedFile


@click.group()
def quarantine() -> None:
    """Show what was quarantined without a verdict; try it again, or give it up."""


@quarantine.command("list")
@with_config
@with_output
def list_(loaded: Loaded, output: Output) -> None:
    """Every file of which something was quarantined, with the reason and the time."""
    with open_existing_store(loaded.config) as store, store.reading() as tx:
        found = tx.quarantine.list()
    output.result([_as_dict(item) for item in found], _describe(found))


@quarantine.command()
@click.argument("files", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that is quarantined.")
@with_config
@with_output
def retry(files: tuple[str, ...], everything: bool, loaded: Loaded, output: Output) -> None:
    """Let the monitor read FILES again, as they are named in the list.

    Rows that have a verdict keep it. A monitor that runs begins at its next listing of the feed.
    """
    paths = _chosen(files, everything)
    with open_existing_store(loaded.config) as store, store.transaction() as tx:
        number = tx.quarantine.retry(paths)
        tx.events.append("quarantine.retried", {"files": number, "who": getpass.getuser()})
    output.result({"retried": number}, f"{number} files are tried again.")


@quarantine.command()
@click.argument("files", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that is quarantined.")
@with_config
@with_output
def drop(files: tuple[str, ...], everything: bool, loaded: Loaded, output: Output) -> None:
    """Give FILES up: their images are counted as dropped, and no alert mentions them again."""
    paths = _chosen(files, everything)
    with open_existing_store(loaded.config) as store, store.transaction() as tx:
        number = tx.quarantine.drop(paths)
        tx.events.append("quarantine.dropped", {"files": number, "who": getpass.getuser()})
    output.result({"dropped": number}, f"{number} files are given up.")


def _chosen(files: Sequence[str], everything: bool) -> Sequence[str] | None:
    if bool(files) == everything:
        raise click.UsageError("name the files, or say --all")
    return None if everything else files


def _as_dict(item: QuarantinedFile) -> dict[str, object]:
    return {
        "file": item.path,
        "state": item.state.value,
        "reason": item.reason,
        "at": item.at.isoformat(),
        "images": item.images,
        "rows": [list(rows) for rows in item.ranges],
    }


def _describe(found: Sequence[QuarantinedFile]) -> str:
    if not found:
        return "Nothing is quarantined."
    rows = [
        (
            item.path,
            "?" if item.images is None else f"{item.images:,}",
            f"{item.at:%F %T}",
            item.reason,
        )
        for item in found
    ]
    return table(("file", "images", "since (UTC)", "reason"), rows)
