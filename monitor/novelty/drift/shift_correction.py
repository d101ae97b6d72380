"""Verdicts on single images of a shifted source: judged with the shift corrected.

A pool that shows a shift also says how large it is. From then on, and before anybody is asked, the
shift is subtracted from every image of that source. Shift blurs as well as moves, so corrected
images still look more unusual than clean ones; their scores are eased until no more of the pool
lies above T_inner than known images do elsewhere. Most of a source's images are known, and where
they are not, the pool itself is asked about. Only images taken after the shift began are corrected,
and of these only those that are shifted: when the lens is clean again, nobody has to say so.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.novelty.array_types import Bools, Floats
from monitor.novelty.detector import Calibration, Detector, Scores
from monitor.novelty.drift.sketch import Sketch


@dataclass(frozen=True, slots=True, eq=False)
class ShiftCorrection:
    """How the images of one source are judged while it is shifted.

    ``shift`` is subtracted from their features, ``ease`` multiplies their scores. ``axis`` measures
    how far an image lies along the shift from the mean of its class: zero for clean images, one
    where it is corrected in full. ``strength`` is the length of the shift, where one is the spread
    within a class. Images that were taken until ``since`` (POSIX seconds) are judged as they are;
    None if the source was never seen otherwise.
    """

    shift: Floats
    axis: Floats
    ease: float
    strength: float
    since: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON, to the last bit: a verdict must not depend on who read it back."""
        return {
            "shift": _text(self.shift),
            "axis": _text(self.axis),
            "ease": self.ease,
            "strength": self.strength,
            "since": self.since,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ShiftCorrection:
        """What :meth:`to_json` gave."""
        shift, axis = _vector(data["shift"]), _vector(data["axis"])
        return cls(shift, axis, data["ease"], data["strength"], data["since"])


def _text(vector: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")


def _vector(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float32)


def correction_of(
    sketch: Sketch, features: Floats, *, strength: float, since: float | None = None
) -> ShiftCorrection:
    """From the part of a pool that comes from one shifted source.

    >>> rng = np.random.default_rng(0)
    >>> means = 9 * np.eye(12)[:3]
    >>> x = np.concatenate([rng.normal(c, 1, size=(80, 12)) for c in means]).astype("f")
    >>> detector = Detector.fit(x, ["a"] * 80 + ["b"] * 80 + ["c"] * 80)
    >>> dirty = x + np.array([3, -3] * 6, dtype="f")
    >>> found = correction_of(Sketch.of(detector), dirty, strength=1.0)
    >>> corrected, _ = score_corrected(detector, dirty, [found] * 240)
    >>> [round(float(scores.novel.mean()), 1) for scores in (detector.score(dirty), corrected)]
    [1.0, 0.2]
    """
    settings, detector = sketch.settings, sketch.detector
    shift = sketch.shift(features)
    scores = detector.score(features - shift).score
    t_inner = detector.calibration.t_inner
    limit = Calibration.at_rate(scores, settings.corrected_novel).t_inner
    ease = float(np.clip(t_inner / limit, 1 / settings.eased_most, 1.0))
    # In the directions in which classes vary, each in units of its spread: there a shift stands out
    # most from what images of a class have anyway.
    axis = sketch.directions @ (shift @ sketch.directions)
    length = float(axis @ shift)
    axis = axis / (length * settings.corrected_fully) if length > 0 else axis
    return ShiftCorrection(shift, axis.astype(np.float32), ease, strength, since)


def score_corrected(
    detector: Detector, features: Floats, corrections: Sequence[ShiftCorrection | None]
) -> tuple[Scores, Bools]:
    """Judge a batch, each row with the correction of its source; None leaves a row as it is.

    An image that lies part of the way along the shift is corrected in part. Also says which rows
    were corrected by at least half.
    """
    corrected = np.zeros(len(features), dtype=bool)
    rows = [row for row, correction in enumerate(corrections) if correction is not None]
    if not rows:
        return detector.score(features), corrected
    x = detector.checked(features)
    used = [corrections[row] for row in rows]
    moved = x[rows] - np.stack([one.shift for one in used if one is not None])
    nearest = detector.score(moved).nearest
    means = np.stack([known.modes[0].mean for known in detector.classes])
    axes = np.stack([one.axis for one in used if one is not None])
    along = np.einsum("ij,ij->i", x[rows] - means[nearest], axes)
    part = np.clip(along, 0.0, 1.0)
    mixed, ease = x.copy(), np.ones(len(x), dtype=np.float32)
    mixed[rows] += part[:, None] * (moved - x[rows])
    ease[rows] = np.array([one.ease for one in used if one is not None]) ** part
    corrected[rows] = part >= 0.5
    return detector.score(mixed, ease=ease), corrected
