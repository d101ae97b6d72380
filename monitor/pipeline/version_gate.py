"""The gate: what a new version of the detector must hold before it judges the feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from monitor.config.schema import GateSection
from monitor.novelty.detector import Detector
from monitor.novelty.trigger.rate_bounds import rate_interval


@dataclass(frozen=True, slots=True)
class GateReport:
    """How a new version treats what was known before it."""

    false_novel: float
    """Share of known images of the old classes that it calls novel."""
    stolen: float
    """Of the old class that loses most, the share of known images that a new class takes at the
    least, with 95% certainty."""
    stolen_from: str | None
    labels: Mapping[str, int]
    """Answers by people behind each new class, by name."""


def compare_versions(before: Detector, after: Detector) -> GateReport:
    """Put known images of the old classes before the new detector, none helped by itself.

    What a class loses is counted among the images that were fitted or named by people: one that
    the detector gave to a young class may well belong to the new one. Of few images a few are lost
    by chance, so the loss is the least that they leave open.
    """
    old = {known.id for known in before.classes}
    is_new = np.asarray([known.id not in old for known in after.classes])
    judged = after.judged
    owners = after.references.classes[judged.rows]
    mine = ~is_new[owners]
    novel = judged.score[mine] > after.calibration.t_inner
    taken = is_new[judged.nearest]
    said = np.concatenate([known.said for known in after.classes])[judged.rows]
    losses = {}
    for position, known in enumerate(after.classes):
        rows = said & (owners == position)
        if known.id in old and rows.any():
            losses[known.name], _ = rate_interval(int(taken[rows].sum()), int(rows.sum()))
    loser = max(losses, key=lambda name: losses[name]) if losses else None
    return GateReport(
        false_novel=float(novel.mean()) if len(novel) else 0.0,
        stolen=losses[loser] if loser else 0.0,
        stolen_from=loser if loser and losses[loser] > 0 else None,
        labels={known.name: known.human for known in after.classes if known.id not in old},
    )


def objection(found: GateReport, gate: GateSection) -> str | None:
    """Why the version must wait for an operator, in a sentence; None if it need not."""
    if found.false_novel > gate.false_novel_most:
        return (
            f"it calls {found.false_novel:.1%} of held-out known images novel, more than "
            f"gate.false_novel_most allows ({gate.false_novel_most:.1%})"
        )
    if found.stolen > gate.stolen_most:
        return (
            f"a new class takes, beyond chance, at least {found.stolen:.1%} of the images of "
            f"{found.stolen_from!r} that were fitted or named by people, more than "
            f"gate.stolen_most allows ({gate.stolen_most:.1%})"
        )
    for name, labels in found.labels.items():
        if labels < gate.least_labels:
            return (
                f"class {name!r} rests on {labels} answers, fewer than gate.least_labels requires "
                f"({gate.least_labels})"
            )
    return None
