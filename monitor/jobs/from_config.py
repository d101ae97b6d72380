"""From the configuration to the parts that a job works with, and what can be checked beforehand.

A mistake in a path should cost a second, not the twenty that torch, Ray and weights take. Nothing
here imports any of them when it is imported.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.config import Config
from monitor.errors import ErrorKind, kind_of
from monitor.feed.errors import FeedError, SourceError
from monitor.jobs.errors import GroupNeeded, NoDetector, NotWritable, OtherBackbone, PortTaken
from monitor.store.database import DATABASE_FILE
from monitor.store.errors import DiskUnavailable
from monitor.store.records import Version
from monitor.store.snapshot_manifest import read_fingerprint, read_meta
from monitor.store.store import Clock, Store

if TYPE_CHECKING:
    from monitor.backbones.backbone_spec import BackboneSpec
    from monitor.backbones.engine import Engine
    from monitor.feed.feed_storage import FeedStorage
    from monitor.feed.input_contract import Columns
    from monitor.images.decode import Decoding
    from monitor.novelty.common_settings import MethodSettings
    from monitor.novelty.detector import Detector
    from monitor.novelty.fingerprint import Fingerprint


# Parts are imported where they are made: a command that only opens the store needs neither
# pyarrow nor numpy nor readers of images, which take half a second to load.


def feed_storage_of(config: Config) -> FeedStorage:
    from monitor.feed.feed_storage import FeedStorage

    return FeedStorage.at(config.feed.path)


def columns_of(config: Config) -> Columns:
    from monitor.feed.input_contract import Columns

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


def open_state_to_write(config: Config, clock: Clock | None = None) -> Store:
    """The state as it is, for a process that is of no use without writing it."""
    if (Path(config.state.dir).expanduser() / DATABASE_FILE).exists():
        check_state_is_writable(config)
    return open_existing_store(config, clock)


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


Paths = Sequence[str | os.PathLike[str]]

FILES_OPENED = 3
"""Footers that are read: a wrong column is wrong in the first, and a feed may have a million."""


def check_labelled(config: Config, data: Paths) -> None:
    """Raise if there are no class folders, and no Parquet with images and labels."""
    from monitor.feed.class_folders import class_folder, class_images, is_image

    folder = class_folder(data)
    if folder is not None:
        names = (path.relative_to(folder).parts[0] for path in class_images(folder))
        _check_sizes(config, Counter(names))
        return
    for name in data:
        if os.path.isdir(name) and any(map(is_image, Path(name).iterdir())):
            shown = os.fspath(name).rstrip("/")
            raise SourceError(
                f"{shown}: holds images and no class folders; put the images of each class into a "
                f"folder of its name, {shown}/CLASS/IMAGE"
            )
    _check_columns(config, data, need_label=True)


def _check_sizes(config: Config, images: Counter[str]) -> None:
    """Raise if a class has too few images, whatever becomes of them."""
    least = settings_of(config).least
    small = [f"{name} ({count})" for name, count in sorted(images.items()) if count < least]
    if small:
        raise SourceError(
            f"too few images to fit and to calibrate T_inner on: {', '.join(small)}; give at least "
            f"{least} of each class, or leave the class out and let it be discovered"
        )


def check_files(config: Config, files: Paths) -> None:
    """Raise if nothing of what was named can be a file of the feed."""
    from monitor.feed.feed_storage import check_for_images

    for name in files:
        check_for_images(name)
    _check_columns(config, files, need_label=False)


def check_feed(config: Config) -> None:
    """Raise if the feed is no folder; one of which files were seen before may be away for now."""
    from monitor.feed.feed_storage import check_for_images

    check_for_images(config.feed.path)
    if "://" in config.feed.path:
        return
    if not Path(config.feed.path).expanduser().exists():
        with open_existing_store(config) as store, store.reading() as tx:
            if tx.counts.files_by_state():
                return
        raise SourceError(
            f"{config.feed.path}: no such folder; name the feed with --set feed.path=FOLDER, or "
            "make one from images with conclad ingest IMAGES --to FOLDER"
        )
    if not Path(config.feed.path).expanduser().is_dir():
        feed_storage_of(config).list()  # says what is wrong with it
    if config.labels.oracle_column is not None:
        _check_oracle(config, config.labels.oracle_column)


def check_detector(config: Config) -> None:
    """Raise if the state holds no detector, or one that understands another backbone."""
    asked = check_backbone(config)
    with open_existing_store(config) as store:
        version = current_version(store)
        meta = read_meta(store.folder, version.snapshot, sha256=version.sha256)
    knows = meta["fingerprint"]["backbone"]
    if knows != asked:
        raise OtherBackbone(
            f"{config.state.dir}: its detector was fitted on features of backbone {knows!r}, and "
            f"backbone.name says {asked!r}; set backbone.name={knows}, or fit into a fresh folder "
            "with --set state.dir=FOLDER"
        )


def check_backbone(config: Config) -> str:
    """Raise if the backbone is none, or its file is not there; returns what it is called."""
    from monitor.backbones.backbone_spec import BackboneSpec, check_name

    spec = BackboneSpec.parse(config.backbone.name)
    check_name(spec.name)
    weights = config.backbone.weights or spec.weights
    if weights not in (None, "pretrained", "random") and not Path(weights).expanduser().is_file():
        raise SourceError(f"{weights}: no such file of weights; check backbone.name and its @FILE")
    return spec.label


def check_state_is_writable(config: Config) -> None:
    """Raise unless the state can be written; a disk that is full or read-only is an outage."""
    if "://" in config.state.dir:
        return
    try:
        check_folder_is_writable(config.state.dir, "choose another with --set state.dir=FOLDER")
    except NotWritable as error:
        if error.__cause__ is not None and kind_of(error.__cause__) is ErrorKind.DISK:
            raise DiskUnavailable(str(error)) from error.__cause__
        raise


def check_folder_is_writable(folder: str | os.PathLike[str], otherwise: str) -> None:
    """Raise unless files can be made in a folder, which need not be there; leaves no trace."""
    if "://" in os.fspath(folder):
        return
    path = Path(folder).expanduser().absolute()
    made: list[Path] = []
    try:
        for one in (*reversed(path.parents), path):
            if not one.exists():
                one.mkdir()
                made.append(one)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise NotWritable(
            f"{os.fspath(folder)}: cannot be written ({error.strerror}); {otherwise}"
        ) from error
    finally:
        for one in reversed(made):
            one.rmdir()


def check_port(host: str, port: int, key: str) -> None:
    """Raise if nobody can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortTaken(
                f"{host}:{port}: cannot listen there ({os.strerror(error.errno or 0)}); choose "
                f"another with --set {key}=PORT"
            ) from error


def _check_columns(config: Config, files: Paths, *, need_label: bool) -> None:
    """Raise what is wrong with the first files if it is wrong with each of them."""
    from monitor.feed.batch_plan import plan_batches
    from monitor.feed.file_arguments import find_files

    source, found = find_files(files)
    problem: FeedError | None = None
    for file in found[:FILES_OPENED]:
        try:
            plan_batches(source, file, columns_of(config), need_label=need_label)
            return
        except FeedError as error:
            problem = problem or error
    if problem is not None and len(found) <= FILES_OPENED:
        raise problem


def _check_oracle(config: Config, name: str) -> None:
    """Raise if no file that the feed has by now holds the column that should answer."""
    import pyarrow.parquet as pq

    source = feed_storage_of(config)
    files = source.list()[:FILES_OPENED]
    for file in files:
        with source.open(file.path) as handle:
            names = pq.read_schema(handle).names
        if name in names:
            return
    if files:
        raise SourceError(
            f"{source.where(files[0].path)}: has no column {name!r} to answer questions; it has "
            f"{', '.join(names)}"
        )
