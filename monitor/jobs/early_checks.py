"""What can be found wrong before a backbone is loaded or Ray is started.

A mistake in a path should cost a second, not the twenty that torch, Ray and weights take. Nothing
here imports any of them.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from monitor.config import Config
from monitor.feed.batch_plan import plan_batches
from monitor.feed.class_folders import class_folder, is_image
from monitor.feed.errors import FeedError, SourceError
from monitor.feed.feed_storage import FeedStorage, check_for_images
from monitor.feed.file_arguments import find_files
from monitor.jobs.errors import NotWritable, OtherBackbone, PortTaken
from monitor.jobs.from_config import columns_of, current_version, open_existing_store
from monitor.store.snapshot_manifest import read_meta

Paths = Sequence[str | os.PathLike[str]]

FILES_OPENED = 3
"""Footers that are read: a wrong column is wrong in the first, and a feed may have a million."""


def check_labelled(config: Config, data: Paths) -> None:
    """Raise if there are no class folders, and no Parquet with images and labels."""
    if class_folder(data) is not None:
        return
    for name in data:
        if os.path.isdir(name) and any(map(is_image, Path(name).iterdir())):
            shown = os.fspath(name).rstrip("/")
            raise SourceError(
                f"{shown}: holds images and no class folders; put the images of each class into a "
                f"folder of its name, {shown}/CLASS/IMAGE"
            )
    _check_columns(config, data, need_label=True)


def check_files(config: Config, files: Paths) -> None:
    """Raise if nothing of what was named can be a file of the feed."""
    for name in files:
        check_for_images(name)
    _check_columns(config, files, need_label=False)


def check_feed(config: Config) -> None:
    """Raise if the feed is no folder; one of which files were seen before may be away for now."""
    check_for_images(config.feed.path)
    if "://" in config.feed.path:
        return
    if not Path(config.feed.path).expanduser().exists():
        with open_existing_store(config) as store, store.reading() as tx:
            if tx.files.count_by_state():
                return
        raise SourceError(
            f"{config.feed.path}: no such folder; name the feed with --set feed.path=FOLDER, or "
            "make one from images with conclad ingest IMAGES --to FOLDER"
        )
    if not Path(config.feed.path).expanduser().is_dir():
        FeedStorage.at(config.feed.path).list()  # says what is wrong with it
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
    if "://" not in config.state.dir:
        check_folder_is_writable(config.state.dir, "choose another with --set state.dir=FOLDER")


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

    source = FeedStorage.at(config.feed.path)
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
