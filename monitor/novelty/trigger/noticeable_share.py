"""What a detector could see: the smallest share of a pool that the trigger would notice.

Nobody knows what will be new, but every known class was new once. So each is left out in turn: a
detector of the others, fitted on half of their references, looks at pools of the other half among
which a few images of the missing class are hidden. How strongly they show, per share and per root
of the number of images, is carried over to the pools and references at hand, for a class that is as
unlike the others as known classes are in the middle.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from monitor.novelty.detector import Detector
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE, measure_novelty
from monitor.novelty.trigger.trigger_decision import MONTH, threshold, together
from monitor.novelty.trigger.trigger_settings import SensitivitySettings

_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The smallest shares noticed with 90% certainty, in one pool and in ten, by the trigger.

    ``references`` is how many references of each class would let a tenth of a pool be noticed,
    where that is a matter of references; None where it is so already, or larger pools are needed.
    """

    pool: int
    one_pool: float
    ten_pools: float
    references: int | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def sensitivity(
    detector: Detector,
    pool: int,
    *,
    false_rounds_per_month: float = 1.0,
    settings: SensitivitySettings | None = None,
    seed: int = 0,
) -> Sensitivity | None:
    """For pools of so many images, one a day; None with fewer than three classes to judge by.

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(m, 1, size=(60, 24)) for m in np.eye(4, 24) * 12])
    >>> found = sensitivity(Detector.fit(x, sorted("abcd" * 60)), 300)
    >>> found is not None and 0 < found.ten_pools <= found.one_pool <= 1
    True
    """
    settings = settings or SensitivitySettings()
    gains = _gains(detector, settings, seed)
    if not len(gains):
        return None
    gain = max(float(np.median(gains)), 1e-6)
    have = len(detector.judged.rows)
    level = false_rounds_per_month * _DAY / MONTH
    needed = threshold(level) + settings.certainty
    one = needed / (gain * _root(pool, have))
    apart = together((1.0,) * 10, pool / (pool + have))
    ten = (threshold(level, 10) + settings.certainty) / apart / (gain * _root(pool, have))
    return Sensitivity(
        pool,
        round(min(one, 1.0), 4),
        round(min(ten, one, 1.0), 4),
        _references_needed(gain * settings.poor / 2, pool, needed, len(detector.classes))
        if one > settings.poor
        else None,
    )


def _root(images: int, references: int) -> float:
    """Two samples are compared as well as one of this size is with something certain."""
    return float(np.sqrt(images * references / max(images + references, 1)))


def _gains(detector: Detector, settings: SensitivitySettings, seed: int) -> np.ndarray:
    """Strength per share and root of images, one for each class that is left out."""
    rng = np.random.default_rng(seed)
    usable = [c for c in detector.classes if len(c.references) >= settings.least]
    gains = []
    for missing in usable[: settings.classes_most] if len(usable) > 2 else []:
        others = [c for c in usable if c is not missing]
        halves = {c.name: rng.permutation(len(c.references)) for c in others}
        halves = {name: rows[: settings.references_most] for name, rows in halves.items()}
        fitted = [(c.name, c.references[halves[c.name][::2]]) for c in others]
        seen = np.concatenate([c.references[halves[c.name][1::2]] for c in others])
        half = Detector.fit(
            np.concatenate([features for _, features in fitted]),
            [name for name, features in fitted for _ in features],
            settings=detector.settings.replace(least=2),
            seed=seed,
        )
        shown: list[tuple[float, float]] = []
        for share in settings.shares:
            hidden = round(share / (1 - share) * len(seen))
            if not settings.hidden_least <= hidden <= len(missing.references):
                continue
            new = missing.references[rng.permutation(len(missing.references))[:hidden]]
            pool = np.concatenate([seen, new])
            strength = measure_novelty(half, pool, seed=seed).strength[EVERYWHERE]
            root = _root(len(pool), len(half.judged.rows))
            shown.append((hidden / len(pool) * root, strength))
        if shown:
            # A line through zero: small shares, which are mostly noise, count little.
            reach, found = np.array(shown).T
            gains.append(float(reach @ found / (reach @ reach)))
    return np.asarray(gains)


def _references_needed(shown: float, pool: int, needed: float, classes: int) -> int | None:
    """References of each class with which a tenth of a pool would be noticed.

    ``shown`` is how strongly that tenth shows, per root of images.
    """
    squared = (needed / shown) ** 2
    if squared >= pool:
        return None
    return int(np.ceil(squared * pool / (pool - squared) / classes))
