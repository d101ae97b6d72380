"""``conclad evaluate``: compare methods on labelled data, and write down what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.evaluation_data import DEFAULT_BACKBONE, load_datasets
from monitor.errors import ConcladError
from monitor.evaluation.errors import CellsFailedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from monitor.evaluation.labelled_features import LabelledFeatures
    from monitor.evaluation.live_monitor import States, Steps
    from monitor.evaluation.plan_cell import Cell
    from monitor.evaluation.plan_runner import PlanResult
    from monitor.novelty.drift.source_drift import Sketch
    from monitor.pipeline.pool_inspection import PoolInspection

Callback = Callable[[click.Context, click.Parameter, str | None], tuple[Any, ...] | None]


def _listed(convert: Callable[[str], Any], example: str) -> Callback:
    """Comma-separated values, each of them converted; named twice they count once."""

    def convert_all(
        ctx: click.Context, param: click.Parameter, value: str | None
    ) -> tuple[Any, ...] | None:
        if value is None:
            return None
        parts = [part.strip() for part in value.split(",")]
        try:
            values = [convert(part) for part in parts if part]
        except ValueError:
            values = []
        if len(values) < len(parts):
            raise click.BadParameter(
                f"{value!r} is not a comma-separated list such as {example}", ctx, param
            )
        return tuple(dict.fromkeys(values))

    return convert_all


_NUMBERS = _listed(int, "0,1,2")
_SHARES = _listed(float, "0.00625,0.0125")
_LIVE_SHARES = _listed(float, "0.02,0.1")
_NAMES = _listed(str, "robust,paper")
_FILE = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)

# Options of --live by the name that its plan has for them, and options that it has no use for.
_LIVE = {
    "known": "--known",
    "new": "--new",
    "labelled": "--labelled",
    "pool": "--pool",
    "pools": "--pools",
    "shares": "--share",
    "clean": "--clean",
    "sources": "--sources",
    "trickle": "--trickle",
    "false_rounds": "--false-rounds",
}
_NOT_LIVE = {
    "initial": "--initial",
    "increments": "--increment",
    "methods": "--methods",
    "ratio": "--ratio",
    "test_share": "--test-share",
    "holdout_share": "--holdout-share",
    "class_order": "--class-order",
}


@click.command()
@click.option(
    "--features", multiple=True, type=_FILE, help="An .npz with X (n × d) and y. Repeatable."
)
@click.option(
    "--data",
    multiple=True,
    type=_FILE,
    help="A Parquet file of labelled images, or a folder of class folders. Repeatable.",
)
@click.option("--label-column", default="label", show_default=True, help="Where --data has labels.")
@click.option(
    "--backbone",
    multiple=True,
    help="What embeds --data: a named choice or any timm model; the embedded one if none is "
    "given. Repeatable.",
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16", "int8", "float16"]),
    default="auto",
    show_default=True,
    help="Of --backbone; 'auto' chooses as 'conclad fit' does.",
)
@click.option(
    "--input-size",
    type=click.IntRange(32, 1024),
    help="What --backbone sees, in pixels; chosen as 'conclad fit' does if not given.",
)
@click.option(
    "--plan", "plan_name", help="Start from a named plan; options that are also given win."
)
@click.option("--initial", type=int, help="Classes known at first.")
@click.option(
    "--increment",
    "increments",
    callback=_NUMBERS,
    help="New classes per task; a list compares them.",
)
@click.option(
    "--budget",
    "budgets",
    callback=_SHARES,
    help="Labels as a share of each pool; a list compares them.",
)
@click.option("--seeds", callback=_NUMBERS, help="One stream per seed.")
@click.option("--methods", callback=_NAMES, help="What to compare; the first is drawn boldest.")
@click.option("--ratio", type=float, help="Old to new samples in pools and tests (2).")
@click.option("--test-share", type=float, help="Share of every class kept for testing (0.2).")
@click.option(
    "--holdout-share",
    type=float,
    help="Share of the rest that returns as old samples in later pools (0.35).",
)
@click.option("--class-order", callback=_NAMES, help="Every class in the order of its appearance.")
@click.option("--reference", default="robust", show_default=True, help="Wins and losses are its.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--out", type=_FILE, help="Folder for results.json, report.md, report.html, plots/.")
@click.option("--force", is_flag=True, help="Replace the results of another plan or other data.")
@click.option(
    "--shift", is_flag=True, help="Measure drift against novelty instead, on --data seen badly."
)
@click.option(
    "--corruption", callback=_NAMES, help="For --shift: noise,blur,… instead of all of them."
)
@click.option("--severity", callback=_NUMBERS, help="For --shift: a list instead of 1 to 5.")
@click.option(
    "--clean-new",
    is_flag=True,
    help="For --shift: new images stay clean, which makes them easier to recognise.",
)
@click.option(
    "--feeds",
    type=click.IntRange(min=0),
    help="For --shift: feeds without shift, and as many with something new, that are watched (34); "
    "0 leaves out whatever watches a feed.",
)
@click.option(
    "--live", is_flag=True, help="Play feeds to the whole monitor instead: when does it notice?"
)
@click.option("--known", type=_COUNT, help="For --live: known classes (3).")
@click.option("--new", type=_COUNT, help="For --live: new classes (1).")
@click.option("--labelled", type=_COUNT, help="For --live: labelled images of a known class (100).")
@click.option("--pool", type=_COUNT, help="For --live: images in a pool (300).")
@click.option("--pools", type=_COUNT, help="For --live: pools that hold something new (10).")
@click.option(
    "--share",
    "shares",
    callback=_LIVE_SHARES,
    help="For --live: new images as a share of a pool; a list compares them; 0 stays clean.",
)
@click.option("--clean", type=click.IntRange(min=0), help="For --live: clean pools before (5).")
@click.option("--sources", type=_COUNT, help="For --live: sources with habits of their own (1).")
@click.option(
    "--trickle",
    type=click.IntRange(min=0),
    help="For --live: questions a week that a quiet feed may ask (21).",
)
@click.option(
    "--false-rounds",
    type=click.FloatRange(min=0, min_open=True),
    help="For --live: needless rounds a month that are promised (1).",
)
@click.option("--list-methods", is_flag=True, help="Show every method and exit.")
@click.option("--list-plans", is_flag=True, help="Show every named plan and exit.")
def evaluate(
    features: tuple[Path, ...],
    data: tuple[Path, ...],
    label_column: str,
    backbone: tuple[str, ...],
    precision: str,
    input_size: int | None,
    plan_name: str | None,
    reference: str,
    jobs: int,
    out: Path | None,
    force: bool,
    shift: bool,
    corruption: tuple[str, ...] | None,
    severity: tuple[int, ...] | None,
    clean_new: bool,
    feeds: int | None,
    live: bool,
    list_methods: bool,
    list_plans: bool,
    **changes: Any,
) -> None:
    """Compare novelty detectors on labelled data.

    Classes arrive a few at a time in unlabelled pools, as in a feed. Each method sees the same
    pools, may ask for the labels its budget pays for, and is scored on held-out samples. An
    interrupted run goes on where it stopped when the same command is given again.
    """
    # What is not named above changes the plan, under the plan's own names.
    if list_methods or list_plans:
        click.echo(_methods_text() if list_methods else _plans_text())
        return
    if not features and not data:
        raise click.UsageError("give --features F.npz or --data F.parquet")
    if shift and not data:
        raise click.UsageError("--shift needs images: give --data F.parquet")
    if shift and live:
        raise click.UsageError("--shift and --live measure different things; give one of them")
    how = {"precision": precision, "size": input_size or "auto"}
    load = partial(load_datasets, features, data, label_column, backbone, how)
    live_changes = {name: changes.pop(name) for name in _LIVE}
    if not live:
        _refuse(live_changes, _LIVE, "only means something with --live")
    if out is None:
        raise click.UsageError("give --out, the folder for the results")
    if shift:
        for path in data:
            given = {**changes, "clean_new": clean_new, "feeds": feeds}
            _shift(path, label_column, backbone, given, corruption, severity, out)
        return
    if live:
        _refuse({**changes, "plan": plan_name}, {**_NOT_LIVE, "plan": "--plan"}, _UNUSED)
        live_changes |= {name: changes[name] for name in ("seeds", "budgets")}
        _live(load, live_changes, out, jobs=jobs, force=force)
        return
    # Imported only now: they bring scientific libraries that take seconds to load.
    from monitor.evaluation.plan_runner import run_plan
    from monitor.evaluation.plans import EvaluationPlan, named_plan

    plan = (named_plan(plan_name) if plan_name else EvaluationPlan()).with_changes(**changes)
    # A mistake in the plan is told before minutes of embedding.
    plan.checked()
    datasets = load()
    outcome = run_plan(plan, datasets, out, jobs=jobs, force=force, progress=_show)
    _report(outcome, out, reference)


_UNUSED = "means nothing with --live, which has options of its own"


def _refuse(given: Mapping[str, Any], options: Mapping[str, str], why: str) -> None:
    """An option that would do nothing is a misunderstanding."""
    for name, option in options.items():
        if given[name] is not None:
            raise click.UsageError(f"{option} {why}")


def _live(
    load: Callable[[], list[LabelledFeatures]],
    changes: Mapping[str, Any],
    out: Path,
    *,
    jobs: int,
    force: bool,
) -> None:
    from monitor.evaluation.live_plan import LivePlan
    from monitor.evaluation.live_report import write_live_report
    from monitor.evaluation.live_run import run_live

    plan = LivePlan().with_changes(**changes).checked()
    outcome = run_live(plan, load(), out, live_steps(), jobs=jobs, force=force, progress=_show_feed)
    if outcome.records:
        for table in write_live_report(outcome.records, outcome.meta, out):
            click.echo(f"{table.title}\n\n{table.markdown()}\n")
        click.echo(f"Wrote {out / 'live.json'} and {out / 'live.md'}.")
    _fail(outcome.failures, "feeds")


def live_steps() -> Steps:
    """The steps of ``conclad run``, with the defaults of its configuration."""
    from monitor.evaluation.live_monitor import Steps

    return Steps(look=_look, budget=_budget)


def _budget(size: int, share: float | None) -> int:
    from monitor.config.schema import LabelsSection
    from monitor.pipeline.pool_steps import budget_of

    # A budget that is compared with others counts as it is given.
    labels = LabelsSection() if share is None else LabelsSection(budget=share, least=1)
    return budget_of(size, labels)


def _look(
    sketch: Sketch,
    features: NDArray[np.float32],
    sources: NDArray[np.object_],
    states: States,
    at: float,
) -> PoolInspection:
    import numpy as np

    from monitor.images.image_stats import STATS
    from monitor.novelty.drift.source_drift import DriftSettings
    from monitor.pipeline.pool_inspection import SourceHistory, inspect_pool

    past = SourceHistory(states, {str(source): at for source in sources})
    # Features say nothing of brightness or sharpness: drift is watched without them.
    stats = np.empty((0, len(STATS)), np.float32)
    return inspect_pool(sketch, features, sources, stats, past, DriftSettings())


def _report(outcome: PlanResult, out: Path, reference: str) -> None:
    """Write and print what came of the cells; those that failed make the command fail."""
    from monitor.evaluation.protocol_report import reference_among, write_report
    from monitor.evaluation.report_tables import comparisons

    if outcome.records:
        judged = reference_among(outcome.records, reference)
        meta = {**outcome.meta, "failures": outcome.failures}
        write_report(outcome.records, meta, out, judged)
        for table in comparisons(outcome.records, judged):
            click.echo(f"{table.title}\n\n{table.markdown()}\n")
        click.echo(f"Wrote {out / 'results.json'}, {out / 'report.md'} and {out / 'report.html'}.")
    _fail(outcome.failures, "cells")


def _fail(failures: Mapping[str, str], what: str) -> None:
    if failures:
        listed = "; ".join(f"{key}: {reason}" for key, reason in failures.items())
        raise CellsFailedError(
            f"{len(failures)} {what} failed ({listed}); the others are kept, and the same "
            f"command tries these again"
        )


def _shift(
    path: Path,
    label_column: str,
    backbones: tuple[str, ...],
    changes: Mapping[str, Any],
    corruptions: tuple[str, ...] | None,
    severities: tuple[int, ...] | None,
    out: Path,
) -> None:
    from monitor.evaluation.shift import ShiftPlan
    from monitor.evaluation.shift_corruptions import CORRUPTIONS, SEVERITIES
    from monitor.evaluation.shift_report import write_shift_report
    from monitor.evaluation.shift_run import run_shift

    increments = changes["increments"]
    given = {
        "known": changes["initial"],
        "new": increments[0] if increments else None,
        "budgets": changes["budgets"],
        "clean_new": changes["clean_new"],
        "feeds": changes["feeds"],
    }
    folder = out / path.stem
    records = run_shift(
        path,
        ShiftPlan(**{name: value for name, value in given.items() if value is not None}),
        folder,
        corruptions=corruptions or tuple(CORRUPTIONS),
        severities=severities or SEVERITIES,
        seeds=changes["seeds"] or (0, 1, 2),
        label_column=label_column,
        backbone=backbones[0] if backbones else DEFAULT_BACKBONE,
        progress=lambda text: click.echo(text, err=True),
    )
    for table in write_shift_report(records, folder, clean_new=changes["clean_new"]):
        click.echo(f"{table.title}\n\n{table.markdown()}\n")
    click.echo(f"Wrote {folder / 'shift.json'} and {folder / 'shift.md'}.")


def _show(cell: Cell, done: int, total: int, status: str, left: float | None) -> None:
    _show_feed(cell.key, done, total, status, left)


def _show_feed(key: str, done: int, total: int, status: str, left: float | None) -> None:
    if status == "kept":
        return
    rest = "" if left is None or done == total else f", about {_duration(left)} left"
    click.echo(f"[{done}/{total}] {key}: {status}{rest}", err=True)


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{max(1, round(seconds))} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _methods_text() -> str:
    from monitor.evaluation.methods.registry import METHODS

    width = max(map(len, METHODS))
    return "\n".join(f"{name:<{width}}  {entry.summary}" for name, entry in METHODS.items())


def _plans_text() -> str:
    from monitor.evaluation.plans import PLANS

    return "\n".join(
        f"{name}: initial {plan.initial or '(give --initial)'}, increment "
        f"{', '.join(map(str, plan.increments)) or '(give --increment)'}, budget "
        f"{', '.join(f'{100 * budget:g}%' for budget in plan.budgets)}, "
        f"{len(plan.seeds)} seeds, methods {', '.join(plan.methods)}"
        for name, plan in PLANS.items()
    )


def main() -> None:
    """Run the command on its own, with errors told as the ``conclad`` command tells them."""
    try:
        evaluate.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.Abort:
        raise SystemExit(130) from None
    except ConcladError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
