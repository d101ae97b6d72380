"""``conclad fit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, data_for_each, duration, for_each, table
from monitor.config.load import Loaded
from monitor.jobs.from_config import check_backbone, check_labelled, check_state_is_writable

if TYPE_CHECKING:
    from monitor.jobs.fit_detector import Fitted


@click.command()
@click.option(
    "--data",
    metavar="PATTERN",
    multiple=True,
    required=True,
    help="Labelled Parquet files (a path, a folder, or a quoted pattern; repeatable), or one "
    "folder of class folders.",
)
@with_config
@with_output
def fit(data: tuple[str, ...], loaded: Loaded, output: Output) -> None:
    """Learn the known classes from labelled images.

    Makes detector version 1 in the state folder, and shows for each class how many images it
    has, how many components its subspace keeps, and how well images that it was not fitted on
    are reconstructed; and what share of a pool would be noticed. An interrupted run goes on where
    it stopped. Where the configuration has groups of sources, each begins with what these images
    teach, unless --group names one.
    """
    for config in loaded.each().values():
        check_backbone(config)
        check_labelled(config, data)
        check_state_is_writable(config)
    # Late: torch takes seconds to load, and a mistake should not wait for it.
    from monitor.jobs.fit_detector import fit as run_fit

    output.note("choosing precision and input size on a sample, then embedding all images: minutes")
    fitted = {
        name: run_fit(config, data, progress=output.progress)
        for name, config in loaded.each().items()
    }
    output.result(
        data_for_each({name: found.to_dict() for name, found in fitted.items()}),
        for_each({name: describe(found) for name, found in fitted.items()}),
    )


def _could_see(fitted: Fitted) -> list[str]:
    """The smallest share of a pool that would be noticed, and what would improve it."""
    from monitor.novelty.trigger.trigger_settings import SensitivitySettings

    found = fitted.sensitivity
    if found is None:
        return ["What could be noticed cannot be estimated from fewer than three classes."]
    lines = [
        f"Of pools of {found.pool:,} images, one a day, the trigger notices a new class from "
        f"{found.one_pool:.1%} of a pool on at once, from {found.ten_pools:.1%} on within ten "
        "pools (nine times in ten, if it is as unlike the others as known classes are)."
    ]
    if found.one_pool > SensitivitySettings().poor:
        lines.append(
            "That is little; "
            + (
                f"with about {found.references:,} labelled images of each class a tenth of a pool "
                "would be noticed."
                if found.references is not None
                else "label more images of each class, or let pools grow larger (pools.size)."
            )
        )
    return lines


def _chosen(fitted: Fitted) -> list[str]:
    """What was compared before precision and input size were chosen."""
    choice = fitted.choice
    if choice is None or not choice.tried:
        return []
    rows = [
        (
            one.precision,
            f"{one.size}",
            f"{100 * one.apart:.2f}",
            f"{100 * one.left_out:.2f}",
            f"{one.agreement:.3f}",
        )
        for one in choice.tried
    ]
    header = ("precision", "px", "AUROC, known", "left out", "rank agreement")
    return [
        "",
        table(header, rows),
        f"Chosen on {choice.images:,} of the images ({choice.native} px): {choice.precision} at "
        f"{choice.size} px, {choice.reason}.",
        "",
    ]


def warnings(fitted: Fitted) -> list[str]:
    """What the figures cannot show, and labels that should be looked at."""
    from monitor.jobs.label_doubts import TINY

    lines = []
    if len(fitted.classes) == 1:
        lines.append(
            "There is one class: nothing says how unlike it another class may be. Label a second "
            "one if the feed shows it."
        )
    tiny = [known.name for known in fitted.classes if known.calibrated_on < TINY]
    if tiny:
        lines.append(
            f"Fewer than {TINY} images judge {', '.join(tiny)}: the rate of false alarms there is "
            "a guess. Label more."
        )
    lines += [f"{pair}." for pair in fitted.alike]
    if fitted.doubted:
        lines.append("Labels to look at:")
        lines += [f"  {doubt}" for doubt in fitted.doubted]
    return lines


def describe(fitted: Fitted) -> str:
    rows = [
        (
            known.name,
            f"{known.images:,}",
            f"{known.components:,}",
            f"{known.calibrated_on:,}",
            "-" if known.validation_fre is None else f"{known.validation_fre:.4g}",
            "-"
            if known.above_t_inner is None
            else f"{known.above_t_inner:.0%} of {known.calibrated_on:,}",
        )
        for known in fitted.classes
    ]
    header = ("class", "images", "components", "calibrated on", "validation FRE", "above T_inner")
    lines = [table(header, rows), ""]
    lines.append(
        f"T_inner {fitted.t_inner:.4g}, from {fitted.calibrated_on:,} images, each judged without "
        f"its own help; {fitted.exceedance:.1%} of them exceed it."
    )
    lines += _could_see(fitted)
    lines += warnings(fitted)
    if fitted.rejected:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in fitted.rejected.items())
        lines.append(f"Rejected: {reasons}.")
    if fitted.unlabelled:
        lines.append(f"Left out: {fitted.unlabelled:,} images without a label.")
    lines += _chosen(fitted)
    said = "is in use" if fitted.is_new else "was fitted from the same images before"
    lines.append(
        f"Detector version {fitted.version} {said} (backbone {fitted.backbone}, "
        f"{fitted.precision}, {fitted.input_size} px, {duration(fitted.seconds)})."
    )
    return "\n".join(lines)
