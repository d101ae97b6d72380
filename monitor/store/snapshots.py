"""Detectors as named arrays and plain values, and on disk: safetensors, JSON, a hash for each part.

A snapshot is a folder with ``arrays.safetensors`` and ``manifest.json``. The manifest is
written last and names every part with its size and SHA-256; a folder without it is no
snapshot. Nothing in it depends on the clock or the machine, so saving the same detector twice
gives the same bytes, and an existing snapshot is never overwritten by a different one.

:func:`save_detector` puts the same content into a single safetensors file whose header carries
the manifest, for people who want to send a detector to somebody.

The hashes detect accidents and careless edits. They are not signatures: whoever can write the
folder can also recompute them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from monitor.novelty.detector import Calibration, Detector, KnownClass
from monitor.novelty.errors import InvalidDetector
from monitor.novelty.fingerprint import Fingerprint
from monitor.novelty.presets import settings_from_dict, settings_to_dict
from monitor.novelty.robust.single_image_score import Opinions
from monitor.novelty.subspace import Subspace
from monitor.store.atomic_files import Folder, declare, fault_point
from monitor.store.errors import (
    BackboneMismatch,
    SnapshotExists,
    SnapshotSchemaError,
    SnapshotTampered,
    SnapshotTruncated,
)
from monitor.store.snapshot_manifest import (
    FORMAT,
    MANIFEST,
    SCHEMA,
    canonical,
    parse_manifest,
    read_part,
    seal,
    sealed_manifest,
)

# Class ids never begin with this.
_OPINIONS = "opinions."


def to_state(detector: Detector) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays by name, and everything else as JSON values."""
    arrays: dict[str, np.ndarray] = {}
    classes = []
    for known in detector.classes:
        arrays[f"{known.id}.references"] = known.references
        arrays[f"{known.id}.own"] = known.own
        arrays[f"{known.id}.said"] = known.said
        for i, mode in enumerate(known.modes):
            arrays[f"{known.id}.{i}.mean"] = mode.mean
            arrays[f"{known.id}.{i}.basis"] = mode.basis
        classes.append(
            {
                "id": known.id,
                "name": known.name,
                "origin": known.origin,
                "human": known.human,
                "pseudo": known.pseudo,
                "held": known.held,
                "confirmed": known.confirmed,
                "modes": [mode.count for mode in known.modes],
            }
        )
    if detector.opinions is not None:
        arrays |= {f"{_OPINIONS}{k}": v for k, v in detector.opinions.to_arrays().items()}
    return arrays, {
        "classes": classes,
        "calibration": asdict(detector.calibration),
        "fre_calibration": asdict(detector.fre_calibration),
        "fingerprint": asdict(detector.fingerprint),
        "settings": settings_to_dict(detector.settings),
    }


