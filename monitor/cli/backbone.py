"""``conclad backbone``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from monitor.backbones.backbone_spec import NAMED, check_name
from monitor.cli.options import with_output
from monitor.cli.output import Output, table
from monitor.jobs.from_config import check_folder_is_writable


@click.group()
def backbone() -> None:
    """List backbones, and bring the weights of one here."""


@backbone.command("list")
@click.option("--speed", is_flag=True, help="Also measure each on this machine; takes a minute.")
@with_output
def list_(speed: bool, output: Output) -> None:
    """The backbones that have a name of their own; timm's are taken by theirs.

    Loads each with made-up weights to tell its figures, so no network is needed.
    """
    from monitor.backbones.backbone_figures import figures

    found = []
    for name in NAMED:
        output.note(f"looking at {name}")
        found.append(figures(name, speed=speed))
    rows = [
        (
            one.name,
            f"{one.dimension:,}",
            f"{one.megabytes:.0f} MB",
            "here" if one.here else "to be fetched",
            "-" if one.images_per_second is None else f"{one.images_per_second:,.0f}",
        )
        for one in found
    ]
    header = ("backbone", "features", "size", "weights", "images/s here")
    output.result([asdict(one) for one in found], table(header, rows))


@backbone.command()
@click.argument("name")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    help="A .safetensors or .pth file that was fetched on another machine.",
)
@click.option("--sha256", metavar="HASH", help="Refuse weights whose tensors have another hash.")
@with_output
def fetch(name: str, source: Path | None, sha256: str | None, output: Output) -> None:
    """Bring the weights of a backbone here, so that nothing is fetched later.

    Shows the hash of the weights, to be pinned with backbone.sha256.
    """
    from monitor.backbones.backbone_spec import cache_root

    check_name(name)
    if source is not None and not source.expanduser().is_file():
        raise click.UsageError(f"{source}: no such file of weights")
    check_folder_is_writable(cache_root(), "name another with CONCLAD_CACHE")
    # Late: torch takes seconds to load, and a mistake should not wait for it.
    from monitor.backbones.fetched_weights import fetch as bring

    found = bring(name, source=None if source is None else str(source), sha256=sha256)
    output.result(
        asdict(found),
        f"{name}: {found.dimension:,} features, {found.megabytes:.0f} MB, "
        f"{found.file or 'installed with conclad'}\nPin them with backbone.sha256: {found.sha256}",
    )
