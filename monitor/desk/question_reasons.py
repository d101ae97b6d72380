"""Words for people who are not engineers: why a question is asked, and what a score means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FAR, UNUSUAL = 1.6, 1.2
"""Scores over T_inner from which an image is called very unusual, and unusual. One known image in
twenty exceeds 1.0; 1.2 and 1.6 split what new classes have into about equal parts."""


def score_words(ratio: float) -> str:
    """A score over T_inner, in words.

    >>> [score_words(ratio) for ratio in (0.8, 1.1, 1.3, 2.0)]
    ['looks known', 'a little unusual', 'unusual', 'very unusual']
    """
    if ratio <= 1:
        return "looks known"
    if ratio < UNUSUAL:
        return "a little unusual"
    return "unusual" if ratio < FAR else "very unusual"


def why_asked(
    *,
    source: str,
    ratio: float,
    suspect: str | None,
    is_new: bool,
    nearest: str | None,
    evidence: Mapping[str, Any],
) -> str:
    """Why the monitor asks about this image, in a sentence.

    ``evidence`` is the record of the pool: why people are asked at all.

    >>> why_asked(source="cam-7", ratio=1.4, suspect="quarry", is_new=True, nearest="rock",
    ...           evidence={})
    'Confirms quarry: is it one of them?'
    >>> why_asked(source="cam-7", ratio=1.4, suspect=None, is_new=True, nearest=None,
    ...           evidence={"shifted": ["cam-7"]})
    'Checks cam-7: all its images look different lately. A dirty lens, or something new?'
    """
    if source in evidence.get("shifted", ()):
        return (
            f"Checks {source}: all its images look different lately. A dirty lens, or something "
            "new?"
        )
    if suspect is not None and is_new:
        return f"Confirms {suspect}: is it one of them?"
    if suspect is not None and nearest is not None and suspect != nearest:
        return f"Between two classes: {suspect} or {nearest}?"
    if evidence.get("probe"):
        return "A spot check of a quiet time: one of its most unusual images."
    if suspect is not None:
        return f"Looks like {suspect}, but not sure enough."
    if ratio > 1:
        return "Looks new: nothing known looks like it."
    return "Helps to distinguish the known from the new in this group."
