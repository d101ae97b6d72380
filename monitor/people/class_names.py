"""Names of classes as people type them: tidied, and compared with those there are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from difflib import SequenceMatcher

from monitor.people.errors import BadName

LONGEST = 80
"""Fits a line on a phone and a label of a metric; nobody has needed more for a class."""

ALIKE = 0.8
"""One letter wrong in five is where most slips of the finger lie, and few other words."""

SHORTEST_COMPARED = 4
"""Below that every word is one letter away from another one (car, cat, cap)."""


def clean_name(text: str) -> str:
    """The name as it is kept: composed letters, single spaces, nothing invisible.

    >>> clean_name("  dump   truck ")
    'dump truck'
    """
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if not name:
        raise BadName("a class needs a name of at least one visible character")
    if len(name) > LONGEST:
        raise BadName(f"{name[:20]!r}… has {len(name)} characters; a name has at most {LONGEST}")
    if not name.isprintable():
        raise BadName(f"{name!r}: contains characters that cannot be seen; type it again")
    return name


def alike(name: str, others: Iterable[str]) -> list[str]:
    """Those of the other names that are easily meant instead, the most similar first.

    >>> alike("Trucks", ["truck", "bus", "trunk", "Trucks"])
    ['truck', 'trunk']
    """
    wanted = _key(name)
    scored = [(_likeness(wanted, _key(other)), other) for other in others if other != name]
    close = [(score, other) for score, other in scored if score >= ALIKE]
    return [other for _, other in sorted(close, key=lambda pair: (-pair[0], pair[1]))]


def _likeness(one: str, other: str) -> float:
    if one == other:
        return 1.0
    if min(len(one), len(other)) < SHORTEST_COMPARED:
        return 0.0
    return SequenceMatcher(None, one, other).ratio()


def _key(name: str) -> str:
    """Without case, accents, punctuation, spaces and the plural's s."""
    plain = unicodedata.normalize("NFKD", name.casefold())
    letters = "".join(c for c in plain if not unicodedata.combining(c))
    return re.sub(r"[\W_]+", "", letters).removesuffix("s")
