"""``conclad verdicts`` and ``conclad discoveries``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from monitor.cli.export_formats import check_export, export, with_export
from monitor.cli.options import with_config
from monitor.config.load import Loaded
from monitor.jobs.from_config import open_existing_store
from monitor.store.read_verdicts import (
    STANDING,
    VERDICT_WORDS,
    read_discoveries,
    read_verdicts,
)
from monitor.store.verdict_columns import DISCOVERIES


@click.command()
@with_export
@click.option(
    "--verdict",
    type=click.Choice(VERDICT_WORDS),
    help="Only images with this settled verdict; novel and known also mean the immediate verdict "
    "of images that are not settled yet.",
)
@with_config
def verdicts(
    form: str,
    source: str | None,
    since: datetime | None,
    until: datetime | None,
    class_: str | None,
    verdict: str | None,
    out: Path | None,
    loaded: Loaded,
) -> None:
    """Write verdicts, immediate and settled, as one table.

    One row for each image, in the order of the feed, with the last settled verdict beside the
    immediate one and classes by id and today's name. Reads the state alone: the monitor may be
    running or not.
    """
    check_export(form, out)
    with open_existing_store(loaded.config) as store:
        found = read_verdicts(
            store, source=source, since=since, until=until, class_=class_, verdict=verdict
        )
        export(found, STANDING, "verdicts", form, out, loaded.config)


@click.command()
@with_export
@with_config
def discoveries(
    form: str,
    source: str | None,
    since: datetime | None,
    until: datetime | None,
    class_: str | None,
    out: Path | None,
    loaded: Loaded,
) -> None:
    """Write the images that new classes were learnt from, as one table.

    One row for each image and detector version that learnt from it: its class, whether a person
    named it or it follows those that people named, and how sure that is.
    """
    check_export(form, out)
    with open_existing_store(loaded.config) as store:
        found = read_discoveries(store, source=source, since=since, until=until, class_=class_)
        export(found, DISCOVERIES, "discoveries", form, out, loaded.config)
