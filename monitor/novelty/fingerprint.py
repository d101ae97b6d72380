"""What made the features: a detector only understands features of its own backbone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Everything that changes a feature vector for the same image.

    Two runs with equal fingerprints produce interchangeable features. Precision is part of
    it because bfloat16 moves a feature by a tenth of its length, which is more than the distance
    between T_inner and many known samples.

    >>> f = Fingerprint("embedded", "00" * 32, "{}", 1280, "float32")
    >>> f == Fingerprint(**asdict(f))
    True
    >>> len(f.digest())
    64
    """

    backbone: str
    weights: str
    preprocessing: str
    dimension: int
    precision: str

    def digest(self) -> str:
        """A stable name for this combination, usable as a cache key."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def of_features(cls, dimension: int) -> Fingerprint:
        """For features that somebody else computed: only their width is known."""
        return cls("precomputed", "", "{}", dimension, "float32")

    @property
    def input_size(self) -> int | None:
        """Height and width of what the backbone sees; None for features computed elsewhere."""
        size = json.loads(self.preprocessing).get("size")
        return None if size is None else int(size)

    def difference(self, other: Fingerprint) -> str:
        """The fields in which the two differ, as a person would say it; empty when equal."""
        mine, theirs = asdict(self), asdict(other)
        return ", ".join(
            f"{key} {mine[key]!r} against {theirs[key]!r}"
            for key in mine
            if mine[key] != theirs[key]
        )
