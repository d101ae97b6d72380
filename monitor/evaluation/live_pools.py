"""Pool after pool with the same new classes: does the monitor get better at them?

Beside it stands a linear discriminant that is given every label: of the labelled images, and of
all images of the pools before.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.evaluation.every_label import LinearDiscriminant
from monitor.evaluation.live_feed import Floats, LivePool
from monitor.evaluation.live_monitor import Taken
from monitor.novelty.settled_verdicts import NEW

# Pools that are compared: later ones change little, and a discriminant costs a second each time.
_MOST = 5


class PoolByPool:
    """What the verdicts of each pool with new images are worth, in the order of the pools."""

    def __init__(self, new: Collection[str], features: Floats, names: Collection[str]) -> None:
        self._new = sorted(new)
        self._features, self._labels = [features], [np.array([*names], dtype=np.str_)]
        self._rows: list[dict[str, Any]] = []

    def watch(self, pool: LivePool, taken: Taken, number: int) -> None:
        """Judge the verdicts on a pool; later its labels teach the discriminant."""
        if pool.clean or number > _MOST:
            return
        new = np.isin(pool.labels, self._new)
        settled = taken.settled_names
        told = (np.array(taken.settled.verdicts) == NEW) | np.isin(settled, self._new)
        names = np.array([c.name for c in taken.detector.classes])
        nearest = names[taken.verdicts.nearest]
        self._rows.append(
            {
                "pool": number,
                "questions": taken.questions,
                "recall_settled": _share(told[new]),
                "false_settled": _share(told[~new]),
                "right_new_settled": _share((settled == pool.labels)[new]),
                "right_known_settled": _share((settled == pool.labels)[~new]),
                "right_new_immediate": _share((nearest == pool.labels)[new]),
                "right_new_discriminant": self._discriminant(pool, new) if number > 1 else None,
            }
        )
        self._features.append(pool.features)
        self._labels.append(pool.labels)

    def record(self) -> list[dict[str, Any]]:
        """A row for each of the first pools that held new images."""
        return self._rows

    def _discriminant(self, pool: LivePool, new: NDArray[np.bool_]) -> float | None:
        """How often it is right about the new images of a pool that it has not seen."""
        if not new.any():
            return None
        line = LinearDiscriminant.fit(np.concatenate(self._features), np.concatenate(self._labels))
        return _share(line.told(pool.features[new]) == pool.labels[new])


def _share(of: NDArray[np.bool_]) -> float | None:
    return float(of.mean()) if len(of) else None
