"""How many images this machine embeds in a second, and what a number of cameras would need.

Measured on noise of the size that the backbone sees: decoding comes on top, a tenth or so for small
images and more than the backbone itself for frames of many megapixels.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from monitor.backbones.backbone import load_backbone
from monitor.backbones.engine import (
    Engine,
    Precision,
    available_threads,
    cheaper_precisions,
    is_on_gpu,
    open_engine,
)
from monitor.config import Config
from monitor.doctor.findings import Check, good, problem
from monitor.errors import ConcladError
from monitor.jobs.from_config import as_fitted, backbone_spec_of
from monitor.store import Store

SECONDS = 1.0
"""For each way: some hundred images on a core, so that one slow moment does not decide."""

SMALLER = 5 / 7
"""Of the backbone's own size, what `conclad fit` takes for small images at the least."""


def speed(config: Config, store: Store | None, cameras: int) -> Iterator[Check]:
    """Every way that this machine can run the backbone, then what the chosen one means."""
    threads = config.backbone.threads or available_threads()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield good("machine", f"{threads} cores for the backbone, {memory:.1f} GB of memory")
    fitted = config if store is None else as_fitted(config, store)
    try:
        found: dict[tuple[str, int], float] = {}
        for precision, size in _ways(fitted):
            with _opened(fitted, precision, size) as engine:
                rate = images_per_second(engine)
                found[engine.fingerprint.precision, size] = rate
            yield good("speed", f"{precision} at {size} px: {rate:.0f} images/s")
    except ConcladError as error:
        yield problem("speed", str(error))
        return
    (computed, size), rate = next(iter(found.items()))
    cores = math.ceil(10 * cameras * threads / rate) / 10
    yield good(
        "cameras",
        f"{cameras:,} cameras with an image a second need {cores:g} cores like these in "
        f"{computed} at {size} px, and decoding them",
    )


def images_per_second(engine: Engine, seconds: float = SECONDS) -> float:
    """By the clock, with every core that the engine has."""
    size = engine.backbone.preprocessing.size
    images = np.random.default_rng(0).integers(0, 256, (engine.batch, size, size, 3), np.uint8)
    engine.embed(images)
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        engine.embed(images)
        done += len(images)
    return done / (time.perf_counter() - began)


def _ways(config: Config) -> list[tuple[Precision, int]]:
    """What the configuration or its detector says comes first, then the others."""
    backbone = load_backbone(backbone_spec_of(config))
    chosen, size = config.backbone.precision, backbone.preprocessing.size
    own = load_backbone(replace(backbone_spec_of(config), size=None)).preprocessing.size
    if is_on_gpu(config.backbone.engine):
        return [("float16" if chosen == "auto" else chosen, size)]
    first: Precision = "float32" if chosen == "auto" else chosen
    precisions: list[Precision] = [
        "float32",
        *reversed(cheaper_precisions(config.backbone.engine, backbone)),
    ]
    sizes = [own, 32 * round(own * SMALLER / 32)] if backbone.any_size else [own]
    others = [(precision, s) for precision in precisions for s in sizes]
    return list(dict.fromkeys([(first, size), *others]))


def _opened(config: Config, precision: Precision, size: int) -> Engine:
    return open_engine(
        load_backbone(replace(backbone_spec_of(config), size=size)),
        runtime=config.backbone.engine,
        precision=precision,
        threads=config.backbone.threads,
    )
