"""``conclad score``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, duration, table
from monitor.config.load import Loaded
from monitor.jobs.from_config import check_detector, check_files, check_folder_is_writable

if TYPE_CHECKING:
    from monitor.jobs.score_files import Scored

# More rows than this are for a program: --json has them all.
SOURCES_SHOWN = 20


@click.command()
@click.argument("files", nargs=-1)
@click.option("--out", required=True, metavar="DIR", help="Where verdicts/ and rejected/ go.")
@with_config
@with_output
def score(files: tuple[str, ...], out: str, loaded: Loaded, output: Output) -> None:
    """Judge the images of some Parquet files.

    FILES are paths, folders or quoted patterns; without any, all of feed.path is scored. Every
    row gets a verdict (known or novel, with its score over T_inner) or a reason why not. An
    interrupted run goes on where it stopped when it is given the same --out.
    """
    named = files or (loaded.config.feed.path,)
    check_files(loaded.config, named)
    check_detector(loaded.config)
    check_folder_is_writable(out, "name another folder with --out")
    # Late: torch takes seconds to load, and a mistake should not wait for it.
    from monitor.jobs.score_files import score as run_score

    scored = run_score(loaded.config, named, out, progress=output.progress)
    for problem in scored.problems:
        output.note(f"not read: {problem.sentence}")
    output.result(scored.to_dict(), describe(scored))


def describe(scored: Scored) -> str:
    lines = []
    if scored.sources:
        shown = list(scored.sources.items())[:SOURCES_SHOWN]
        kinds = ("known", "novel", "rejected", "duplicate")
        lines.append(
            table(
                ("source", *kinds),
                [(name, *(f"{counts.get(k, 0):,}" for k in kinds)) for name, counts in shown],
            )
        )
        if len(scored.sources) > len(shown):
            lines.append(f"… and {len(scored.sources) - len(shown):,} more sources (see --json)")
        lines.append("")
    judged = scored.known + scored.novel
    share = f" ({scored.novel / judged:.1%})" if judged else ""
    lines.append(
        f"{scored.novel:,} of {judged:,} images are novel{share}; calibration expects "
        f"{scored.exceedance:.1%} of known images above T_inner {scored.t_inner:.4g}."
    )
    if scored.rejected_by_reason:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in scored.rejected_by_reason.items())
        lines.append(f"Rejected: {reasons}.")
    if scored.duplicates:
        lines.append(f"Duplicates left out: {scored.duplicates:,}.")
    if scored.reused:
        lines.append(f"Unchanged frames that reused the features of another: {scored.reused:,}.")
    if scored.problems:
        lines.append(f"Files that could not be read: {len(scored.problems):,}.")
    if scored.skipped:
        lines.append(f"Done by an earlier run: {scored.skipped:,} rows.")
    speed = f", {scored.images_per_second:,.0f} images/s" if scored.images_per_second else ""
    lines.append(
        f"{scored.images:,} rows of {scored.files:,} files with detector version "
        f"{scored.detector_version} in {duration(scored.seconds)}{speed}: {scored.out}"
    )
    return "\n".join(lines)
