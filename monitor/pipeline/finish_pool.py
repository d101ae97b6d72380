"""The end of a pool: a settled verdict for each of its images, and what its classes learn from it.

The answers of the pool decide together with its images; see
:mod:`monitor.novelty.settled_verdicts`. :mod:`monitor.pipeline.pool_results` commits what is found
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from monitor.novelty.array_types import Floats
from monitor.novelty.class_growth import GrownClass, grow_classes
from monitor.novelty.detector import Detector
from monitor.novelty.settled_verdicts import SettledVerdicts, settle_pool
from monitor.novelty.trigger.measure_pool_novelty import Measure, measure_novelty
from monitor.pipeline.version_gate import GateReport, compare_versions


@dataclass(frozen=True, slots=True, eq=False)
class SettlementInput:
    """A pool that is over.

    ``answers`` holds class ids by sample. ``taken`` are the samples that the pool's own
    discoveries were fitted on. ``confirmable`` are the classes that enough people have named; None
    if one person is enough. ``grown`` says that the pool has taught its classes before.
    """

    pool_id: int
    answers: Mapping[int, str | None]
    sources: tuple[str, ...]
    shifted: tuple[str, ...]
    seed: int
    taken: frozenset[int] = frozenset()
    confirmable: frozenset[str] | None = None
    grown: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PoolSettlement:
    """What became of the images of a pool, and of its classes.

    ``detector`` knows what the pool taught; None if that is nothing.
    """

    settled: SettledVerdicts
    grown: tuple[GrownClass, ...] = ()
    detector: Detector | None = None
    gate_report: GateReport | None = field(default=None)


def settle(
    state: SettlementInput,
    base: Detector,
    current: Detector,
    features: Floats,
    *,
    measure: Measure = measure_novelty,
) -> PoolSettlement:
    """Settle a pool with ``base``, the detector that it was asked about with.

    What it teaches goes to ``current``, which may have moved on meanwhile.
    """
    settled = settle_pool(
        base,
        features,
        state.answers,
        sources=state.sources,
        shifted=state.shifted,
        seed=state.seed,
        measure=measure,
    )
    growth = None
    if not state.grown:
        # What a shifted source shows would teach its classes the shift: that is learnt apart, as
        # a mode of its own.
        apart = np.flatnonzero(np.isin(np.array(state.sources), state.shifted))
        growth = grow_classes(
            current,
            features,
            settled,
            state.answers,
            taken=state.taken.union(apart.tolist()),
            confirmable=state.confirmable,
            seed=state.seed,
        )
    if growth is None:
        return PoolSettlement(settled)
    report = compare_versions(current, growth.detector)
    return PoolSettlement(settled, growth.grown, growth.detector, report)
