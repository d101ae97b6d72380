"""Taking a correction back, and saying beforehand what it would mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow.compute as pc

from monitor.people.errors import NotPossible
from monitor.people.version_history import rollback
from monitor.people.version_manifest import current_knowledge
from monitor.store.records import Event
from monitor.store.store import Store, Transaction
from monitor.store.verdict_columns import KNOWN, WrittenFile, read_table

KINDS = ("rename", "merge", "retire", "wrong")
EVENTS = ("class.renamed", "class.merged", "class.retired")

LOOKED_BACK = 500
"""Corrections among which one is looked for: months of them."""

FILES = 60
"""Latest files of verdicts that are counted to say what a change would mean."""


def undo_change(store: Store, operation: str, *, who: str) -> str:
    """Take back one correction of classes; what is in use then, in words.

    A correction that others have followed is not taken back alone: the history page goes back
    further.
    """
    with store.reading() as tx:
        found = [tx.versions.by_key(f"{kind}:{operation}") for kind in KINDS]
        current = tx.versions.current()
        event = _event(tx, operation)
    version = next((one for one in found if one is not None), None)
    if version is not None:
        if current is None or current.number != version.number or version.parent is None:
            raise NotPossible(
                f"version {version.number} has been followed by others, or was taken back; go "
                "back on the history page"
            )
        rollback(store, version.parent, who=who, reason=f"{who} took back: {version.reason}")
        return f"Taken back: detector version {version.parent} is in use again"
    if event is None:
        raise NotPossible("nothing to take back: there is no such change")
    with store.transaction() as tx:
        _revert(tx, event.kind, event.payload)
        tx.events.append("class.taken_back", {"operation": operation, "who": who})
    return "Taken back"


def _event(tx: Transaction, operation: str) -> Event | None:
    """The record of a correction that made no version, unless it was taken back."""
    kinds = (*EVENTS, "class.taken_back")
    for event in tx.events.latest(kinds=kinds, limit=LOOKED_BACK):
        if event.payload.get("operation") == operation:
            return None if event.kind == "class.taken_back" else event
    return None


def _revert(tx: Transaction, kind: str, said: Mapping[str, Any]) -> None:
    if kind == "class.renamed":
        tx.classes.rename(said["class_id"], said["from"])
    elif kind == "class.merged":
        for class_id in said["merged"]:
            tx.classes.revive(class_id, tx.classes.get(class_id).name)
    else:
        tx.classes.revive(said["class_id"], said["name"])


@dataclass(frozen=True, slots=True)
class Impact:
    """What a class stands for at present."""

    name: str
    recent: int
    """Of the latest images, those that were called by its name."""
    of: int
    questions: int
    """Open questions that suggest it."""

    def retiring(self) -> list[str]:
        """What retiring it would mean."""
        said = [f"The detector forgets {self.name}; images like it will look new again."]
        if self.of:
            said.append(
                f"{self.recent:,} of the latest {self.of:,} images were recognised as {self.name}."
            )
        if self.questions:
            said.append(f"{self.questions} open questions suggest it.")
        return [*said, "You can take it back right after."]

    def merging(self) -> str:
        """What becoming part of another class would mean."""
        return (
            f"{self.name}: {self.recent:,} of the latest {self.of:,} images carry this name; the "
            "next ones will carry the other."
        )


def impact_of(store: Store, class_id: str) -> Impact:
    """How much hangs on a class, counted from the latest verdicts."""
    known = current_knowledge(store).classes
    with store.reading() as tx:
        row = tx.classes.get(class_id)
        outputs = [one.name for one in tx.outputs.of_kind("verdicts")[-FILES:]]
        questions = sum(
            one.suggestion.get("class_id") == class_id or one.suggestion.get("name") == row.name
            for one in tx.questions.list_open(limit=2000)
        )
    counts: Counter[str] = Counter()
    for name in outputs:
        counts.update(_recognised(WrittenFile(store.folder, name)))
    names = {class_id, row.name, known[class_id].name if class_id in known else row.name}
    return Impact(row.name, sum(counts[one] for one in names), sum(counts.values()), questions)


@lru_cache(maxsize=4 * FILES)
def _recognised(file: WrittenFile) -> dict[str, int]:
    """Images of one file that were recognised, by class."""
    try:
        table = read_table(file.folder, file.name, ["verdict", "nearest_class"])
    except FileNotFoundError:
        return {}
    counts: Sequence[Mapping[str, Any]] = pc.value_counts(
        table.filter(pc.equal(table.column("verdict"), KNOWN)).column("nearest_class")
    ).to_pylist()
    return {str(one["values"]): int(one["counts"]) for one in counts}
