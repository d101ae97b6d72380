"""Detectors come back bit for bit, or with an error that says what happened to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.fs as pafs
import pytest

from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.fingerprint import Fingerprint
from monitor.store.atomic_files import Folder
from monitor.store.errors import (
    BackboneMismatch,
    SnapshotExists,
    SnapshotMissing,
    SnapshotSchemaError,
    SnapshotTampered,
    SnapshotTruncated,
)
from monitor.store.snapshot_manifest import SCHEMA
from monitor.store.snapshots import (
    load_detector,
    load_snapshot,
    publish_snapshot,
    save_detector,
    verify_snapshot,
)
from tests.store.building import DIMENSION, FINGERPRINT, assert_identical, small_detector

OTHER = Fingerprint("resnet50", "ab" * 32, "{}", 2048, "float32")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder.local(tmp_path / "state")


@pytest.mark.parametrize("wrapped", [False, True])
def test_round_trip_is_exact(tmp_path: Path, wrapped: bool) -> None:
    filesystem = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    folder = Folder(filesystem, "state") if wrapped else Folder.local(tmp_path / "state")
    detector = small_detector()
    snapshot = publish_snapshot(folder, "v1", detector)
    back = load_snapshot(folder, "v1", fingerprint=FINGERPRINT, sha256=snapshot.sha256)
    assert_identical(back, detector)
    assert publish_snapshot(folder, "v2", back).sha256 == snapshot.sha256
    assert (tmp_path / "state" / "v1" / "manifest.json").exists()


def grown() -> Detector:
    """Also a class of three samples, which holds none out, and a name that is not ASCII."""
    detector = small_detector()
    rng = np.random.default_rng(7)
    found = [
        KnownClass.fit(
            id,
            name,
            rng.normal(centre, 1, size=(count, DIMENSION)).astype(np.float32),
            settings=detector.settings,
            rng=rng,
            origin="person",
            said=np.arange(count) < 2,
        )
        for id, name, centre, count in [("c3", "dune", -9, 3), ("c4", "Gewächshaus", 20, 30)]
    ]
    assert found[0].references.shape == (3, DIMENSION)
    return detector.with_classes(found)


def merged() -> Detector:
    """A class with three modes before one with a single mode."""
    detector = grown().merged("c1", ["c4", "c3"])
    assert [len(known.modes) for known in detector.classes] == [3, 1]
    return detector


def wide() -> Detector:
    """As many features as a small backbone gives, more than there are samples."""
    return small_detector(fingerprint=Fingerprint.of_features(320))


@pytest.mark.parametrize("make", [small_detector, grown, merged, wide])
def test_what_comes_back_judges_alike_to_the_last_bit(
    folder: Folder, tmp_path: Path, make: Callable[[], Detector]
) -> None:
    detector = make()
    publish_snapshot(folder, "v1", detector)
    save_detector(detector, tmp_path / "one.safetensors")
    strange = np.random.default_rng(3).normal(4, 6, size=(300, detector.dimension))
    rows = np.concatenate([detector.references.features, strange])
    wanted = detector.score(rows)
    assert set(wanted.novel.tolist()) == {True, False}
    for back in (load_snapshot(folder, "v1"), load_detector(tmp_path / "one.safetensors")):
        assert_identical(back, detector)
        assert back.calibration == detector.calibration
        found = back.score(rows)
        for name in ("score", "ratio", "novel", "nearest"):
            one, other = getattr(found, name), getattr(wanted, name)
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()


def test_a_detector_that_was_loaded_can_grow(folder: Folder) -> None:
    publish_snapshot(folder, "v1", grown())
    assert_identical(load_snapshot(folder, "v1").merged("c1", ["c4", "c3"]), merged())


def test_a_merge_needs_a_version_of_its_own(folder: Folder) -> None:
    publish_snapshot(folder, "v1", grown())
    with pytest.raises(SnapshotExists):
        publish_snapshot(folder, "v1", merged())
    assert_identical(load_snapshot(folder, "v1"), grown())


def test_a_filesystem_that_is_not_local(folder: Folder) -> None:
    from pyarrow.fs import _MockFileSystem

    remote = Folder(_MockFileSystem(), "bucket/state")
    assert not remote.is_local
    detector = small_detector()
    snapshot = publish_snapshot(remote, "v1", detector)
    assert publish_snapshot(remote, "v1", detector) == snapshot
    back = load_snapshot(remote, "v1")
    assert_identical(back, detector)
    with pytest.raises(SnapshotExists):
        publish_snapshot(remote, "v1", small_detector(1))


def test_a_version_is_never_overwritten(folder: Folder) -> None:
    publish_snapshot(folder, "v1", small_detector())
    before = {entry.name: folder.sha256(entry.name) for entry in folder.list()}
    assert publish_snapshot(folder, "v1", small_detector()).name == "v1"
    with pytest.raises(SnapshotExists, match="publish under a new number"):
        publish_snapshot(folder, "v1", small_detector(1))
    assert {entry.name: folder.sha256(entry.name) for entry in folder.list()} == before


def test_missing(folder: Folder) -> None:
    with pytest.raises(SnapshotMissing, match="no detector here"):
        load_snapshot(folder, "v1")


def test_arrays_without_a_manifest_are_no_snapshot(folder: Folder) -> None:
    publish_snapshot(folder, "v1", small_detector())
    folder.delete("v1/manifest.json")
    with pytest.raises(SnapshotMissing):
        load_snapshot(folder, "v1")


@pytest.mark.parametrize("part", ["arrays.safetensors", "manifest.json"])
@pytest.mark.parametrize("keep", [0, 7, 60])
def test_truncated(folder: Folder, part: str, keep: int) -> None:
    publish_snapshot(folder, "v1", small_detector())
    folder.write(f"v1/{part}", folder.read(f"v1/{part}")[:keep])
    with pytest.raises(SnapshotTruncated):
        load_snapshot(folder, "v1")


def test_a_flipped_bit_anywhere_in_the_arrays_is_noticed(folder: Folder) -> None:
    publish_snapshot(folder, "v1", small_detector())
    whole = folder.read("v1/arrays.safetensors")
    for position in range(0, len(whole), 61):
        changed = bytearray(whole)
        changed[position] ^= 1
        folder.write("v1/arrays.safetensors", bytes(changed))
        with pytest.raises(SnapshotTampered):
            verify_snapshot(folder, "v1")


def test_an_edited_manifest_is_noticed(folder: Folder) -> None:
    snapshot = publish_snapshot(folder, "v1", small_detector())
    manifest = json.loads(folder.read("v1/manifest.json"))
    manifest["meta"]["calibration"]["t_inner"] *= 2
    folder.write("v1/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(SnapshotTampered, match="changed after it was written"):
        load_snapshot(folder, "v1")
    folder.delete_folder("v1")
    publish_snapshot(folder, "v1", small_detector(1))
    with pytest.raises(SnapshotTampered, match="not the manifest that was published"):
        load_snapshot(folder, "v1", sha256=snapshot.sha256)


@pytest.mark.parametrize(
    "change", [{"schema": 1}, {"schema": SCHEMA + 1}, {"format": "something else"}]
)
def test_another_layout_is_refused(folder: Folder, change: dict[str, object]) -> None:
    publish_snapshot(folder, "v1", small_detector())
    manifest = json.loads(folder.read("v1/manifest.json"))
    folder.write("v1/manifest.json", json.dumps({**manifest, **change}).encode())
    with pytest.raises(SnapshotSchemaError):
        load_snapshot(folder, "v1")


def test_another_backbone_is_refused(folder: Folder, tmp_path: Path) -> None:
    detector = small_detector(fingerprint=OTHER)
    publish_snapshot(folder, "v1", detector)
    save_detector(detector, tmp_path / "one.safetensors")
    with pytest.raises(BackboneMismatch, match="resnet50"):
        load_snapshot(folder, "v1", fingerprint=FINGERPRINT)
    with pytest.raises(BackboneMismatch, match="resnet50"):
        load_detector(tmp_path / "one.safetensors", fingerprint=FINGERPRINT)


def test_one_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "detector.safetensors"
    detector = small_detector()
    save_detector(detector, path)
    back = load_detector(path, fingerprint=FINGERPRINT)
    assert_identical(back, detector)
    whole = path.read_bytes()
    save_detector(back, path)
    assert path.read_bytes() == whole


def test_one_file_that_was_damaged(tmp_path: Path) -> None:
    path = tmp_path / "detector.safetensors"
    with pytest.raises(SnapshotMissing):
        load_detector(path)
    save_detector(small_detector(), path)
    whole = path.read_bytes()
    for keep in range(0, len(whole), 101):
        path.write_bytes(whole[:keep])
        with pytest.raises(SnapshotTruncated):
            load_detector(path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(SnapshotTampered):
        load_detector(path)
    path.write_bytes(whole.replace(b"water", b"wader"))
    with pytest.raises(SnapshotTampered):
        load_detector(path)
    now, later = (rb"\"schema\": %d" % number for number in (SCHEMA, SCHEMA + 1))
    newer = whole.replace(now, later)
    assert newer != whole
    path.write_bytes(newer)
    with pytest.raises(
        SnapshotSchemaError, match=rf"layout {SCHEMA + 1}, this conclad reads {SCHEMA};"
    ):
        load_detector(path)
    path.write_bytes(b"\x04\0\0\0\0\0\0\0{]}  and more")
    with pytest.raises(SnapshotSchemaError, match="not a safetensors file"):
        load_detector(path)
