"""What answers of "known" teach about shift, within one inner loop.

A person who calls a strange sample known says where its class has gone. If several such answers
point the same way, the other classes have gone there too: every class is given a second, moved
mode, and questions and scores no longer take the shift for news. One answer about one class thus
serves all of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from monitor.novelty.answers import Answers
from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.graph import Space

# Fewer answers cannot agree.
_LEAST = 3
# Mean cosine between the displacements of answered samples from which they agree. On clean pools
# it was -0.03 to 0.03, on shifted ones 0.16 (coarse JPEG) to 0.29 (blur).
_AGREEMENT = 0.1
# Rounds in which samples that fit the shift mend its estimate, which by then has settled; and
# the share of them that is believed, the best fitting first.
_ROUNDS, _BELIEVED = 3, 0.5
# So few samples that fit would mend nothing.
_FEWEST = 10


def taught_shift(detector: Detector, space: Space, pool: Floats, answers: Answers) -> Floats | None:
    """The common shift that answers of "known" agree on, in feature space; None without one."""
    said = answers.known()
    if len(said) < _LEAST:
        return None
    rows = np.fromiter(said, np.intp, len(said))
    means = np.stack([known.modes[0].mean for known in detector.classes])
    moved = pool[rows] - means[np.fromiter(said.values(), np.intp, len(said))]
    if _agreement(moved @ space.matrix) < _AGREEMENT:
        return None
    shift = moved.mean(axis=0)
    points, homes = _unit(space.place(pool)), space.place(means)
    new = _unit(space.place(pool[[row for told in answers.new().values() for row in told]]))
    for _ in range(_ROUNDS):
        places = np.concatenate([_unit(homes), _unit(homes + shift @ space.matrix), new])
        likeness = points @ places.T
        best = likeness.argmax(axis=1)
        fit = np.flatnonzero((best >= len(homes)) & (best < 2 * len(homes)))
        if len(fit) < _FEWEST:
            break
        order = np.argsort(-likeness[fit, best[fit]], kind="stable")
        fit = fit[order[: max(_FEWEST, int(_BELIEVED * len(fit)))]]
        # Half and half: people's answers are few but sure, samples that fit many but guessed.
        shift = (shift + (pool[fit] - means[best[fit] - len(homes)]).mean(axis=0)) / 2
    return np.asarray(shift, dtype=np.float32)


def with_shift(detector: Detector, shift: Floats, *, reserve: bool) -> Detector:
    """Every class also as it looks when shifted; with ``reserve``, held-out samples too.

    For use within a pool: it is an estimate from a few answers, no version to publish.
    """
    classes = [
        replace(
            known,
            modes=(
                *known.modes,
                replace(known.modes[0], mean=(known.modes[0].mean + shift).astype(np.float32)),
            ),
            reserve=np.concatenate([known.reserve, known.reserve + shift]).astype(np.float32)
            if reserve
            else known.reserve,
        )
        for known in detector.classes
    ]
    return Detector.of(classes, fingerprint=detector.fingerprint, settings=detector.settings)


def _agreement(moved: np.ndarray) -> float:
    unit = _unit(moved)
    first, second = np.triu_indices(len(unit), k=1)
    return float(np.einsum("ij,ij->i", unit[first], unit[second]).mean())


def _unit(points: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(points, axis=1, keepdims=True)
    unit: np.ndarray = points / np.maximum(length, 1e-12)
    return unit
