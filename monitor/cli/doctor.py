"""``conclad doctor``."""

from __future__ import annotations

from dataclasses import asdict, replace

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output
from monitor.config.load import Loaded

# As of 'conclad store check': the look itself worked, what it saw is not well.
NOT_WELL = 3


@click.command()
@click.option(
    "--address",
    metavar="auto|HOST:PORT",
    help="Also look at the Ray cluster there; without it, at the one of run.address.",
)
@click.option("--quick", is_flag=True, help="Do not load the backbone, which takes seconds.")
@click.option("--speed", is_flag=True, help="Measure images a second by precision and input size.")
@click.option(
    "--cameras",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="For --speed: what so many would need, with an image a second each.",
)
@click.option("--repair", is_flag=True, help="Close the state to other users of the machine.")
@with_config
@with_output
@click.pass_context
def doctor(
    ctx: click.Context,
    address: str | None,
    quick: bool,
    speed: bool,
    cameras: int,
    repair: bool,
    loaded: Loaded,
    output: Output,
) -> None:
    """Look whether this machine or cluster can run the monitor.

    Says in plain words what is wrong and what to do; changes nothing without --repair. Exits
    with 3 if there is a problem, and with 0 if there are at most notes. Where the configuration has
    groups of sources, all of them are looked at unless --group names one.
    """
    if quick and speed:
        raise click.UsageError("--quick leaves the backbone out, and --speed measures it")
    from monitor.doctor import Check, Level, examine
    from monitor.doctor.findings import conclusion

    checks: list[Check] = []
    for group, config in loaded.each().items():
        if group and not output.as_json:
            click.echo(f"{group}:")
        found = examine(
            config,
            address=address,
            quick=quick,
            repair=repair,
            cameras=cameras if speed else None,
        )
        for check in found:
            checks.append(replace(check, name=f"{group}/{check.name}") if group else check)
            if not output.as_json:
                # As it goes: the slow part comes last, and may be what hangs.
                click.echo(str(check))
    well = all(check.level is not Level.PROBLEM for check in checks)
    output.result({"well": well, "checks": [asdict(check) for check in checks]}, conclusion(checks))
    if not well:
        ctx.exit(NOT_WELL)
