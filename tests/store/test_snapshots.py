"""Detectors come back bit for bit, or with an error that says what happened to them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.fs as pafs
import pytest

from monitor.novelty.fingerprint import Fingerprint
from monitor.store.errors import (
    BackboneMismatch,
    SnapshotExists,
    SnapshotMissing,
    SnapshotSchemaError,
    SnapshotTampered,
    SnapshotTruncated,
)
from monitor.store.folder import Folder
from monitor.store.snapshots import (
    load_detector,
    load_snapshot,
    publish_snapshot,
    save_detector,
    verify_snapshot,
)
from tests.store.building import FINGERPRINT, StandIn, stand_in

OTHER = Fingerprint("resnet50", "ab" * 32, "{}", 2048, "float32")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder.local(tmp_path / "state")


@pytest.mark.parametrize("wrapped", [False, True])
def test_round_trip_is_exact(tmp_path: Path, wrapped: bool) -> None:
    filesystem = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    folder = Folder(filesystem, "state") if wrapped else Folder.local(tmp_path / "state")
    detector = stand_in()
    snapshot = publish_snapshot(folder, "v1", detector)
    back = load_snapshot(folder, "v1", StandIn, fingerprint=FINGERPRINT, sha256=snapshot.sha256)
    assert back.weights.tobytes() == detector.weights.tobytes()
    assert back.weights.dtype == np.float32
    assert publish_snapshot(folder, "v2", back).sha256 == snapshot.sha256
    assert (tmp_path / "state" / "v1" / "manifest.json").exists()


def test_a_filesystem_that_is_not_local(folder: Folder) -> None:
    from pyarrow.fs import _MockFileSystem

    remote = Folder(_MockFileSystem(), "bucket/state")
    assert not remote.is_local
    detector = stand_in()
    snapshot = publish_snapshot(remote, "v1", detector)
    assert publish_snapshot(remote, "v1", detector) == snapshot
    back = load_snapshot(remote, "v1", StandIn)
    assert back.weights.tobytes() == detector.weights.tobytes()
    with pytest.raises(SnapshotExists):
        publish_snapshot(remote, "v1", stand_in(1))


def test_a_version_is_never_overwritten(folder: Folder) -> None:
    publish_snapshot(folder, "v1", stand_in())
    before = {entry.name: folder.sha256(entry.name) for entry in folder.list()}
    assert publish_snapshot(folder, "v1", stand_in()).name == "v1"
    with pytest.raises(SnapshotExists, match="publish under a new number"):
        publish_snapshot(folder, "v1", stand_in(1))
    assert {entry.name: folder.sha256(entry.name) for entry in folder.list()} == before


def test_missing(folder: Folder) -> None:
    with pytest.raises(SnapshotMissing, match="no detector here"):
        load_snapshot(folder, "v1", StandIn)


def test_arrays_without_a_manifest_are_no_snapshot(folder: Folder) -> None:
    publish_snapshot(folder, "v1", stand_in())
    folder.delete("v1/manifest.json")
    with pytest.raises(SnapshotMissing):
        load_snapshot(folder, "v1", StandIn)


@pytest.mark.parametrize("part", ["arrays.safetensors", "manifest.json"])
@pytest.mark.parametrize("keep", [0, 7, 60])
def test_truncated(folder: Folder, part: str, keep: int) -> None:
    publish_snapshot(folder, "v1", stand_in())
    folder.write(f"v1/{part}", folder.read(f"v1/{part}")[:keep])
    with pytest.raises(SnapshotTruncated):
        load_snapshot(folder, "v1", StandIn)


def test_a_flipped_bit_anywhere_in_the_arrays_is_noticed(folder: Folder) -> None:
    publish_snapshot(folder, "v1", stand_in())
    whole = folder.read("v1/arrays.safetensors")
    for position in range(0, len(whole), 17):
        changed = bytearray(whole)
        changed[position] ^= 1
        folder.write("v1/arrays.safetensors", bytes(changed))
        with pytest.raises(SnapshotTampered):
            verify_snapshot(folder, "v1")


def test_an_edited_manifest_is_noticed(folder: Folder) -> None:
    snapshot = publish_snapshot(folder, "v1", stand_in())
    manifest = json.loads(folder.read("v1/manifest.json"))
    manifest["meta"]["note"] = "better"
    folder.write("v1/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(SnapshotTampered, match="changed after it was written"):
        load_snapshot(folder, "v1", StandIn)
    folder.delete_folder("v1")
    publish_snapshot(folder, "v1", stand_in(1))
    with pytest.raises(SnapshotTampered, match="not the manifest that was published"):
        load_snapshot(folder, "v1", StandIn, sha256=snapshot.sha256)


@pytest.mark.parametrize("change", [{"schema": 2}, {"format": "something else"}])
def test_another_layout_is_refused(folder: Folder, change: dict[str, object]) -> None:
    publish_snapshot(folder, "v1", stand_in())
    manifest = json.loads(folder.read("v1/manifest.json"))
    folder.write("v1/manifest.json", json.dumps({**manifest, **change}).encode())
    with pytest.raises(SnapshotSchemaError):
        load_snapshot(folder, "v1", StandIn)


def test_another_backbone_is_refused(folder: Folder, tmp_path: Path) -> None:
    detector = replace(stand_in(), fingerprint=OTHER)
    publish_snapshot(folder, "v1", detector)
    save_detector(detector, tmp_path / "one.safetensors")
    with pytest.raises(BackboneMismatch, match="resnet50"):
        load_snapshot(folder, "v1", StandIn, fingerprint=FINGERPRINT)
    with pytest.raises(BackboneMismatch, match="resnet50"):
        load_detector(tmp_path / "one.safetensors", StandIn, fingerprint=FINGERPRINT)


def test_one_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "detector.safetensors"
    detector = stand_in()
    save_detector(detector, path)
    back = load_detector(path, StandIn, fingerprint=FINGERPRINT)
    assert back.weights.tobytes() == detector.weights.tobytes()
    whole = path.read_bytes()
    save_detector(back, path)
    assert path.read_bytes() == whole


def test_one_file_that_was_damaged(tmp_path: Path) -> None:
    path = tmp_path / "detector.safetensors"
    with pytest.raises(SnapshotMissing):
        load_detector(path, StandIn)
    save_detector(stand_in(), path)
    whole = path.read_bytes()
    for keep in range(0, len(whole), 23):
        path.write_bytes(whole[:keep])
        with pytest.raises(SnapshotTruncated):
            load_detector(path, StandIn)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(SnapshotTampered):
        load_detector(path, StandIn)
    path.write_bytes(whole.replace(b"stand-in", b"stand-up"))
    with pytest.raises(SnapshotTampered):
        load_detector(path, StandIn)
    path.write_bytes(b"\x04\0\0\0\0\0\0\0{]}  and more")
    with pytest.raises(SnapshotSchemaError, match="not a safetensors file"):
        load_detector(path, StandIn)
