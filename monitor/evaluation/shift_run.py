"""Runs the measurements of drift against novelty; an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import monitor.novelty
from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.engine import open_engine
from monitor.evaluation.results_store import read_json, write_json
from monitor.evaluation.shift import ShiftPlan, ShiftWorld, measure
from monitor.evaluation.shift_data import Lottery, ShiftedFeatures, seen_through
from monitor.evaluation.shift_feeds import Record
from monitor.feed.input_contract import Columns
from monitor.feed.labelled_dataset import embed_dataset

Progress = Callable[[str], None]

# Images of each class that are embedded for every corruption and severity.
PER_CLASS = 120
# What a clean feed is called among corruptions.
_CLEAN = ("none", 0)


def run_shift(
    path: Path,
    plan: ShiftPlan,
    out: Path,
    *,
    corruptions: Sequence[str],
    severities: Sequence[int],
    seeds: Sequence[int],
    label_column: str = "label",
    backbone: str = "embedded",
    progress: Progress = lambda text: None,
) -> list[Record]:
    """Embed a dataset clean and through every fault, and measure each of them with every seed.

    Features are cached, and the records of each fault are kept under ``out``; what was measured
    with the same plan, data and code is not measured again.
    """
    with open_engine(load_backbone(BackboneSpec.parse(backbone))) as engine:
        lottery = Lottery(PER_CLASS, seed=0)
        progress(f"embedding {path}")
        embedded = embed_dataset([path], engine, columns=Columns(label=label_column), seen=lottery)
        clean = ShiftedFeatures(
            embedded.features, np.array([str(label) for label in embedded.labels])
        )
        drawn = np.array([image.row for image in lottery.drawn], dtype=np.intp)
        worlds = [ShiftWorld(clean, drawn, plan, seed) for seed in seeds]
        kept = _Kept(out / "cells", _digest(plan, clean))
        faults = [_CLEAN, *((c, s) for c in corruptions for s in severities)]
        records: list[Record] = []
        for number, (corruption, severity) in enumerate(faults, start=1):
            told = f"{corruption} at severity {severity} ({number} of {len(faults)})"
            left = [w for w in worlds if kept.read(corruption, severity, w.seed) is None]
            seen = None
            if left and (corruption, severity) != _CLEAN:
                progress(f"embedding {told}")
                seen = seen_through(lottery.drawn, engine, corruption, severity)
            for world in left:
                progress(f"measuring {told}, seed {world.seed}")
                tags = {"dataset": path.stem, "corruption": corruption, "severity": severity}
                found = measure(world, seen, {**tags, "seed": world.seed})
                kept.write(corruption, severity, world.seed, found)
            for world in worlds:
                records += kept.read(corruption, severity, world.seed) or []
    return records


@dataclass(frozen=True, slots=True)
class _Kept:
    """The records of each fault and seed, as files that only the same measurement believes."""

    folder: Path
    digest: str

    def read(self, corruption: str, severity: int, seed: int) -> list[Record] | None:
        stored = read_json(self._path(corruption, severity, seed))
        if not isinstance(stored, dict) or stored.get("digest") != self.digest:
            return None
        records: list[Record] = stored["records"]
        return records

    def write(self, corruption: str, severity: int, seed: int, records: list[Record]) -> None:
        path = self._path(corruption, severity, seed)
        write_json(path, {"digest": self.digest, "records": records})

    def _path(self, corruption: str, severity: int, seed: int) -> Path:
        return self.folder / f"{corruption}-{severity}-{seed}.json"


def _digest(plan: ShiftPlan, clean: ShiftedFeatures) -> str:
    """Changes with whatever could change a figure: the plan, the data, and the code."""
    digest = hashlib.sha256(json.dumps([asdict(plan), PER_CLASS]).encode())
    digest.update(clean.features.tobytes())
    digest.update("\n".join(clean.labels.tolist()).encode())
    mathematics = Path(monitor.novelty.__path__[0]).rglob("*.py")
    for file in sorted([*mathematics, *Path(__file__).parent.glob("shift*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()
