"""Detector versions: numbered, immutable, and which of them is in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select, update

from monitor.store.errors import NotFound, WrongState
from monitor.store.records import Publication, Version
from monitor.store.repository import Repository
from monitor.store.states import VersionState
from monitor.store.tables import detector_versions, publications


class Versions(Repository):
    """The versions and the history of which one was in use when."""

    def next_number(self) -> int:
        return self._next_id(detector_versions.c.number)

    def add(
        self,
        *,
        key: str,
        parent: int | None,
        snapshot: str,
        sha256: str,
        fingerprint: str,
        state: VersionState,
        reason: str | None = None,
        pool_id: int | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> Version:
        """Enter a version under the next number; ``key`` says what it was made for, once."""
        version = Version(
            number=self.next_number(),
            parent=parent,
            key=key,
            snapshot=snapshot,
            sha256=sha256,
            fingerprint=fingerprint,
            state=state,
            reason=reason,
            pool_id=pool_id,
            evidence=dict(evidence or {}),
            created_at=self._now,
        )
        self._connection.execute(
            insert(detector_versions).values(
                {name: getattr(version, name) for name in Version.__slots__}
            )
        )
        return version

    def get(self, number: int) -> Version:
        found = self._first(
            Version, select(detector_versions).where(detector_versions.c.number == number)
        )
        if found is None:
            raise NotFound(f"detector version {number}: there is no such version")
        return found

    def by_key(self, key: str) -> Version | None:
        return self._first(Version, select(detector_versions).where(detector_versions.c.key == key))

    def all(self) -> list[Version]:
        return self._all(Version, select(detector_versions).order_by(detector_versions.c.number))

    def current(self) -> Version | None:
        """The version in use, if any was ever published."""
        last = self._first(Publication, select(publications).order_by(publications.c.id.desc()))
        return None if last is None else self.get(last.number)

    def publications(self) -> list[Publication]:
        return self._all(Publication, select(publications).order_by(publications.c.id))

    def publish(self, number: int, *, who: str, reason: str | None = None) -> Version:
        """Put a version into use: a new one, or a held one that an operator releases."""
        return self._publish(number, who=who, reason=reason, rollback=False)

    def refuse(self, number: int, *, reason: str) -> Version:
        """Turn a held version down for good."""
        version = self.get(number)
        if version.state is not VersionState.HELD:
            raise WrongState(f"detector version {number}: is {version.state}, not held")
        self._set(number, state=VersionState.ROLLED_BACK, reason=reason)
        return self.get(number)

    def rollback(self, to: int, *, who: str, reason: str) -> Version:
        """Use an older version again; what came after it counts as rolled back.

        The reason of a version is kept with it; the reason of a rollback is in the publications.
        """
        target, current = self.get(to), self.current()
        if current is None or current.number == to:
            raise WrongState(f"detector version {to}: is already the one in use")
        if target.state is VersionState.HELD:
            raise WrongState(f"detector version {to}: is held; publish it to release it")
        self._connection.execute(
            update(detector_versions)
            .where(
                detector_versions.c.number > to,
                detector_versions.c.state == VersionState.PUBLISHED,
            )
            .values(state=VersionState.ROLLED_BACK)
        )
        return self._publish(to, who=who, reason=reason, rollback=True)

    def _publish(self, number: int, *, who: str, reason: str | None, rollback: bool) -> Version:
        self.get(number)
        self._set(number, state=VersionState.PUBLISHED)
        self._connection.execute(
            insert(publications).values(
                id=self._next_id(publications.c.id),
                number=number,
                at=self._now,
                who=who,
                reason=reason,
                rollback=rollback,
            )
        )
        return self.get(number)

    def _set(self, number: int, **values: Any) -> None:
        self._connection.execute(
            update(detector_versions).where(detector_versions.c.number == number).values(**values)
        )
