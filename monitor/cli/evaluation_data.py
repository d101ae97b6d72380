"""The labelled data of ``conclad evaluate``: features, or images to embed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from monitor.backbones.engine import Engine
    from monitor.evaluation.labelled_features import LabelledFeatures
    from monitor.feed.labelled_dataset import RejectedSample

# The one that needs no network beyond the package index.
DEFAULT_BACKBONE = "embedded"


def load_datasets(
    features: tuple[Path, ...],
    data: tuple[Path, ...],
    label_column: str,
    backbones: tuple[str, ...],
    how: Mapping[str, Any],
) -> list[LabelledFeatures]:
    from monitor.evaluation.labelled_features import load_features

    loaded = [load_features(path) for path in features]
    if not data:
        return loaded
    from monitor.evaluation.embedded_images import load_images

    for path in data:
        for backbone in backbones or (DEFAULT_BACKBONE,):
            loaded.append(
                load_images(
                    path,
                    label_column=label_column,
                    backbone=backbone,
                    engine=partial(_engine_as_fitted, path, label_column, backbone, how),
                    progress=_embedding(f"{path} with {backbone}"),
                    rejected=_left_out,
                )
            )
    return loaded


def _engine_as_fitted(
    path: Path, label_column: str, backbone: str, how: Mapping[str, Any]
) -> Engine:
    """What ``conclad fit`` would embed these images with."""
    from monitor.config.schema import BackboneSection, ColumnsSection, Config, FeedSection
    from monitor.jobs.from_config import open_engine_of
    from monitor.jobs.input_choice import with_chosen_input

    config, choice = with_chosen_input(
        Config(
            feed=FeedSection(columns=ColumnsSection(label=label_column)),
            backbone=BackboneSection(name=backbone, **how),
        ),
        [path],
    )
    if choice is not None:
        click.echo(
            f"{path} with {backbone}: {choice.precision} at {choice.size} px, {choice.reason}",
            err=True,
        )
    return open_engine_of(config)


def _embedding(what: str) -> Callable[[int, int], None]:
    """Says now and then how far the embedding is: by tenths, so that a log stays readable."""
    told = -1

    def progress(done: int, total: int) -> None:
        nonlocal told
        tenth = 10 * done // max(total, 1)
        if tenth > told:
            told = tenth
            click.echo(f"embedding {what}: {done} of {total} images", err=True)

    return progress


def _left_out(samples: Sequence[RejectedSample]) -> None:
    first = samples[0]
    click.echo(
        f"left out {len(samples)} images that could not be read, the first {first.where}: "
        f"{first.rejected.detail}",
        err=True,
    )
