"""``conclad embed``."""

from __future__ import annotations

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, duration
from monitor.config.load import Loaded
from monitor.jobs.from_config import check_backbone, check_files, check_folder_is_writable


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--out", required=True, metavar="DIR", help="Where features/ and rejected/ go.")
@with_config
@with_output
def embed(files: tuple[str, ...], out: str, loaded: Loaded, output: Output) -> None:
    """Write the features of images to Parquet.

    FILES are paths, folders or quoted patterns of Parquet files. Each row of features/ has the
    image's identity, its label if it has one, and a fixed-size list of float32.
    """
    check_backbone(loaded.config)
    check_files(loaded.config, files)
    check_folder_is_writable(out, "name another folder with --out")
    # Late: torch takes seconds to load, and a mistake should not wait for it.
    from monitor.jobs.embed_files import embed as run_embed

    done = run_embed(loaded.config, files, out, progress=output.progress)
    for problem in done.problems:
        output.note(f"not read: {problem.sentence}")
    lines = [
        f"{done.images:,} images, {done.dimension:,} features each, from backbone "
        f"{done.backbone} ({done.precision}) in {duration(done.seconds)}: {done.out}"
    ]
    if done.rejected_by_reason:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in done.rejected_by_reason.items())
        lines.append(f"Rejected: {reasons}.")
    if done.skipped:
        lines.append(f"Done by an earlier run: {done.skipped:,} rows.")
    output.result(done.to_dict(), "\n".join(lines))
