"""What people have said about a pool so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from monitor.novelty.arrays import Ints
from monitor.novelty.detector import Detector
from monitor.novelty.errors import InvalidAnswer


class PoolAnswers:
    """Answers by sample, sorted into known classes and new ones. Immutable.

    A new class is one whose name (or id) the detector does not have. ``None`` stands for a
    sample that nobody could tell: it is not asked again and teaches nothing.
    """

    def __init__(self, known: Mapping[str, int], given: Mapping[int, str | None]) -> None:
        self._known = known
        self._given = dict(given)

    @classmethod
    def none(cls, detector: Detector) -> PoolAnswers:
        """Before the first answer; the detector says which classes are known."""
        known = {c.name: i for i, c in enumerate(detector.classes)}
        known |= {c.id: i for i, c in enumerate(detector.classes) if c.id not in known}
        return cls(known, {})

    def __len__(self) -> int:
        return len(self._given)

    def plus(self, samples: Iterable[int], answers: Sequence[str | None]) -> PoolAnswers:
        """With one more round of answers."""
        asked = [int(s) for s in samples]
        if len(asked) != len(answers):
            raise InvalidAnswer(f"{len(asked)} samples were asked about, {len(answers)} answered")
        cleaned = [a if a is None else a.strip() for a in answers]
        if "" in cleaned:
            raise InvalidAnswer("an answer is an empty name; use None for 'cannot tell'")
        return PoolAnswers(self._known, self._given | dict(zip(asked, cleaned, strict=True)))

    @property
    def asked(self) -> Ints:
        """Every sample that was asked about, in order."""
        return np.fromiter(self._given, dtype=np.intp, count=len(self._given))

    @property
    def told(self) -> dict[int, str]:
        """Samples with an answer that names a class."""
        return {i: name for i, name in self._given.items() if name is not None}

    @property
    def new_names(self) -> list[str]:
        """Names that the detector does not have, sorted."""
        return sorted({name for name in self.told.values() if name not in self._known})

    def new(self) -> dict[str, list[int]]:
        """Samples of each new class, by its name."""
        return {n: [i for i, a in self.told.items() if a == n] for n in self.new_names}

    def known(self) -> dict[int, int]:
        """Samples answered as known, and the position of their class."""
        return {i: self._known[a] for i, a in self.told.items() if a in self._known}

    def unasked(self, count: int) -> np.ndarray:
        """True for each of ``count`` samples that has not been asked about."""
        free = np.ones(count, dtype=bool)
        free[self.asked] = False
        return free
