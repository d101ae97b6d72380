"""From the configuration to the parts that a job works with, without loading a backbone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.config import Config
from monitor.jobs.errors import GroupNeeded, NoDetector
from monitor.store.database import DATABASE_FILE
from monitor.store.records import Version
from monitor.store.snapshot_manifest import read_fingerprint
from monitor.store.store import Clock, Store

if TYPE_CHECKING:
    from monitor.backbones.backbone_spec import BackboneSpec
    from monitor.backbones.engine import Engine
    from monitor.feed.contract import Columns
    from monitor.images.decode import Decoding
    from monitor.novelty.detector import Detector
    from monitor.novelty.fingerprint import Fingerprint
    from monitor.novelty.settings import MethodSettings


# Parts are imported where they are made: a command that only opens the store needs neither
# pyarrow nor numpy nor readers of images, which take half a second to load.


def columns_of(config: Config) -> Columns:
    from monitor.feed.contract import Columns

    return Columns(**config.feed.columns.model_dump())


def decoding_of(config: Config) -> Decoding:
    from monitor.images.bands import Bands
    from monitor.images.decode import Decoding

    bands = config.feed.bands
    return Decoding(
        max_pixels=config.feed.max_pixels,
        bands=Bands(bands.mapping, bands.stretch, bands.unit) if bands.mapping else None,
    )


def settings_of(config: Config) -> MethodSettings:
    from monitor.novelty.presets import preset_settings

    return preset_settings(config.novelty.preset).replace(**config.novelty.settings)


def backbone_spec_of(config: Config) -> BackboneSpec:
    from monitor.backbones.backbone_spec import BackboneSpec

    chosen = config.backbone
    spec = BackboneSpec.parse(chosen.name, sha256=chosen.sha256)
    size = None if chosen.size == "auto" else chosen.size
    return replace(spec, weights=chosen.weights or spec.weights, size=size)


def open_engine_of(config: Config) -> Engine:
    """Load the backbone and start what runs it; takes seconds and some hundred megabytes.

    Where the state holds a detector, ask :func:`as_fitted` first.
    """
    # Here rather than above: torch and timm take seconds and half a gigabyte, and most of those
    # who read a configuration never embed anything.
    from monitor.images.isolated_decoding import decoders_for

    # They start while the backbone's framework is loaded.
    decoding = decoding_of(config)
    decoders_for(decoding)
    from monitor.backbones.backbone import load_backbone
    from monitor.backbones.engine import open_engine

    return open_engine(
        load_backbone(backbone_spec_of(config)),
        runtime=config.backbone.engine,
        precision=config.backbone.precision,
        threads=config.backbone.threads,
        decoding=decoding,
    )


def as_fitted(config: Config, store: Store) -> Config:
    """The configuration with what it leaves to the detector in use: precision and input size.

    What it says itself stays as it is; where that is not what the detector was fitted on, the
    detector is refused later.
    """
    with store.reading() as tx:
        version = tx.versions.current()
    if version is None:
        return config
    fitted = read_fingerprint(store.folder, version.snapshot, sha256=version.sha256)
    return with_input(config, fitted.precision, fitted.input_size)


def with_input(config: Config, precision: str, size: int | None) -> Config:
    """The configuration with these in place of ``auto``."""
    found: dict[str, object] = {}
    if config.backbone.precision == "auto":
        computed, _, by = precision.partition("-")
        found["precision"] = computed
        if by and config.backbone.engine == "auto":
            found["engine"] = by
    if config.backbone.size == "auto" and size is not None:
        found["size"] = size
    return config.model_copy(update={"backbone": config.backbone.model_copy(update=found)})


def load_detector(store: Store, version: Version, fingerprint: Fingerprint) -> Detector:
    """The detector of a version, if it understands features of this fingerprint."""
    from monitor.store.snapshots import load_snapshot

    return load_snapshot(
        store.folder, version.snapshot, fingerprint=fingerprint, sha256=version.sha256
    )


def open_store(config: Config, clock: Clock | None = None) -> Store:
    """The state, made if it is not there yet."""
    _require_group(config)
    if config.state.url is not None:
        return Store.open(config.state.url, files=config.state.dir, clock=clock)
    return Store.open(Path(config.state.dir).expanduser(), clock=clock)


def open_existing_store(config: Config, clock: Clock | None = None) -> Store:
    """The state as it is: a misspelt folder is not created.

    Whoever may not write it can still read it.
    """
    folder = Path(config.state.dir).expanduser()
    _require_group(config)
    if config.state.url is None and not (folder / DATABASE_FILE).exists():
        raise NoDetector(
            f"{folder}: holds no state; fit a detector first with conclad fit, or say where it "
            "is with --set state.dir=FOLDER"
        )
    if config.state.url is None and not _is_writable(folder):
        return Store.open(folder, clock=clock, read_only=True)
    return open_store(config, clock)


def _is_writable(folder: Path) -> bool:
    return all(os.access(one, os.W_OK) for one in (folder, folder / DATABASE_FILE))


def _require_group(config: Config) -> None:
    if config.groups and config.group is None:
        raise GroupNeeded(
            "the configuration has groups of sources, each with a state of its own; say which "
            f"one is meant with --group: {', '.join(config.groups)}"
        )


def current_version(store: Store) -> Version:
    with store.reading() as tx:
        version = tx.versions.current()
    if version is None:
        raise NoDetector(
            f"{store.folder}: holds no detector yet; fit one with conclad fit --data FILES"
        )
    return version
