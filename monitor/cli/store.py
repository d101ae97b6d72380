"""``conclad store``."""

from __future__ import annotations

from dataclasses import asdict

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output
from monitor.config.load import Loaded
from monitor.jobs.parts import open_existing_store
from monitor.store import checking

# Nothing to mend by hand in the command itself, so not 2; scripts can tell it from a crash (1).
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
    errors = sum(finding.severity is checking.Severity.ERROR for finding in findings)
    lines = [str(finding) for finding in findings]
    lines += [f"removed: {name}" for name in removed]
    lines.append("The state is whole." if not errors else f"The state is damaged: {errors} errors.")
    output.result(
        {
            "whole": not errors,
            "findings": [asdict(finding) for finding in findings],
            "removed": removed,
        },
        "\n".join(lines),
    )
    if errors:
        ctx.exit(NOT_WHOLE)
