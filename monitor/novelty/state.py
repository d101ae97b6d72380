"""A detector as named arrays and plain values, and back: what a snapshot stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from monitor.novelty.detector import Calibration, Detector, KnownClass
from monitor.novelty.errors import InvalidDetector
from monitor.novelty.fingerprint import Fingerprint
from monitor.novelty.settings import Settings
from monitor.novelty.subspace import Subspace


def to_state(detector: Detector) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays by name, and everything else as JSON values."""
    arrays: dict[str, np.ndarray] = {}
    classes = []
    for known in detector.classes:
        arrays[f"{known.id}.reserve"] = known.reserve
        for i, mode in enumerate(known.modes):
            arrays[f"{known.id}.{i}.mean"] = mode.mean
            arrays[f"{known.id}.{i}.basis"] = mode.basis
        classes.append(
            {
                "id": known.id,
                "name": known.name,
                "origin": known.origin,
                "human": known.human,
                "pseudo": known.pseudo,
                "modes": [mode.count for mode in known.modes],
            }
        )
    return arrays, {
        "classes": classes,
        "calibration": asdict(detector.calibration),
        "fingerprint": detector.fingerprint.to_dict(),
        "settings": detector.settings.to_dict(),
    }


def from_state(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Detector:
    """The detector that :func:`to_state` described, bit for bit."""
    try:
        fingerprint = Fingerprint.from_dict(meta["fingerprint"])
        classes = tuple(_known_class(arrays, entry) for entry in meta["classes"])
        detector = Detector(
            classes=classes,
            calibration=Calibration(**meta["calibration"]),
            fingerprint=fingerprint,
            settings=Settings.from_dict(meta["settings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidDetector(f"the stored detector is incomplete: {error!r}") from None
    for known in classes:
        widths = {known.reserve.shape[1:], *((m.dimension,) for m in known.modes)}
        widths |= {m.basis.shape[1:] for m in known.modes}
        if widths != {(fingerprint.dimension,)} or not known.modes:
            raise InvalidDetector(
                f"the stored class {known.name!r} does not have {fingerprint.dimension} features"
            )
    return detector


def _known_class(arrays: Mapping[str, np.ndarray], entry: Mapping[str, Any]) -> KnownClass:
    id = entry["id"]
    return KnownClass(
        id=id,
        name=entry["name"],
        modes=tuple(
            Subspace(arrays[f"{id}.{i}.mean"], arrays[f"{id}.{i}.basis"], count)
            for i, count in enumerate(entry["modes"])
        ),
        reserve=arrays[f"{id}.reserve"],
        origin=entry["origin"],
        human=entry["human"],
        pseudo=entry["pseudo"],
    )