def from_state(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Detector:
    """The detector that :func:`to_state` described, bit for bit."""
    try:
        fingerprint = Fingerprint(**meta["fingerprint"])
        classes = tuple(_known_class(arrays, entry) for entry in meta["classes"])
        detector = Detector(
            classes=classes,
            fre_calibration=Calibration(**meta["fre_calibration"]),
            fingerprint=fingerprint,
            settings=settings_from_dict(meta["settings"]),
            saved=_opinions(arrays),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidDetector(f"the stored detector is incomplete: {error!r}") from None
    for known in classes:
        widths = {known.references.shape[1:], *(m.mean.shape for m in known.modes)}
        widths |= {m.basis.shape[1:] for m in known.modes}
        if widths != {(fingerprint.dimension,)} or not known.modes:
            raise InvalidDetector(
                f"the stored class {known.name!r} does not have {fingerprint.dimension} features"
            )
    return detector


def _opinions(arrays: Mapping[str, np.ndarray]) -> Opinions | None:
    found = {k.removeprefix(_OPINIONS): v for k, v in arrays.items() if k.startswith(_OPINIONS)}
    return Opinions.from_arrays(found) if found else None


def _known_class(arrays: Mapping[str, np.ndarray], entry: Mapping[str, Any]) -> KnownClass:
    id = entry["id"]
    return KnownClass(
        id=id,
        name=entry["name"],
        modes=tuple(
            Subspace(arrays[f"{id}.{i}.mean"], arrays[f"{id}.{i}.basis"], count)
            for i, count in enumerate(entry["modes"])
        ),
        references=arrays[f"{id}.references"],
        own=arrays[f"{id}.own"],
        said=arrays[f"{id}.said"],
        confirmed=entry["confirmed"],
        held=entry["held"],
        origin=entry["origin"],
        human=entry["human"],
        pseudo=entry["pseudo"],
    )


declare(
    "snapshot.start",
    "snapshot.after_stage_arrays",
    "snapshot.after_publish_arrays",
    "snapshot.after_stage_manifest",
    "snapshot.after_publish_manifest",
)

ARRAYS = "arrays.safetensors"

#: safetensors begins with the length of its JSON header in eight bytes.
_PREFIX = 8

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The place of a snapshot, and the hash of its whole content."""

    name: str
    sha256: str


def content_hash(detector: Detector) -> str:
    """The hash a snapshot of this detector has, wherever it is written."""
    _, manifest = _parts(detector)
    return hashlib.sha256(manifest).hexdigest()


def publish_snapshot(folder: Folder, name: str, detector: Detector) -> Snapshot:
    """Write a snapshot as folder ``name``; all of it, or nothing that anybody would load.

    1. The arrays are staged, made durable, and get their name. Without a manifest they mean
       nothing, so a try that died here is simply overwritten.
    2. The manifest is staged and gets its name only if the name is free. That is the moment
       at which the snapshot exists.

    Publishing the same content again changes nothing; other content under the same name is
    refused before anything is written.
    """
    fault_point("snapshot.start")
    arrays, manifest = _parts(detector)
    snapshot = Snapshot(name, hashlib.sha256(manifest).hexdigest())
    if folder.size(f"{name}/{MANIFEST}") is not None:
        return _same_or_refuse(folder, snapshot, manifest)
    staged = folder.stage_bytes(f"{name}/{ARRAYS}", arrays)
    fault_point("snapshot.after_stage_arrays")
    staged.publish()
    fault_point("snapshot.after_publish_arrays")
    staged = folder.stage_bytes(f"{name}/{MANIFEST}", manifest)
    fault_point("snapshot.after_stage_manifest")
    try:
        staged.publish_new()
    except FileExistsError:
        staged.discard()
        return _same_or_refuse(folder, snapshot, manifest)
    fault_point("snapshot.after_publish_manifest")
    return snapshot


def load_snapshot(
    folder: Folder,
    name: str,
    *,
    fingerprint: Fingerprint | None = None,
    sha256: str | None = None,
) -> Detector:
    """Read a snapshot back, checking every hash on the way.

    ``sha256`` is the manifest's hash as the store recorded it; ``fingerprint`` is that of the
    features the detector is going to see.
    """
    return from_state(*_checked(folder, name, fingerprint, sha256))


def verify_snapshot(folder: Folder, name: str, sha256: str | None = None) -> None:
    """Check everything that can be checked without making a detector of it."""
    _checked(folder, name, None, sha256)


def save_detector(detector: Detector, path: str | Path) -> None:
    """Write a detector as one safetensors file, replacing the file in one step."""
    arrays, meta = to_state(detector)
    parts = {name: _part(_bytes_of(array)) for name, array in arrays.items()}
    header = {FORMAT: _manifest_bytes(detector, meta, parts).decode()}
    target = Path(path)
    folder = Folder.local(target.parent, private=False)  # made to be handed on
    folder.write(target.name, save(_contiguous(arrays), metadata=header))


def load_detector(path: str | Path, *, fingerprint: Fingerprint | None = None) -> Detector:
    """Read what :func:`save_detector` wrote, with the same checks as :func:`load_snapshot`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "detector.safetensors"
    >>> features = np.random.default_rng(0).normal(size=(40, 6))
    >>> save_detector(Detector.fit(features, ["water"] * 40), path)
    >>> [known.name for known in load_detector(path).classes]
    ['water']
    """
    where = str(path)
    target = Path(path)
    data = read_part(Folder.local(target.parent), target.name)
    header = _header(data, where)
    manifest = parse_manifest(header.get("__metadata__", {}).get(FORMAT, "").encode(), where)
    _check_backbone(manifest, fingerprint, where)
    arrays = _arrays(data, where)
    if set(arrays) != set(manifest["parts"]):
        raise SnapshotTampered(f"{where}: does not hold the arrays that its manifest names")
    for name, array in arrays.items():
        _check_part(_bytes_of(array), manifest["parts"][name], f"{where} ({name})")
    return from_state(arrays, manifest["meta"])


# -- writing ---------------------------------------------------------------------------------


def _parts(detector: Detector) -> tuple[bytes, bytes]:
    arrays, meta = to_state(detector)
    data = save(_contiguous(arrays))
    return data, _manifest_bytes(detector, meta, {ARRAYS: _part(data)})


def _manifest_bytes(
    detector: Detector, meta: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]
) -> bytes:
    body = {
        "format": FORMAT,
        "schema": SCHEMA,
        "fingerprint": asdict(detector.fingerprint),
        "meta": meta,
        "parts": parts,
    }
    return canonical({**body, "seal": seal(body)})


def _part(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _contiguous(arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    return {name: np.asarray(arrays[name], order="C") for name in sorted(arrays)}


def _bytes_of(array: npt.NDArray[Any]) -> bytes:
    return array.tobytes()


def _same_or_refuse(folder: Folder, snapshot: Snapshot, manifest: bytes) -> Snapshot:
    if folder.read(f"{snapshot.name}/{MANIFEST}") != manifest:
        raise SnapshotExists(
            f"{folder.path(snapshot.name)}: holds another detector already; "
            "versions are never overwritten, publish under a new number"
        )
    return snapshot


# -- reading ---------------------------------------------------------------------------------


def _checked(
    folder: Folder, name: str, fingerprint: Fingerprint | None, sha256: str | None
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """The arrays and the rest of a snapshot, once nothing speaks against them."""
    where = folder.path(name)
    manifest = sealed_manifest(folder, name, sha256)
    _check_backbone(manifest, fingerprint, where)
    arrays = read_part(folder, f"{name}/{ARRAYS}")
    _check_part(arrays, manifest["parts"][ARRAYS], f"{where}/{ARRAYS}")
    return _arrays(arrays, where), manifest["meta"]


def _check_backbone(manifest: Mapping[str, Any], expected: Fingerprint | None, where: str) -> None:
    if expected is None:
        return
    found = Fingerprint(**manifest["fingerprint"])
    if found != expected:
        raise BackboneMismatch(
            f"{where}: was fitted on features of another backbone "
            f"({found.difference(expected)}); embed with that backbone, or fit again"
        )


def _check_part(data: bytes, part: Mapping[str, Any], where: str) -> None:
    if len(data) < part["size"]:
        raise SnapshotTruncated(
            f"{where}: has {len(data)} of {part['size']} bytes; restore it from a backup"
        )
    if hashlib.sha256(data).hexdigest() != part["sha256"]:
        raise SnapshotTampered(
            f"{where}: does not have the hash that its manifest names; restore it from a backup"
        )


def _header(data: bytes, where: str) -> dict[str, Any]:
    length = int.from_bytes(data[:_PREFIX], "little")
    if len(data) < _PREFIX or len(data) < _PREFIX + length:
        raise SnapshotTruncated(f"{where}: ends before its header does; restore it from a backup")
    try:
        header = json.loads(data[_PREFIX : _PREFIX + length])
    except ValueError as error:
        raise SnapshotSchemaError(f"{where}: is not a safetensors file ({error})") from error
    ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
    expected = _PREFIX + length + max(ends, default=0)
    if len(data) < expected:
        raise SnapshotTruncated(
            f"{where}: has {len(data)} of {expected} bytes; restore it from a backup"
        )
    return dict(header)


def _arrays(data: bytes, where: str) -> dict[str, npt.NDArray[Any]]:
    try:
        return dict(load(data))
    except (SafetensorError, ValueError, KeyError) as error:
        raise SnapshotTampered(f"{where}: the arrays cannot be read ({error})") from error
