"""Which detector is in use: its history, what differs, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from monitor.people.errors import NotPossible
from monitor.people.version_manifest import Knowledge, knowledge_of
from monitor.store.record_states import VersionState
from monitor.store.records import Publication, Version
from monitor.store.store import Store
from monitor.store.version_and_settled_commit import refuse_version, release_version


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version as a list shows it."""

    number: int
    state: VersionState
    current: bool
    parent: int | None
    reason: str | None
    who: str | None
    created_at: datetime
    published_at: datetime | None
    pool: int | None
    classes: int
    t_inner: float
    exceedance: float
    evidence: Mapping[str, Any]
    taken_back: str | None = None
    """Why it is not used any more, where somebody went back behind it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What changes for people when ``to`` is used in place of ``of``."""

    of: int
    to: int
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    learnt: tuple[tuple[str, int, int], ...]
    """Classes of both that rest on another number of images: the name, before and after."""
    t_inner: tuple[float, float]
    exceedance: tuple[float, float]

    def sentences(self) -> list[str]:
        """For a confirmation: each begins with what people will notice."""
        said = []
        if self.lost:
            said.append(f"It will no longer know {_listed(self.lost)}: such images are new again.")
        if self.gained:
            said.append(f"It will also know {_listed(self.gained)}.")
        said += [f"{old} will be called {new}." for old, new in self.renamed]
        said += [
            f"{name} will rest on {after:,} images instead of {before:,}."
            for name, before, after in self.learnt
        ]
        old, new = self.t_inner
        if old != new:
            said.append(
                f"The border between known and new (T_inner) moves from {old:.4g} to {new:.4g}."
            )
        return said or ["Nothing that it knows will change."]


def list_versions(store: Store) -> list[VersionView]:
    """All versions, oldest first."""
    with store.reading() as tx:
        versions, publications = tx.versions.all(), tx.versions.publications()
        current = tx.versions.current()
    last = {one.number: one for one in publications}
    back = _taken_back(publications)
    number = None if current is None else current.number
    known = {one.number: knowledge_of(store, one) for one in versions}
    views = [
        _view(one, known[one.number], known.get(one.parent or 0), last.get(one.number), number)
        for one in versions
    ]
    return [
        replace(view, taken_back=back(view.number))
        if view.state is VersionState.ROLLED_BACK
        else view
        for view in views
    ]


def _taken_back(publications: Sequence[Publication]) -> Callable[[int], str | None]:
    """Why a version was taken back: the reason of the last step behind it."""

    def reason(number: int) -> str | None:
        behind = [one for one in publications if one.rollback and one.number < number]
        return behind[-1].reason if behind else None

    return reason


def show_version(store: Store, number: int) -> VersionView:
    """One version with what changed in it; raises NotFound if there is none of this number."""
    with store.reading() as tx:
        version = tx.versions.get(number)
        parent = None if version.parent is None else tx.versions.get(version.parent)
        publications = tx.versions.publications()
        current = tx.versions.current()
    last = next((one for one in reversed(publications) if one.number == number), None)
    before = None if parent is None else knowledge_of(store, parent)
    in_use = None if current is None else current.number
    return _view(version, knowledge_of(store, version), before, last, in_use)


def compare(store: Store, of: int, to: int) -> Difference:
    """What changes when version ``to`` is used in place of ``of``."""
    with store.reading() as tx:
        one, other = tx.versions.get(of), tx.versions.get(to)
    before, after = knowledge_of(store, one), knowledge_of(store, other)
    return Difference(
        of=of,
        to=to,
        gained=_names(after, [i for i in after.classes if i not in before.classes]),
        lost=_names(before, [i for i in before.classes if i not in after.classes]),
        renamed=tuple(
            (before.classes[i].name, entry.name)
            for i, entry in after.classes.items()
            if i in before.classes and before.classes[i].name != entry.name
        ),
        learnt=tuple(
            (entry.name, before.classes[i].images, entry.images)
            for i, entry in after.classes.items()
            if i in before.classes and before.classes[i].images != entry.images
        ),
        t_inner=(before.t_inner, after.t_inner),
        exceedance=(before.exceedance, after.exceedance),
    )


def rollback(store: Store, number: int, *, who: str, reason: str = "") -> Version:
    """Use an older version again, with its classes as it knew them.

    Classes that it knows and that were retired, merged or renamed since come back; classes that
    it does not know keep their rows, and an answer may name them again.
    """
    why = reason or f"rolled back by {who}"
    with store.reading() as tx:
        target, current = tx.versions.get(number), tx.versions.current()
    knowledge = knowledge_of(store, target)
    with store.transaction() as tx:
        version = tx.versions.rollback(number, who=who, reason=why)
        # Twice: a name that moved from one class to another is free once the other gave it back.
        for _ in range(2):
            for entry in knowledge.classes.values():
                tx.classes.revive(entry.id, entry.name)
        tx.events.append(
            "detector.rolled_back",
            {
                "version": number,
                "from": None if current is None else current.number,
                "who": who,
                "reason": why,
            },
        )
    return version


def release(store: Store, number: int, *, who: str, reason: str = "") -> Version:
    """Put a held version into use."""
    return release_version(store, number, who=who, reason=reason or f"released by {who}")


def refuse(store: Store, number: int, *, who: str, reason: str) -> Version:
    """Turn a held version down; the reason is kept, because somebody will ask."""
    if not reason.strip():
        raise NotPossible(f"detector version {number}: say why it is refused")
    return refuse_version(store, number, who=who, reason=reason.strip())


def _view(
    version: Version,
    knowledge: Knowledge,
    before: Knowledge | None,
    last: Publication | None,
    in_use: int | None,
) -> VersionView:
    return VersionView(
        number=version.number,
        state=version.state,
        current=version.number == in_use,
        parent=version.parent,
        reason=version.reason or _what_it_learnt(version, knowledge, before),
        who=None if last is None else last.who,
        created_at=version.created_at,
        published_at=None if last is None else last.at,
        pool=version.pool_id,
        classes=len(knowledge.classes),
        t_inner=knowledge.t_inner,
        exceedance=knowledge.exceedance,
        evidence=version.evidence,
    )


def _what_it_learnt(version: Version, knowledge: Knowledge, before: Knowledge | None) -> str | None:
    """The reason of a version that the monitor made, for which no person gave one."""
    if before is None:
        return "first fit"
    new = _names(knowledge, [one for one in knowledge.classes if one not in before.classes])
    if new:
        return f"learnt {_listed(new)}"
    shifted = sorted(version.evidence.get("adapted") or ())
    if shifted:
        return f"learnt how known classes look at {_listed(shifted)} now"
    grown = [one["id"] for one in version.evidence.get("grown") or ()]
    known = _names(knowledge, [one for one in grown if one in knowledge.classes])
    return f"learnt more images of {_listed(known)}" if known else None


def _names(knowledge: Knowledge, ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(knowledge.classes[one].name for one in ids))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
