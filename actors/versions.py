"""Detector versions between the store and the crew: loaded once, boxed once."""

from __future__ import annotations

from actors.boxes import Box
from actors.crew import Crew
from monitor.jobs.parts import current_version, load_detector
from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.deciding import Current
from monitor.store import Store
from monitor.store.rows import Version

#: The version in use, and the one that the pool under way began with.
KEPT = 2


class Versions:
    """The versions that are named in calls. Refuses those of another backbone."""

    def __init__(self, store: Store, crew: Crew, fingerprint: Fingerprint) -> None:
        self._store = store
        self._crew = crew
        self._fingerprint = fingerprint
        self._boxes: dict[int, Box] = {}

    def current(self) -> Current:
        """The version in use now, read from its snapshot."""
        version = current_version(self._store)
        return Current(version.number, self._load(version))

    def box(self, number: int) -> Box:
        if number not in self._boxes:
            with self._store.reading() as tx:
                version = tx.versions.get(number)
            self._load(version)
        return self._boxes[number]

    def _load(self, version: Version) -> Detector:
        detector = load_detector(self._store, version, self._fingerprint)
        while len(self._boxes) >= KEPT:
            # The one that was boxed first; should it be named again, it is read again.
            del self._boxes[next(iter(self._boxes))]
        self._boxes[version.number] = self._crew.box(version.number, detector)
        return detector
