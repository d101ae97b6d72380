"""Verdicts on single images of a shifted source: judged with the shift taken back.

A pool that shows a shift also says how large it is. From then on, and before anybody is asked, the
shift is subtracted from every image of that source. Shift blurs as well as moves, so corrected
images still look more unusual than clean ones; their scores are eased until no more of the pool
lies above T_inner than known images do elsewhere. Most of a source's images are known, and where
they are not, the pool itself is asked about. Only images taken after the shift began are corrected.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.novelty.arrays import Floats, as_features
from monitor.novelty.detector import Calibration, Detector, Scores
from monitor.novelty.drift.sketch import Sketch


@dataclass(frozen=True, slots=True, eq=False)
class ShiftCorrection:
    """How the images of one source are judged while it is shifted.

    ``shift`` is subtracted from their features, ``ease`` multiplies their scores. ``strength`` is
    the length of the shift, where one is the spread within a class. Images that were taken until
    ``since`` (POSIX seconds) are judged as they are; None if the source was never seen otherwise.
    """

    shift: Floats
    ease: float
    strength: float
    since: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON, to the last bit: a verdict must not depend on who read it back."""
        shift = np.ascontiguousarray(self.shift, dtype="<f4").tobytes()
        return {
            "shift": base64.b64encode(shift).decode("ascii"),
            "ease": self.ease,
            "strength": self.strength,
            "since": self.since,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ShiftCorrection:
        """What :meth:`to_json` gave."""
        shift = np.frombuffer(base64.b64decode(data["shift"]), dtype="<f4").astype(np.float32)
        return cls(shift, data["ease"], data["strength"], data["since"])


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
    >>> corrected = score_corrected(detector, dirty, [found] * 240)
    >>> [round(float(scores.novel.mean()), 1) for scores in (detector.score(dirty), corrected)]
    [1.0, 0.2]
    """
    settings, detector = sketch.settings, sketch.detector
    shift = sketch.shift(features)
    scores = detector.score(features - shift).score
    t_inner = detector.calibration.t_inner
    limit = Calibration.at_rate(scores, settings.corrected_novel).t_inner
    ease = float(np.clip(t_inner / limit, 1 / settings.eased_most, 1.0))
    return ShiftCorrection(shift, ease, strength, since)


def score_corrected(
    detector: Detector, features: Floats, corrections: Sequence[ShiftCorrection | None]
) -> Scores:
    """Judge a batch, each row with the correction of its source; None leaves a row as it is."""
    if not any(corrections):
        return detector.score(features)
    x = as_features(features, dimension=detector.dimension).copy()
    ease = np.ones(len(x), dtype=np.float32)
    for row, correction in enumerate(corrections):
        if correction is not None:
            x[row] -= correction.shift
            ease[row] = correction.ease
    return detector.score(x, ease=ease)
