"""``conclad demo``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.cli.options import with_output
from monitor.cli.output import Output, duration, table
from monitor.config import Config
from monitor.jobs.from_config import check_folder_is_writable, check_labelled

if TYPE_CHECKING:
    from monitor.demo.measure import ClassOutcome
    from monitor.demo.play import Played

_PATH = click.Path(path_type=Path)


@click.command()
@click.option(
    "--data",
    type=_PATH,
    help="Labelled images of your own (Parquet) in place of rendered scenes; five classes of sixty "
    "images at least.",
)
@click.option(
    "--dir",
    "folder",
    type=_PATH,
    default=Path("conclad-demo"),
    show_default=True,
    help="Where everything is written.",
)
@click.option("--interactive", is_flag=True, help="You answer, on the desk.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--keep", is_flag=True, help="Go on from what an earlier demo left in the folder.")
@with_output
def demo(
    data: Path | None, folder: Path, interactive: bool, seed: int, keep: bool, output: Output
) -> None:
    """Watch a feed in which new classes appear, from the first image to the last figure.

    Renders overhead scenes (or takes --data), learns some classes, then watches a feed of three
    sources in which others appear, one after the other and two at once, while one source gets a
    dirty lens and another stays as it was. The labels of the feed answer within the budget. Ends
    with what was found when, at what price, and how right the verdicts were. Takes about two
    minutes on two cores.
    """
    if data is not None:
        check_labelled(Config(), [data])
    check_folder_is_writable(folder, "name another with --dir")
    # Late: torch takes seconds to load, and a mistake should not wait for it.
    from monitor.demo.play import DemoOptions, play, to_dict

    def show(played: Played) -> None:
        output.result(to_dict(played), describe(played))
        # Whoever has just answered wants to see what became of it.
        if interactive and sys.stdin.isatty():
            click.prompt("\nThe desk stays open until you press Enter", "", show_default=False)

    options = DemoOptions(folder=folder, data=data, seed=seed, interactive=interactive, keep=keep)
    play(options, say=output.note, progress=output.progress, at_the_end=show)


def describe(played: Played) -> str:
    outcome, folder = played.outcome, played.folder
    known = [c for c in outcome.classes if c.arrived_at is None]
    new = [c for c in outcome.classes if c.arrived_at is not None]
    images = len(outcome.judgements)
    took = sum(played.seconds.values())
    stages = ", ".join(f"{stage} {duration(part)}" for stage, part in played.seconds.items())
    config = f"--config {folder.config_file}"
    metrics, desk = played.config.metrics, played.config.desk
    return "\n".join(
        [
            "",
            table(
                ("new class", "first seen", "learnt", "version", "answers", "called novel before",
                 "settled as new", "called novel after", "settled so after", "right class after"),
                [_new(c) for c in new],
            ),
            "",
            table(
                ("known class", "images", "called novel", "right class"),
                [(c.label, f"{c.false_novel.whole:,}", str(c.false_novel), str(c.recognised))
                 for c in known],
            ),
            "",
            f"Found {len(outcome.discovered)} of {len(new)} new classes with {outcome.questions} "
            f"questions about {images:,} images ({outcome.questions / max(images, 1):.1%}).",
            f"At once: of the images called novel {outcome.precision} were; of the truly novel "
            f"{outcome.recall} were called so.",
            f"Settled with their pool: of the images settled as new {outcome.settled_precision} "
            f"were; of the truly novel {outcome.settled_recall} were settled so.",
            f"Through the dirty lens {outcome.dirty_novel} of the known images were called novel, "
            f"{outcome.dirty_corrected} once the shift was corrected;",
            f"{outcome.dirty_settled} were settled as new or undecided, and "
            f"{outcome.dirty_questions} questions were about them.",
            f"It took {duration(took)} ({stages}).",
            "",
            f"Picture    {folder.picture}",
            f"Files      {folder.state / 'verdicts'}, {folder.state / 'settled'}, "
            f"{folder.state / 'discoveries'}",
            f"State      conclad status {config}",
            f"Desk       conclad desk {config}   (http://{desk.host}:{desk.port})",
            f"Metrics    conclad run {config}   (http://{metrics.host}:{metrics.port}/metrics)",
        ]
    )  # fmt: skip


def _new(found: ClassOutcome) -> tuple[str, ...]:
    assert found.arrived_at is not None
    return (
        found.label,
        f"{found.arrived_at:%-d %b %H:%M}",
        f"{found.found_at:%-d %b %H:%M}" if found.found_at else "not learnt",
        str(found.version or "-"),
        str(found.answers),
        f"{found.recall} of {found.recall.whole}",
        str(found.settled_new),
        f"{found.false_novel} of {found.false_novel.whole}",
        str(found.settled_novel),
        str(found.recognised),
    )
