"""What is remembered of a source between two observations; JSON in both directions."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from monitor.novelty.drift.drift_settings import DriftSettings

ConditionKind = Literal["normal", "accepted", "past"]


@dataclass(frozen=True, slots=True, eq=False)
class Displacement:
    """Sums and counts per group: adding two gives the displacement of both batches.

    >>> one = Displacement(np.ones((6, 2)), np.full(6, 4.0))
    >>> (one + one).counts.tolist()
    [8.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    """

    sums: np.ndarray
    counts: np.ndarray

    def __add__(self, other: Displacement) -> Displacement:
        return Displacement(self.sums + other.sums, self.counts + other.counts)

    @property
    def means(self) -> np.ndarray:
        """The mean displacement of each group."""
        means: np.ndarray = self.sums / np.maximum(self.counts, 1)[:, None]
        return means

    @property
    def total(self) -> float:
        """Samples in all groups."""
        return float(self.counts.sum())

    def to_json(self) -> dict[str, Any]:
        """Rounded: a thousandth of a standard deviation is far below any group's noise."""
        return {"sums": np.round(self.sums, 3).tolist(), "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Displacement:
        """What :meth:`to_json` gave."""
        return cls(np.asarray(data["sums"], float), np.asarray(data["counts"], float))


@dataclass(frozen=True, slots=True, eq=False)
class DriftSignature:
    """The displacement of some pools of a source, and statistics of their images.

    ``images`` of them had statistics; ``sums`` and ``squares`` are sums over these.
    """

    moved: Displacement
    images: float = 0.0
    sums: np.ndarray = field(default_factory=lambda: np.zeros(0))
    squares: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __add__(self, other: DriftSignature) -> DriftSignature:
        if not other.images or not self.images:
            known = self if self.images else other
            return replace(known, moved=self.moved + other.moved)
        return DriftSignature(
            self.moved + other.moved,
            self.images + other.images,
            self.sums + other.sums,
            self.squares + other.squares,
        )

    @property
    def mean(self) -> np.ndarray:
        """Of each statistic over images."""
        mean: np.ndarray = self.sums / max(self.images, 1.0)
        return mean

    @property
    def spread(self) -> np.ndarray:
        """Deviation of each statistic among images."""
        variance = self.squares / max(self.images, 1.0) - self.mean**2
        spread: np.ndarray = np.sqrt(np.maximum(variance, 1e-12))
        return spread

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "moved": self.moved.to_json(),
            "images": self.images,
            "sums": np.round(self.sums, 5).tolist(),
            "squares": np.round(self.squares, 6).tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DriftSignature:
        """What :meth:`to_json` gave."""
        return cls(
            Displacement.from_json(data["moved"]),
            data["images"],
            np.asarray(data["sums"], float),
            np.asarray(data["squares"], float),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """How this source has been: normal by day, normal by night, an accepted or an ended shift."""

    kind: ConditionKind
    signature: DriftSignature
    first: float
    last: float
    pools: int = 1

    def joined(self, seen: DriftSignature, at: float) -> Condition:
        """With one more pool."""
        return replace(self, signature=self.signature + seen, last=at, pools=self.pools + 1)

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **{f: getattr(self, f) for f in _PLAIN_CONDITION},
            "signature": self.signature.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Condition:
        """What :meth:`to_json` gave."""
        return cls(
            signature=DriftSignature.from_json(data["signature"]),
            **{f: data[f] for f in _PLAIN_CONDITION},
        )


_PLAIN_CONDITION = ("kind", "first", "last", "pools")


@dataclass(frozen=True, slots=True)
class CleanEvidence:
    """Mean and spread of the evidence while nothing happens, begun with a guess."""

    pools: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def to_json(self) -> dict[str, float]:
        """As JSON."""
        return {"pools": self.pools, "total": self.total, "squares": self.squares}

    def plus(self, evidence: float) -> CleanEvidence:
        """With one more pool."""
        return CleanEvidence(self.pools + 1, self.total + evidence, self.squares + evidence**2)

    def standard(self, evidence: float, settings: DriftSettings) -> float:
        """Evidence in deviations of what is clean; the guess is its least deviation."""
        pools = self.pools + settings.prior_pools
        mean = self.total / pools
        squares = self.squares + settings.prior_pools * settings.prior_spread**2
        variance = squares / pools - mean**2
        return (evidence - mean) / max(float(np.sqrt(max(variance, 0.0))), settings.prior_spread)


@dataclass(frozen=True, slots=True, eq=False)
class SourceState:
    """All that is remembered of one source.

    ``key`` names what displacements are measured against; when that changes, the source's normal
    conditions are learnt again. ``waiting`` holds pools too small to say anything. ``moved`` adds
    up what was seen since ``since``, the moment from which evidence has been gathering.
    """

    key: str
    first: float
    last: float
    pools: int = 0
    conditions: tuple[Condition, ...] = ()
    clean: CleanEvidence = CleanEvidence()
    level: float = 0.0
    since: float | None = None
    moved: DriftSignature | None = None
    waiting: DriftSignature | None = None
    shifted: bool = False
    calm: int = 0

    @property
    def normal(self) -> tuple[Condition, ...]:
        """Conditions that are no shift, accepted ones among them."""
        return tuple(c for c in self.conditions if c.kind != "past")

    @property
    def pools_a_day(self) -> float:
        """How often the source is observed."""
        # At least a day: the first pools of a backlog come in minutes.
        return max(self.pools, 1) / max((self.last - self.first) / 86_400, 1.0)

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "conditions": [c.to_json() for c in self.conditions],
            "clean": self.clean.to_json(),
            "moved": None if self.moved is None else self.moved.to_json(),
            "waiting": None if self.waiting is None else self.waiting.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceState:
        """What :meth:`to_json` gave."""

        def signature(value: Mapping[str, Any] | None) -> DriftSignature | None:
            return None if value is None else DriftSignature.from_json(value)

        return cls(
            **{name: data[name] for name in _PLAIN},
            conditions=tuple(Condition.from_json(c) for c in data["conditions"]),
            clean=CleanEvidence(**data["clean"]),
            moved=signature(data["moved"]),
            waiting=signature(data["waiting"]),
        )


def packed(state: Mapping[str, Any]) -> str:
    """A state as one short text: whoever keeps thousands of them need not know what is inside.

    >>> unpacked(packed({"pools": 3}))
    {'pools': 3}
    """
    # Of a source with few images most numbers are zero, so the quickest level is enough.
    press = zlib.compressobj(1, zdict=_COMMON)
    return b64encode(press.compress(json.dumps(state).encode()) + press.flush()).decode()


def unpacked(text: str) -> dict[str, Any]:
    """What :func:`packed` was given, also by a release that had no common words."""
    expand = zlib.decompressobj(zdict=_COMMON)
    found: dict[str, Any] = json.loads(expand.decompress(b64decode(text)) + expand.flush())
    return found


#: What all states have in common, known to whoever reads them: half of a state with few images.
#: States that were packed with it need it for ever, so it must never change.
_COMMON = (
    b'"sums": [[-0.1, -1.2, -0.3, 0.4, 1.5, 0.6, -0.7, 0.8, -0.9, -0.0, "level": 0.0, "since": n'
    b'ull, "shifted": true, "moved": {"moved": {"sums": [[0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0'
    b'.0, 0.0]], "counts": [1.0, 2.0, 3.0, 4.0, 0.0]}, "images": 1.0, "sums": [], "squares": []}'
    b', {"kind": "accepted", "past", "normal", "first": 17, "last": 17, "pools": 1, "signature":'
    b' {"moved": {"sums": [[{"key": "", "first": 17, "last": 17, "pools": 0, "level": 0.0, "sinc'
    b'e": null, "shifted": false, "calm": 0, "conditions": [], "clean": {"pools": 0.0, "total": '
    b'0.0, "squares": 0.0}, "moved": null, "waiting": {"moved": {"sums": [[0.0, 0.0, 0.0, 0.0, 0'
    b'.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], "counts": [0.0, 0.0, 0.0, 1.0, 0.0, 0.'
    b'0]}, "images": 1.0, "sums": [0.], "squares": [0.'
)
_PLAIN = ("key", "first", "last", "pools", "level", "since", "shifted", "calm")
