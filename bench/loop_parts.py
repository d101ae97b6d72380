"""What each part of the robust inner loop is worth: one switched off at a time.

``python -m bench.loop_parts --features F.npz`` draws pools of which a third is new, two classes at
a time, and shows the AUROC of new against known images that were not in the pool, how many new
classes were found, and how many pseudo-labels were right. The last column repeats it with the known
half of the pool moved in one common direction, as a dirty lens would.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from monitor.evaluation.labelled_features import load_features
from monitor.evaluation.methods.ablations import ABLATIONS
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import drive, inner_loop
from monitor.novelty.robust.robust_settings import RobustSettings

KNOWN, NEW = 4, 2
# Images of each class in the pool, and as many that are not.
KNOWN_IN_POOL, NEW_IN_POOL = 100, 100
# The common displacement, in deviations of each feature, with signs by chance.
SHIFT = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--features", type=Path, action="append", required=True)
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--labelled", type=int, default=100)
    parser.add_argument("--budget", type=int, default=12)
    options = parser.parse_args()
    parts: dict[str, Mapping[str, Any]] = {"robust": {}}
    parts |= {name: changes for name, (_, changes) in ABLATIONS["robust"].items()}
    for path in options.features:
        data = load_features(path)
        labels = np.asarray(data.labels)
        print(f"{data.dataset}: {options.draws} draws, {options.budget} questions")
        print("| part | AUROC | classes found | pseudo-labels right | AUROC, shifted |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for part, changes in parts.items():
            settings = RobustSettings().replace(**changes)
            rows = [
                _draw(data.features, labels, seed, settings, options)
                for seed in range(options.draws)
            ]
            v = 100 * np.nanmean(rows, axis=0)
            line = f"| {part} | {v[0]:.1f} | {v[1]:.0f}% | {v[2]:.0f}% | {v[3]:.1f} |"
            print(line, flush=True)


def _draw(
    features: np.ndarray,
    labels: np.ndarray,
    seed: int,
    settings: RobustSettings,
    options: argparse.Namespace,
) -> list[float]:
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(labels))[: KNOWN + NEW]
    rows = {c: rng.permutation(np.flatnonzero(labels == c)) for c in classes}
    fitted = np.concatenate([rows[c][: options.labelled] for c in classes[:KNOWN]])
    later = {c: rows[c][options.labelled if c in classes[:KNOWN] else 0 :] for c in classes}
    counts = {c: KNOWN_IN_POOL if c in classes[:KNOWN] else NEW_IN_POOL for c in classes}
    pool = np.concatenate([later[c][: counts[c]] for c in classes])
    test = np.concatenate([later[c][counts[c] : 2 * counts[c]] for c in classes])
    detector = Detector.fit(features[fitted], labels[fitted].tolist(), settings=settings, seed=seed)
    found, right, plain = _loop(detector, features[pool], labels[pool], features[test], options)
    truth = np.isin(labels[test], classes[KNOWN:])
    spread = features[pool].std(axis=0) * SHIFT * rng.choice([-1, 1], features.shape[1])
    moved, moved_test = features[pool].copy(), features[test].copy()
    moved[np.isin(labels[pool], classes[:KNOWN])] += spread
    moved_test[~truth] += spread
    *_, shifted = _loop(detector, moved, labels[pool], moved_test, options)
    return [
        float(roc_auc_score(truth, plain)),
        found,
        right,
        float(roc_auc_score(truth, shifted)),
    ]


def _loop(
    detector: Detector,
    pool: np.ndarray,
    labels: np.ndarray,
    test: np.ndarray,
    options: argparse.Namespace,
) -> tuple[float, float, np.ndarray]:
    loop = inner_loop(detector, pool, budget=options.budget)
    update = drive(loop, lambda i: str(labels[i]))
    right = [labels[p.sample] == d.name for d in update.discoveries for p in d.pseudo]
    found = len(update.discoveries) / NEW
    return found, float(np.mean(right)) if right else float("nan"), update.score(test)


if __name__ == "__main__":
    main()
