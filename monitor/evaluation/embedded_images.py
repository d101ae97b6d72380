"""Labelled images as features, through the engine that embeds a feed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.engine import Engine, open_engine
from monitor.evaluation.labelled_features import LabelledFeatures, labelled_features
from monitor.feed.input_contract import Columns
from monitor.feed.labelled_dataset import RejectedSample, embed_dataset


def load_images(
    path: Path,
    *,
    label_column: str = "label",
    backbone: str = "embedded",
    engine: Callable[[], Engine] | None = None,
    cache: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    rejected: Callable[[tuple[RejectedSample, ...]], None] | None = None,
) -> LabelledFeatures:
    """Embed a Parquet file or a folder of class folders, or find it in the cache.

    Images that cannot be decoded are left out and handed to ``rejected``: an evaluation of the
    rest is still worth having, but never without a word about it. ``engine`` opens what embeds
    them; by default the backbone as it was trained, in the precision that needs no choice.
    """
    spec = BackboneSpec.parse(backbone)
    with engine() if engine else open_engine(load_backbone(spec, cache=cache)) as opened:
        embedded = embed_dataset(
            [path], opened, columns=Columns(label=label_column), cache=cache, progress=progress
        )
    if embedded.rejected and rejected is not None:
        rejected(embedded.rejected)
    return labelled_features(
        path.stem,
        spec.label,
        embedded.features,
        embedded.labels,
        classes=_class_folders(path),
        where=str(path),
    )


def _class_folders(path: Path) -> list[str] | None:
    """The classes that a folder promises; one without images must not vanish in silence."""
    if not path.is_dir() or any(path.glob("*.parquet")):
        return None
    return [entry.name for entry in path.iterdir() if entry.is_dir() and entry.name[0] not in "._"]
