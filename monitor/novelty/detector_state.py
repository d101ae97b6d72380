"""A detector as named arrays and plain values, and back: what a snapshot stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from monitor.novelty.detector import Calibration, Detector, KnownClass
from monitor.novelty.errors import InvalidDetector
from monitor.novelty.fingerprint import Fingerprint
from monitor.novelty.presets import settings_from_dict, settings_to_dict
from monitor.novelty.robust.verdict_score import Opinions
from monitor.novelty.subspace import Subspace

# Class ids never begin with this.
_OPINIONS = "opinions."


def to_state(detector: Detector) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays by name, and everything else as JSON values."""
    arrays: dict[str, np.ndarray] = {}
    classes = []
    for known in detector.classes:
        arrays[f"{known.id}.references"] = known.references
        arrays[f"{known.id}.own"] = known.own
        arrays[f"{known.id}.said"] = known.said
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
                "held": known.held,
                "confirmed": known.confirmed,
                "modes": [mode.count for mode in known.modes],
            }
        )
    if detector.opinions is not None:
        arrays |= {f"{_OPINIONS}{k}": v for k, v in detector.opinions.to_arrays().items()}
    return arrays, {
        "classes": classes,
        "calibration": asdict(detector.calibration),
        "fre_calibration": asdict(detector.fre_calibration),
        "fingerprint": asdict(detector.fingerprint),
        "settings": settings_to_dict(detector.settings),
    }


def from_state(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Detector:
    """The detector that :func:`to_state` described, bit for bit."""
    try:
        fingerprint = Fingerprint(**meta["fingerprint"])
        classes = tuple(_known_class(arrays, entry) for entry in meta["classes"])
        detector = Detector(
            classes=classes,
            fre_calibration=Calibration(**meta["fre_calibration"]),
            fingerprint=fingerprint,
            settings=settings_from_dict(meta["settings"]),
            saved=_opinions(arrays),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidDetector(f"the stored detector is incomplete: {error!r}") from None
    for known in classes:
        widths = {known.references.shape[1:], *(m.mean.shape for m in known.modes)}
        widths |= {m.basis.shape[1:] for m in known.modes}
        if widths != {(fingerprint.dimension,)} or not known.modes:
            raise InvalidDetector(
                f"the stored class {known.name!r} does not have {fingerprint.dimension} features"
            )
    return detector


def _opinions(arrays: Mapping[str, np.ndarray]) -> Opinions | None:
    found = {k.removeprefix(_OPINIONS): v for k, v in arrays.items() if k.startswith(_OPINIONS)}
    return Opinions.from_arrays(found) if found else None


def _known_class(arrays: Mapping[str, np.ndarray], entry: Mapping[str, Any]) -> KnownClass:
    id = entry["id"]
    return KnownClass(
        id=id,
        name=entry["name"],
        modes=tuple(
            Subspace(arrays[f"{id}.{i}.mean"], arrays[f"{id}.{i}.basis"], count)
            for i, count in enumerate(entry["modes"])
        ),
        references=arrays[f"{id}.references"],
        own=arrays[f"{id}.own"],
        said=arrays[f"{id}.said"],
        confirmed=entry["confirmed"],
        held=entry["held"],
        origin=entry["origin"],
        human=entry["human"],
        pseudo=entry["pseudo"],
    )
