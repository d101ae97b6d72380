"""From the configuration to the parts that a job works with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from monitor.config import Config
from monitor.feed.bands import Bands
from monitor.feed.contract import Columns
from monitor.feed.images import Decoding
from monitor.feed.spec import BackboneSpec
from monitor.jobs.state import current_version, open_existing_store, open_store
from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint
from monitor.novelty.settings import Settings
from monitor.store import Store
from monitor.store.rows import Version
from monitor.store.snapshots import load_snapshot

if TYPE_CHECKING:
    from monitor.feed.engine import Engine

__all__ = [
    "columns_of",
    "current_version",
    "decoding_of",
    "load_detector",
    "open_engine_of",
    "open_existing_store",
    "open_store",
    "settings_of",
]


def columns_of(config: Config) -> Columns:
    return Columns(**config.feed.columns.model_dump())


def decoding_of(config: Config) -> Decoding:
    bands = config.feed.bands
    return Decoding(
        max_pixels=config.feed.max_pixels,
        bands=Bands(bands.mapping, bands.stretch, bands.unit) if bands.mapping else None,
    )


def settings_of(config: Config) -> Settings:
    return Settings.preset(config.novelty.preset).replace(**config.novelty.settings)


def open_engine_of(config: Config) -> Engine:
    """Load the backbone and start what runs it; takes seconds and some hundred megabytes."""
    # Here rather than above: torch and timm take seconds and half a gigabyte, and most of those
    # who read a configuration never embed anything.
    from monitor.feed.backbone import load_backbone
    from monitor.feed.engine import open_engine

    chosen = config.backbone
    spec = BackboneSpec.parse(chosen.name, sha256=chosen.sha256)
    if chosen.weights is not None:
        spec = replace(spec, weights=chosen.weights)
    return open_engine(
        load_backbone(spec),
        runtime=chosen.engine,
        precision=chosen.precision,
        threads=chosen.threads,
        decoding=decoding_of(config),
    )


def load_detector(store: Store, version: Version, fingerprint: Fingerprint) -> Detector:
    """The detector of a version, if it understands features of this fingerprint."""
    return load_snapshot(
        store.folder, version.snapshot, fingerprint=fingerprint, sha256=version.sha256
    )
