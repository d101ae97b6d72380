"""What do wrong answers make invisible?

    python -m bench.poisoning --data ../shared/data/eurosat.parquet

A pool shows known classes, a new class that somebody wants to hide, and another new one. Some of
the answers about the hidden class are lies: a made-up name, or the name of a known class; all
others are true. Every row says over all draws how often the lie became a confirmed class, and how
many images of the hidden class, seen afterwards, are called known under a name that is not theirs,
beside how many were before anybody answered. Without ``--data`` it takes scikit-learn's digits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.labelled import labelled
from monitor.evaluation.labelled_features import load_features
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import drive, inner_loop
from monitor.pipeline.finish_pool import SettlementInput, settle

KNOWN = 4
FITTED, EACH, HIDDEN, TESTED = 80, 60, 50, 60
BUDGET = 24
# Of several annotators, so many must name a class (labels.confirm_people).
CONFIRM_PEOPLE = 2
DECOY = "a made-up name"


@dataclass(frozen=True, slots=True, eq=False)
class PoisonedPool:
    """One draw: a detector, a pool with its truth, and unseen images of the hidden class."""

    detector: Detector
    features: Floats
    truth: tuple[str, ...]
    hidden: str
    unseen: Floats

    @classmethod
    def draw(cls, x: Floats, y: np.ndarray, *, far: bool, seed: int) -> PoisonedPool:
        rng = np.random.default_rng(seed)
        names = rng.permutation(np.unique(y))
        known, rest = names[:KNOWN], names[KNOWN:]
        means = {name: x[y == name].mean(axis=0) for name in names}
        away = [min(np.linalg.norm(means[n] - means[k]) for k in known) for n in rest]
        order = np.argsort(away)
        hidden = str(rest[order[-1 if far else 0]])
        other = str(rest[order[len(order) // 2]])
        rows = {str(n): rng.permutation(np.flatnonzero(y == n)) for n in names}
        fit = np.concatenate([rows[str(n)][:FITTED] for n in known])
        detector = Detector.fit(x[fit], [str(n) for n in y[fit]], seed=seed)
        parts = [rows[str(n)][FITTED : FITTED + EACH] for n in known]
        parts += [rows[hidden][:HIDDEN], rows[other][:HIDDEN]]
        pool = rng.permutation(np.concatenate(parts))
        unseen = x[rows[hidden][HIDDEN : HIDDEN + TESTED]]
        return cls(detector, x[pool], tuple(str(n) for n in y[pool]), hidden, unseen)


def poisoned(
    pool: PoisonedPool, lies: int, people: int, *, made_up: bool, seed: int
) -> tuple[bool, float, float]:
    """Whether the lie was confirmed, and what is invisible before and after."""
    ids = {known.name: known.id for known in pool.detector.classes}
    lie = DECOY if made_up else next(iter(ids))
    said: dict[int, str | None] = {}
    by: dict[str, set[int]] = {}
    told = 0

    def answer(row: int) -> str:
        nonlocal told
        person, name = len(said) % people, pool.truth[row]
        # One of them lies, the first, as often as it can.
        if person == 0 and name == pool.hidden and told < lies:
            told, name = told + 1, lie
        said[row] = ids.get(name, name)
        by.setdefault(name, set()).add(person)
        return name

    update = drive(inner_loop(pool.detector, pool.features, budget=BUDGET, seed=seed), answer)
    enough = None if people < CONFIRM_PEOPLE else _named_by(by, CONFIRM_PEOPLE, ids)
    found = tuple(
        replace(d, confirmed=d.confirmed and (enough is None or d.name in enough))
        for d in update.discoveries
    )
    names = [d.name for d in found]
    learnt = replace(update, discoveries=found).apply(
        pool.detector, pool.features, ids=names, seed=seed
    )
    state = SettlementInput(
        pool_id=1,
        answers=said,
        sources=("",) * len(pool.truth),
        shifted=(),
        seed=seed,
        taken=frozenset(i for d in found for i in d.samples),
        confirmable=enough,
    )
    after = settle(state, pool.detector, learnt, pool.features).detector or learnt
    confirmed = any(c.id == DECOY and c.confirmed for c in after.classes)
    return confirmed, _invisible(pool.detector, pool), _invisible(after, pool)


def _named_by(by: dict[str, set[int]], people: int, ids: dict[str, str]) -> frozenset[str]:
    return frozenset(ids.get(name, name) for name, who in by.items() if len(who) >= people)


def _invisible(detector: Detector, pool: PoisonedPool) -> float:
    """Of unseen images of the hidden class, those called known under a name that is not theirs."""
    scores = detector.score(pool.unseen)
    names = np.array([known.name for known in detector.classes])[scores.nearest]
    return float((~scores.novel & (names != pool.hidden)).mean())


def table(
    x: Floats, y: np.ndarray, lies: Sequence[int], draws: int, say: Callable[[str], None] = print
) -> None:
    say("| lies | annotators | hidden class | lie | confirmed | invisible before | after |")
    say("| ---: | ---: | --- | --- | ---: | ---: | ---: |")
    for far in (False, True):
        pools = [PoisonedPool.draw(x, y, far=far, seed=seed) for seed in range(draws)]
        for count in lies:
            for people in (1, 3):
                for made_up in (True, False):
                    found = [
                        poisoned(pool, count, people, made_up=made_up, seed=seed)
                        for seed, pool in enumerate(pools)
                    ]
                    confirmed = sum(one[0] for one in found)
                    before, after = (float(np.mean([one[i] for one in found])) for i in (1, 2))
                    say(
                        f"| {count} | {people} | {'far' if far else 'near'} | "
                        f"{'made-up' if made_up else 'known'} | {confirmed} of {draws} | "
                        f"{before:.0%} | {after:.0%} |"
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="labelled images, as for conclad evaluate")
    parser.add_argument("--features", type=Path, help="their features, as for conclad evaluate")
    parser.add_argument("--label-column", default="label")
    parser.add_argument("--lies", type=int, nargs="+", default=[0, 1, 2, 3, 10])
    parser.add_argument("--draws", type=int, default=24)
    options = parser.parse_args()
    if options.features is None:
        x, y = labelled(options.data, options.label_column)
    else:
        given = load_features(options.features)
        x, y = given.features, np.asarray(given.labels)
    table(x, y, options.lies, options.draws, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
