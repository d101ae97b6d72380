"""What the manifest of a snapshot says, read without numpy or any array."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from monitor.novelty.fingerprint import Fingerprint
from monitor.store.atomic_files import Folder
from monitor.store.errors import (
    SnapshotMissing,
    SnapshotSchemaError,
    SnapshotTampered,
    SnapshotTruncated,
)

FORMAT = "conclad-detector"
SCHEMA = 4
MANIFEST = "manifest.json"


def read_meta(folder: Folder, name: str, *, sha256: str | None = None) -> dict[str, Any]:
    """What a snapshot says about its classes and calibration, without reading any array."""
    meta: dict[str, Any] = sealed_manifest(folder, name, sha256)["meta"]
    return meta


def read_fingerprint(folder: Folder, name: str, *, sha256: str | None = None) -> Fingerprint:
    """What made the features that a snapshot understands, without reading any array."""
    return Fingerprint(**sealed_manifest(folder, name, sha256)["fingerprint"])


def sealed_manifest(folder: Folder, name: str, sha256: str | None) -> dict[str, Any]:
    """The manifest, if it is whole and the one that was published."""
    where = folder.path(name)
    text = read_part(folder, f"{name}/{MANIFEST}")
    manifest = parse_manifest(text, where)
    if sha256 is not None and hashlib.sha256(text).hexdigest() != sha256:
        raise SnapshotTampered(
            f"{where}/{MANIFEST}: is not the manifest that was published; "
            "restore the folder from a backup, or roll back to another version"
        )
    return manifest


def read_part(folder: Folder, name: str) -> bytes:
    try:
        return folder.read(name)
    except FileNotFoundError as error:
        raise SnapshotMissing(f"{folder.path(name)}: there is no detector here") from error


def parse_manifest(text: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SnapshotTruncated(
            f"{where}: the manifest is cut off or empty ({error}); restore it from a backup"
        ) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SnapshotSchemaError(f"{where}: is not a detector written by conclad")
    if found.get("schema") != SCHEMA:
        raise SnapshotSchemaError(
            f"{where}: has detector layout {found.get('schema')}, this conclad reads {SCHEMA}; "
            "fit again into a fresh folder: conclad fit --data … --set state.dir=FOLDER"
        )
    body = {key: value for key, value in found.items() if key != "seal"}
    if found.get("seal") != seal(body):
        raise SnapshotTampered(f"{where}: the manifest was changed after it was written")
    return found


def canonical(value: Mapping[str, Any]) -> bytes:
    """One spelling for one value; ``allow_nan`` off, since NaN is no JSON."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode()


def seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(body)).hexdigest()
