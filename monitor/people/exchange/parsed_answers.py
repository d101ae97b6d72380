"""What was read from a file of answers, and what became of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

from monitor.people.answer_questions import MOST_AT_ONCE, Fate, Receipt, Said, give
from monitor.store.repository import chunks
from monitor.store.store import Store


@dataclass(frozen=True, slots=True)
class Problem:
    """A record that is no answer, and where it stands."""

    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The answers of a file, in order; ``left`` counts records that leave their question open."""

    said: tuple[tuple[str, Said], ...]
    problems: tuple[Problem, ...] = ()
    left: int = 0


@dataclass(frozen=True, slots=True)
class Imported:
    """The result, record by record."""

    receipts: tuple[tuple[str, Receipt], ...]
    problems: tuple[Problem, ...]
    left: int

    @property
    def counts(self) -> dict[str, int]:
        """How many went which way; ``unreadable`` and ``left open`` besides the fates."""
        fates = Counter(str(receipt.fate) for _, receipt in self.receipts)
        return {
            **{str(fate): fates.get(str(fate), 0) for fate in Fate},
            "unreadable": len(self.problems),
            "left open": self.left,
        }

    @property
    def whole(self) -> bool:
        """Whether every record was understood and taken."""
        return not self.problems and all(r.fate is not Fate.REFUSED for _, r in self.receipts)


def take_in(store: Store, parsed: Parsed, *, who: str, content: bytes) -> Imported:
    """Record the answers of a file; the same file again changes nothing.

    The file's own hash makes the ids, so an import that died half way is simply repeated.
    """
    name = hashlib.sha256(who.encode() + b"\0" + content).hexdigest()[:32]
    receipts: list[tuple[str, Receipt]] = []
    for number, piece in enumerate(chunks(parsed.said, MOST_AT_ONCE)):
        found = give(store, [one for _, one in piece], who=who, action=f"{name}-{number}")
        receipts += [(where, receipt) for (where, _), receipt in zip(piece, found, strict=True)]
    return Imported(tuple(receipts), parsed.problems, parsed.left)
