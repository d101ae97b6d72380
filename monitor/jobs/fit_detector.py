"""Labelled images to detector version 1."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monitor.config import Config
from monitor.feed.class_gallery import Gallery
from monitor.feed.labelled_dataset import EmbeddedDataset, LabelledImage, embed_dataset
from monitor.jobs.errors import AlreadyFitted
from monitor.jobs.from_config import (
    as_fitted,
    columns_of,
    decoding_of,
    open_engine_of,
    open_store,
    settings_of,
)
from monitor.jobs.input_choice import EngineChoice, with_chosen_input
from monitor.jobs.label_doubts import DoubtedLabel, LookAlikes, doubted_labels, look_alikes
from monitor.jobs.progress import JobProgress, Report, silent
from monitor.novelty.detector import Detector
from monitor.novelty.errors import MissingLabels
from monitor.novelty.trigger.noticeable_share import Sensitivity, sensitivity
from monitor.store import Store, Transaction
from monitor.store.exemplars import Exemplar, keep_exemplars, put_thumbnail
from monitor.store.note_and_counter_names import SENSITIVITY
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Version
from monitor.store.snapshots import content_hash
from monitor.store.version_and_settled_commit import NewClass, VersionUpdate, commit_version


@dataclass(frozen=True, slots=True)
class ClassReport:
    """What became of one class."""

    id: str
    name: str
    images: int
    components: int
    calibrated_on: int
    """Images that were judged without their own help, for T_inner."""
    validation_fre: float | None
    """Mean FRE of these images to their own class; None where there are none."""
    above_t_inner: float | None
    """Share of these images that the detector would call novel."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A detector in the store, and the figures by which to judge it."""

    version: int
    is_new: bool
    """False if the same images and settings had been fitted before."""
    classes: tuple[ClassReport, ...]
    t_inner: float
    exceedance: float
    calibrated_on: int
    rejected: dict[str, int]
    unlabelled: int
    backbone: str
    precision: str
    seconds: float
    sensitivity: Sensitivity | None = None
    """What the trigger would notice; None where too few classes are known to judge by."""
    input_size: int | None = None
    choice: EngineChoice | None = None
    """How precision and input size were chosen; None where the configuration or an earlier fit
    left no choice."""
    alike: tuple[LookAlikes, ...] = ()
    doubted: tuple[DoubtedLabel, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        from dataclasses import asdict

        return asdict(self)


def fit(
    config: Config,
    data: Sequence[str | os.PathLike[str]],
    *,
    cache: Path | None = None,
    progress: Report = silent,
) -> Fitted:
    """Embed labelled images, fit a detector, and put it into use.

    ``data`` is Parquet files (paths, folders, patterns) or one folder of class folders. Features
    are kept by content as they are computed, so a run that was interrupted goes on where it
    stopped. The same images and settings give the same version again; others are refused once
    the state holds a detector, because its classes and verdicts would no longer belong together.
    """
    began = time.monotonic()
    gallery = Gallery(decoding_of(config), seed=config.fit.seed)
    with open_store(config) as store:
        config = as_fitted(config, store)
    config, choice = with_chosen_input(config, data, cache=cache)
    with open_engine_of(config) as engine, open_store(config) as store:
        dataset = embed_dataset(
            data,
            engine,
            columns=columns_of(config),
            cache=cache,
            progress=lambda done, total: progress(JobProgress("embed", done, total, "images")),
            seen=lambda sample: _show(gallery, sample),
        )
        labelled, unlabelled = _labelled(dataset)
        detector = Detector.fit(
            dataset.features[labelled],
            [str(dataset.labels[i]).strip() for i in labelled],
            fingerprint=engine.fingerprint,
            settings=settings_of(config),
            seed=config.fit.seed,
        )
        version, is_new = _publish(store, detector)
        if is_new:
            _keep_pictures(store, detector, gallery)
        could_see = sensitivity(
            detector,
            config.pools.size,
            false_rounds_per_month=config.pools.false_rounds_per_month,
            seed=config.fit.seed,
        )
        with store.transaction() as tx:
            keep_sensitivity(tx, version.number, could_see)
    return Fitted(
        version=version.number,
        is_new=is_new,
        classes=class_reports(detector),
        t_inner=detector.calibration.t_inner,
        exceedance=detector.calibration.exceedance,
        calibrated_on=detector.calibration.count,
        rejected=dict(Counter(str(sample.rejected.reason) for sample in dataset.rejected)),
        unlabelled=unlabelled,
        backbone=detector.fingerprint.backbone,
        precision=detector.fingerprint.precision,
        seconds=time.monotonic() - began,
        sensitivity=could_see,
        input_size=detector.fingerprint.input_size,
        choice=choice,
        alike=look_alikes(detector),
        doubted=doubted_labels(
            detector, dataset.features[labelled], [dataset.image_ids[i] for i in labelled]
        ),
    )


def keep_sensitivity(tx: Transaction, version: int, found: Sensitivity | None) -> None:
    """For `conclad status` and the dashboard."""
    tx.notes.set(*SENSITIVITY, {"version": version, **(found.to_dict() if found else {})})


def class_reports(detector: Detector) -> tuple[ClassReport, ...]:
    """How well each class reconstructs images of its own that it was not fitted on."""
    reports = []
    judged = detector.judged
    owners = detector.references.classes[judged.rows]
    for position, known in enumerate(detector.classes):
        fre: float | None = None
        above: float | None = None
        if len(known.references):
            mine = detector.references.classes == position
            fre = float(detector.reference_fre()[mine, position].mean())
            scores = judged.score[owners == position]
            above = float((scores > detector.calibration.t_inner).mean()) if len(scores) else None
        reports.append(
            ClassReport(
                id=known.id,
                name=known.name,
                images=known.count,
                components=known.components,
                calibrated_on=len(known.references),
                validation_fre=fre,
                above_t_inner=above,
            )
        )
    return tuple(reports)


def _labelled(dataset: EmbeddedDataset) -> tuple[np.ndarray[Any, np.dtype[np.intp]], int]:
    """Which samples carry a label, and how many do not."""
    labelled = [i for i, label in enumerate(dataset.labels) if label is not None and label.strip()]
    if not labelled:
        raise MissingLabels(
            f"none of the {len(dataset.labels)} images has a label; name the column that holds "
            "them under feed.columns.label"
        )
    return np.asarray(labelled, dtype=np.intp), len(dataset.labels) - len(labelled)


def _show(gallery: Gallery, sample: LabelledImage) -> None:
    label = (sample.label or "").strip()
    if label and isinstance(sample.image, bytes):
        gallery.offer(label, sample.image)


def _keep_pictures(store: Store, detector: Detector, gallery: Gallery) -> None:
    """What each class looks like, for the people who will be asked whether something is one."""
    pictures = gallery.pictures()
    kept = {
        known.id: [Exemplar(put_thumbnail(store.folder, one)) for one in pictures[known.name]]
        for known in detector.classes
        if known.name in pictures
    }
    with store.transaction() as tx:
        for class_id, exemplars in kept.items():
            keep_exemplars(tx, class_id, exemplars)


def _publish(store: Store, detector: Detector) -> tuple[Version, bool]:
    key = f"fit:{content_hash(detector)}"
    with store.reading() as tx:
        same, current = tx.versions.by_key(key), tx.versions.current()
    if same is not None:
        return same, False
    if current is not None:
        raise AlreadyFitted(
            f"{store.folder}: holds detector version {current.number} of other images or "
            "settings; fit into a fresh folder with --set state.dir=FOLDER"
        )
    update = VersionUpdate(
        key=key,
        detector=detector,
        parent=None,
        classes=[NewClass(known.id, known.name, ClassOrigin.FIT) for known in detector.classes],
        who="fit",
    )
    return commit_version(store, update), True
