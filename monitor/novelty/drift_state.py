"""What is remembered of a source between two observations; JSON in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from monitor.novelty.drift_sketch import Displacement

Kind = Literal["normal", "accepted", "past"]

# Spread of clean evidence before any is seen, and how many pools that guess is worth: measured
# on two datasets at 60 to 200 images a pool.
_PRIOR_SPREAD, _PRIOR_POOLS = 0.3, 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The mean displacement of some pools of a source, and their image statistics.

    ``images`` of them had statistics; ``look`` and ``look_squared`` are sums over these.
    """

    moved: Displacement
    images: float = 0.0
    look: np.ndarray = field(default_factory=lambda: np.zeros(0))
    look_squared: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __add__(self, other: Look) -> Look:
        if not other.images or not self.images:
            known = self if self.images else other
            return replace(known, moved=self.moved + other.moved)
        return Look(
            self.moved + other.moved,
            self.images + other.images,
            self.look + other.look,
            self.look_squared + other.look_squared,
        )

    @property
    def mean(self) -> np.ndarray:
        mean: np.ndarray = self.look / max(self.images, 1.0)
        return mean

    @property
    def spread(self) -> np.ndarray:
        variance = self.look_squared / max(self.images, 1.0) - self.mean**2
        spread: np.ndarray = np.sqrt(np.maximum(variance, 1e-12))
        return spread

    def to_json(self) -> dict[str, Any]:
        return {
            "moved": self.moved.to_json(),
            "images": self.images,
            "look": np.round(self.look, 5).tolist(),
            "look_squared": np.round(self.look_squared, 6).tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Look:
        return cls(
            Displacement.from_json(data["moved"]),
            data["images"],
            np.asarray(data["look"], float),
            np.asarray(data["look_squared"], float),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A look that this source has had: normal by day, normal by night, accepted, or past."""

    kind: Kind
    look: Look
    first: float
    last: float
    pools: int = 1

    def joined(self, look: Look, at: float) -> Condition:
        return replace(self, look=self.look + look, last=at, pools=self.pools + 1)

    def to_json(self) -> dict[str, Any]:
        return {**{f: getattr(self, f) for f in _PLAIN_CONDITION}, "look": self.look.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Condition:
        return cls(look=Look.from_json(data["look"]), **{f: data[f] for f in _PLAIN_CONDITION})


_PLAIN_CONDITION = ("kind", "first", "last", "pools")


@dataclass(frozen=True, slots=True)
class Null:
    """Mean and spread of the evidence while nothing happens, begun with a guess."""

    pools: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def plus(self, evidence: float) -> Null:
        return Null(self.pools + 1, self.total + evidence, self.squares + evidence**2)

    def standard(self, evidence: float) -> float:
        mean = self.total / (self.pools + _PRIOR_POOLS)
        squares = self.squares + _PRIOR_POOLS * _PRIOR_SPREAD**2
        variance = squares / (self.pools + _PRIOR_POOLS) - mean**2
        # Never surer than the guess: a few pools that happen to agree are no reason to be.
        return (evidence - mean) / max(float(np.sqrt(max(variance, 0.0))), _PRIOR_SPREAD)


@dataclass(frozen=True, slots=True, eq=False)
class SourceState:
    """All that is remembered of one source.

    ``key`` names what displacements are measured against; when that changes, the source's normal
    look is learnt anew. ``waiting`` holds pools too small to say anything. ``moved`` adds up what
    was seen since ``since``, the moment from which evidence has been gathering.
    """

    key: str
    first: float
    last: float
    pools: int = 0
    conditions: tuple[Condition, ...] = ()
    null: Null = Null()
    level: float = 0.0
    since: float | None = None
    moved: Look | None = None
    waiting: Look | None = None
    shifted: bool = False
    calm: int = 0

    @property
    def normal(self) -> tuple[Condition, ...]:
        return tuple(c for c in self.conditions if c.kind != "past")

    @property
    def pools_a_day(self) -> float:
        # At least a day: the first pools of a backlog come in minutes.
        return max(self.pools, 1) / max((self.last - self.first) / 86_400, 1.0)

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "conditions": [c.to_json() for c in self.conditions],
            "null": asdict(self.null),
            "moved": None if self.moved is None else self.moved.to_json(),
            "waiting": None if self.waiting is None else self.waiting.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceState:
        def look(value: Mapping[str, Any] | None) -> Look | None:
            return None if value is None else Look.from_json(value)

        return cls(
            **{name: data[name] for name in _PLAIN},
            conditions=tuple(Condition.from_json(c) for c in data["conditions"]),
            null=Null(**data["null"]),
            moved=look(data["moved"]),
            waiting=look(data["waiting"]),
        )


_PLAIN = ("key", "first", "last", "pools", "level", "since", "shifted", "calm")
