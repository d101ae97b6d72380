"""``conclad store``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output
from monitor.config.load import Loaded
from monitor.jobs.from_config import check_folder_is_writable, open_existing_store, open_store
from monitor.store import integrity_check as checking
from monitor.store.backup import Backup, back_up
from monitor.store.backup import restore as restore_backup
from monitor.store.counters_and_image_account import PLACES, Account, account, by_source

# Nothing to correct by hand in the command itself, so not 2; scripts can tell it from a crash (1).
NOT_WHOLE = 3


@click.group()
def store() -> None:
    """Look after the state folder."""


@store.command()
@click.option("--sizes-only", is_flag=True, help="Compare sizes and counts, read no file in full.")
@click.option("--repair", is_flag=True, help="Then remove what is certainly redundant.")
@with_config
@with_output
@click.pass_context
def check(
    ctx: click.Context, sizes_only: bool, repair: bool, loaded: Loaded, output: Output
) -> None:
    """Verify every hash and every reference, and say what was found.

    Exits with 3 if something that was committed is missing or different.
    """
    with open_existing_store(loaded.config) as opened:
        findings = checking.check(opened, hashes=not sizes_only)
        removed = checking.repair(opened) if repair else []
        with opened.reading() as tx:
            found = account(tx)
            sources = by_source(tx)
    errors = sum(finding.severity is checking.Severity.ERROR for finding in findings)
    lines = [str(finding) for finding in findings]
    lines += [f"removed: {name}" for name in removed]
    lines.append(_sum(found))
    lines.append("The state is whole." if not errors else f"The state is damaged: {errors} errors.")
    output.result(
        {
            "whole": not errors,
            "findings": [asdict(finding) for finding in findings],
            "removed": removed,
            "account": {**asdict(found), "unaccounted": found.unaccounted},
            "sources": {name: asdict(each) for name, each in sources.items()},
        },
        "\n".join(lines),
    )
    if errors:
        ctx.exit(NOT_WHOLE)


@store.command()
@click.argument("destination", type=click.Path(path_type=Path, file_okay=False))
@with_config
@with_output
def backup(destination: Path, loaded: Loaded, output: Output) -> None:
    """Copy the state to a folder, while the monitor runs.

    The copy shows one moment and is checked to the last byte. A folder that holds an earlier
    backup is brought up to date, which costs only what is new.
    """
    check_folder_is_writable(destination, "name another folder")
    with open_existing_store(loaded.config) as opened:
        made = back_up(opened, destination)
    output.result(_as_dict(made), f"{made.where}: {_amount(made)}, as of {made.at:%F %T} UTC")


@store.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True, file_okay=False))
@with_config
@with_output
def restore(source: Path, loaded: Loaded, output: Output) -> None:
    """Fill an empty state from a backup.

    The place is state.dir, and state.url if it is set: a backup of SQLite can go into PostgreSQL
    and back.
    """
    with open_store(loaded.config) as opened:
        made = restore_backup(source, opened)
    output.result(
        _as_dict(made), f"{made.where}: {_amount(made)}, as it was at {made.at:%F %T} UTC"
    )


def _sum(found: Account) -> str:
    parts = [f"{getattr(found, name):,} {name}" for name in PLACES if getattr(found, name)]
    return f"Images listed: {found.listed:,} = {' + '.join(parts) or '0'}."


def _as_dict(made: Backup) -> dict[str, object]:
    return {**asdict(made), "at": made.at.isoformat()}


def _amount(made: Backup) -> str:
    return f"{made.files} files, {made.bytes / 1e6:,.1f} MB copied"
