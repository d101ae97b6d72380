"""What computes: GPUs, engines, weights, and whether the detector understands their features."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from monitor.config import Config
from monitor.doctor.findings import Check, good, problem, warning
from monitor.errors import ConcladError
from monitor.jobs.from_config import as_fitted, load_detector, open_engine_of
from monitor.novelty.fingerprint import Fingerprint
from monitor.store import Store


def devices() -> Check:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return good("devices", f"{len(names)} GPUs: {', '.join(names)}")
    cores = len(os.sched_getaffinity(0))
    if find_spec("openvino") is None:
        return warning(
            "devices",
            f"no GPU, {cores} CPU cores; without OpenVINO they embed at two thirds of their speed: "
            "pip install 'conclad-monitor[openvino]'",
        )
    return good("devices", f"no GPU, {cores} CPU cores with OpenVINO")


def backbone(config: Config, store: Store | None) -> Iterator[Check]:
    """Load the weights, start the engine, embed one black image, ask the detector."""
    try:
        fitted = config if store is None else as_fitted(config, store)
        with open_engine_of(fitted) as engine:
            size = engine.backbone.preprocessing.size
            black = np.zeros((1, size, size, 3), np.uint8)
            engine.embed(black)
            began = time.perf_counter()
            engine.embed(black)
            seconds = time.perf_counter() - began
            fingerprint = engine.fingerprint
            yield good(
                "backbone",
                f"{fingerprint.backbone} on {engine.runtime} in {fingerprint.precision} at {size} "
                f"px, {fingerprint.dimension} features, {seconds * 1000:.0f} ms for a single image",
            )
    except ConcladError as error:
        yield problem("backbone", str(error))
        return
    if store is not None:
        yield from _detector(store, fingerprint)


def _detector(store: Store, fingerprint: Fingerprint) -> Iterator[Check]:
    with store.reading() as tx:
        version = tx.versions.current()
    if version is None:
        return
    try:
        detector = load_detector(store, version, fingerprint)
    except ConcladError as error:
        yield problem("detector", str(error))
    else:
        yield good(
            "detector",
            f"version {version.number} knows {len(detector.classes)} classes and understands "
            "these features",
        )
