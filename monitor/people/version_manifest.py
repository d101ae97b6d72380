"""What the detector in use knows, read from its manifest alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from monitor.store.atomic_files import Folder
from monitor.store.records import Version
from monitor.store.snapshot_manifest import read_meta
from monitor.store.store import Store

REMEMBERED = 64
"""Manifests kept in memory: a page of the history shows some dozens, each of a few KB."""


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """A class as one detector version knows it."""

    id: str
    name: str
    origin: str
    human: int
    pseudo: int
    fitted: int
    """Images that its subspaces were fitted on; held-out ones come on top."""

    @property
    def images(self) -> int:
        """The images that it was learnt from: labelled ones, or those of people and its own."""
        return self.human + self.pseudo if self.human or self.pseudo else self.fitted


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The classes of a version, by id, and where its T_inner lies."""

    classes: Mapping[str, KnownEntry]
    t_inner: float
    exceedance: float
    backbone: str


NOTHING = Knowledge({}, 0.0, 0.0, "")


def knowledge_of(store: Store, version: Version | None) -> Knowledge:
    """Cheap after the first time: versions never change."""
    if version is None:
        return NOTHING
    return _read(_ByContent(store.folder, version.snapshot, version.sha256))


def current_knowledge(store: Store) -> Knowledge:
    """What the version in use knows."""
    with store.reading() as tx:
        version = tx.versions.current()
    return knowledge_of(store, version)


class _ByContent:
    """A snapshot, equal to whatever has the same hash; the folder is only how to reach it."""

    def __init__(self, folder: Folder, name: str, sha256: str) -> None:
        self.folder, self.name, self.sha256 = folder, name, sha256

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByContent) and other.sha256 == self.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)


@lru_cache(maxsize=REMEMBERED)
def _read(snapshot: _ByContent) -> Knowledge:
    meta = read_meta(snapshot.folder, snapshot.name, sha256=snapshot.sha256)
    return Knowledge(
        classes={entry["id"]: _entry(entry) for entry in meta["classes"]},
        t_inner=float(meta["calibration"]["t_inner"]),
        exceedance=float(meta["calibration"]["exceedance"]),
        backbone=str(meta["fingerprint"]["backbone"]),
    )


def _entry(entry: Mapping[str, Any]) -> KnownEntry:
    return KnownEntry(
        id=entry["id"],
        name=entry["name"],
        origin=entry["origin"],
        human=int(entry["human"]),
        pseudo=int(entry["pseudo"]),
        fitted=sum(int(count) for count in entry["modes"]),
    )
