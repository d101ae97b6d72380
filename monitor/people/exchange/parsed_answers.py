"""What was read from a file of answers, and what became of it."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from monitor.people.answer_questions import Fate, Receipt, Said, give
from monitor.people.errors import BadAnswer, ImportLeft
from monitor.store.store import Store
from monitor.store.tables import chunks

PIECE = 25
"""Answers of an import in one transaction: some tens of milliseconds, then others have a turn."""

LONGEST_PAUSE = 1.0
"""Seconds: a store that takes long for other reasons must not hold up an import for hours."""

MOST_RECORDS = 20_000
"""Records of one file. More come from no project that people label by hand; cut it in parts."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A record that is not an answer, and its place."""

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
        """How many went which way; the fates, ``unreadable`` and ``left open``."""
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


def take_in(
    store: Store,
    parsed: Parsed,
    *,
    who: str,
    content: bytes,
    turn: Callable[[], AbstractContextManager[None]] | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Imported:
    """Record the answers of a file; the same file again changes nothing.

    The file's own hash makes the ids, so an import that died half way is simply repeated. It is
    written in pieces that take milliseconds and ends after the piece during which nobody wants it
    any more. With ``turn`` others write too: each piece waits for its turn, and after it the
    import rests for as long as that took, so that people have half of this process at least
    (the desk's turns come when nobody else is being answered, or after a quarter of a second).
    """
    name = hashlib.sha256(who.encode() + b"\0" + content).hexdigest()[:32]
    receipts: list[tuple[str, Receipt]] = []
    for number, piece in enumerate(chunks(parsed.said, PIECE)):
        if not is_wanted():
            raise ImportLeft(f"the import was left after {len(receipts)} of {len(parsed.said)}")
        began = time.monotonic()
        with turn() if turn else nullcontext():
            found = give(store, [one for _, one in piece], who=who, action=f"{name}-{number}")
        if turn:
            time.sleep(min(time.monotonic() - began, LONGEST_PAUSE))
        receipts += [(where, receipt) for (where, _), receipt in zip(piece, found, strict=True)]
    return Imported(tuple(receipts), parsed.problems, parsed.left)


def question_number(value: object, where: str) -> int:
    """The number of a question, from whatever a file has there.

    >>> question_number("12", "question_id")
    12
    """
    text = str(value).strip()
    if re.fullmatch(r"[0-9]{1,15}", text) is None or isinstance(value, bool):
        raise BadAnswer(f"{where}: {text[:40]!r} is not a number")
    return int(text)
