"""Detector versions, which of them is in use, and classes with ids that never move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, insert, select, update

from monitor.store.errors import ClassNameTaken, NotFound, WrongState
from monitor.store.record_states import ClassOrigin, VersionState
from monitor.store.records import ClassRow, Publication, Version
from monitor.store.tables import Repository, classes, detector_versions, publications


class Classes(Repository):
    """Everything the detector knows or people have named."""

    def add(
        self,
        name: str,
        origin: ClassOrigin,
        *,
        class_id: str | None = None,
        created_in: int | None = None,
    ) -> ClassRow:
        """A new class; without an id it gets the next of ``class-1``, ``class-2``, …."""
        self._refuse_taken(name)
        row = ClassRow(
            id=class_id or self._new_id(),
            name=name,
            origin=origin,
            created_at=self._now,
            created_in=created_in,
            retired_at=None,
            merged_into=None,
        )
        self._connection.execute(
            insert(classes).values({key: getattr(row, key) for key in ClassRow.__slots__})
        )
        return row

    def ensure(self, name: str, origin: ClassOrigin) -> ClassRow:
        """The living class of this name, made if need be: two people may type it at once."""
        return self.find(name) or self.add(name, origin)

    def get(self, class_id: str) -> ClassRow:
        found = self._first(ClassRow, select(classes).where(classes.c.id == class_id))
        if found is None:
            raise NotFound(f"class {class_id!r}: there is no such class")
        return found

    def find(self, name: str) -> ClassRow | None:
        """The living class of this name."""
        return self._first(ClassRow, self._living().where(classes.c.name == name))

    def living(self) -> list[ClassRow]:
        return self._all(ClassRow, self._living().order_by(classes.c.created_at, classes.c.id))

    def all(self) -> list[ClassRow]:
        return self._all(ClassRow, select(classes).order_by(classes.c.created_at, classes.c.id))

    def resolve(self, class_id: str) -> ClassRow:
        """Follow merges to the class that an old id means today."""
        row = self.get(class_id)
        while row.merged_into is not None:
            row = self.get(row.merged_into)
        return row

    def rename(self, class_id: str, name: str) -> ClassRow:
        row = self._require_living(class_id)
        if name != row.name:
            self._refuse_taken(name)
            self._set(class_id, name=name)
        return self.get(class_id)

    def retire(self, class_id: str) -> ClassRow:
        self._require_living(class_id)
        self._set(class_id, retired_at=self._now)
        return self.get(class_id)

    def merge(self, class_id: str, into: str) -> ClassRow:
        """From now on ``class_id`` means ``into``; both must be alive, so no circle can form."""
        self._require_living(class_id)
        target = self._require_living(into)
        if class_id == into:
            raise WrongState(f"class {class_id!r}: cannot be merged into itself")
        self._set(class_id, merged_into=into)
        return target

    def revive(self, class_id: str, name: str) -> ClassRow:
        """Undo a retirement or a merge under the name of then; refused when that is taken.

        An active class takes its old name again only if no other class has it now.
        """
        taken = self.find(name)
        if taken is not None and taken.id != class_id:
            row = self.get(class_id)
            if not row.living:
                self._refuse_taken(name)
            return row
        self._set(class_id, name=name, retired_at=None, merged_into=None)
        return self.get(class_id)

    def set_created_in(self, class_id: str, version: int) -> None:
        """Record the version that first knew a class; later calls change nothing."""
        self._connection.execute(
            update(classes)
            .where(classes.c.id == class_id, classes.c.created_in.is_(None))
            .values(created_in=version)
        )

    def _require_living(self, class_id: str) -> ClassRow:
        row = self.get(class_id)
        if not row.living:
            fate = f"was merged into {row.merged_into!r}" if row.merged_into else "was retired"
            raise WrongState(f"class {class_id!r}: {fate} and cannot be changed any more")
        return row

    def _refuse_taken(self, name: str) -> None:
        taken = self.find(name)
        if taken is not None:
            raise ClassNameTaken(
                f"class {name!r}: {taken.id} already has this name; choose another or use that one"
            )

    def _new_id(self) -> str:
        """Classes are never deleted, so their count gives an unused number."""
        number = self._connection.execute(select(func.count()).select_from(classes)).scalar_one()
        while True:
            number += 1
            candidate = f"class-{number}"
            if self._first(ClassRow, select(classes).where(classes.c.id == candidate)) is None:
                return candidate

    def _living(self) -> Any:
        return select(classes).where(
            classes.c.retired_at.is_(None), classes.c.merged_into.is_(None)
        )

    def _set(self, class_id: str, **values: Any) -> None:
        self._connection.execute(update(classes).where(classes.c.id == class_id).values(**values))


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
