"""Detector versions between the store and the workers: read once, sent once, kept by number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from monitor.jobs.from_config import current_version, load_detector
from monitor.jobs.score_batch import read_corrections
from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.pool_steps import CurrentDetector
from monitor.store import Store
from monitor.store.records import Version

#: At the coordinator: the version in use, and the one that the pool under way began with.
SENT = 2
#: At a worker: one more, on its way.
RECEIVED = 3


@dataclass(frozen=True, slots=True)
class DetectorRef:
    """A version of the detector, or a reference to where Ray keeps it.

    Ray would fetch a reference that is an argument of its own; inside this class it stays closed
    until a worker needs what it refers to.
    """

    number: int
    content: Any


class DetectorCache:
    """The detectors that a worker has used lately."""

    def __init__(self) -> None:
        self._kept: dict[int, Detector] = {}

    def get(self, ref: DetectorRef) -> Detector:
        if ref.number not in self._kept:
            detector = _fetch(ref.content)
            while len(self._kept) >= RECEIVED:
                del self._kept[min(self._kept)]
            self._kept[ref.number] = detector
        return self._kept[ref.number]


def _fetch(content: Any) -> Detector:
    if isinstance(content, Detector):
        return content
    import ray

    found = ray.get(content)
    assert isinstance(found, Detector)
    return found


class DetectorVersions:
    """The versions that tasks name. Refuses those of another backbone.

    ``send`` gives a detector to the workers, once for each version, however many tasks name it.
    """

    def __init__(
        self,
        store: Store,
        fingerprint: Fingerprint,
        send: Callable[[int, Detector], DetectorRef],
    ) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._send = send
        self._refs: dict[int, DetectorRef] = {}

    def current(self) -> CurrentDetector:
        """The version in use now, read from its snapshot."""
        version = current_version(self._store)
        with self._store.reading() as tx:
            corrections = read_corrections(tx)
        return CurrentDetector(version.number, self._load(version), corrections)

    def ref(self, number: int) -> DetectorRef:
        if number not in self._refs:
            with self._store.reading() as tx:
                version = tx.versions.get(number)
            self._load(version)
        return self._refs[number]

    def _load(self, version: Version) -> Detector:
        detector = load_detector(self._store, version, self._fingerprint)
        while len(self._refs) >= SENT:
            # The one that was sent first; should it be named again, it is read again.
            del self._refs[next(iter(self._refs))]
        self._refs[version.number] = self._send(version.number, detector)
        return detector
