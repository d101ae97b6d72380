"""What choosing a backbone means here: width, size, whether its weights are there, speed."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from monitor.backbones.backbone import ARCHITECTURES, load_backbone
from monitor.backbones.backbone_spec import RANDOM, BackboneSpec, cache_root
from monitor.backbones.engine import open_engine

#: Images of one measurement: enough for a second or so on two cores.
MEASURED = 32


@dataclass(frozen=True, slots=True)
class BackboneFigures:
    """One backbone on this machine."""

    name: str
    dimension: int
    megabytes: float
    here: bool
    images_per_second: float | None


def figures(name: str, *, speed: bool = False) -> BackboneFigures:
    """With made-up weights: what a network costs does not depend on what it has learnt."""
    built_in = name in ("embedded", "tiny")
    backbone = load_backbone(BackboneSpec(name, None if name == "tiny" else RANDOM))
    state = backbone.network.state_dict().values()
    rate: float | None = None
    if speed:
        with open_engine(backbone) as engine:
            size = backbone.preprocessing.size
            images = np.zeros((MEASURED, size, size, 3), np.uint8)
            engine.embed(images)  # the first time compiles
            began = time.perf_counter()
            engine.embed(images)
            rate = MEASURED / (time.perf_counter() - began)
    return BackboneFigures(
        name=name,
        dimension=backbone.dimension,
        megabytes=sum(tensor.numel() * tensor.element_size() for tensor in state) / 1e6,
        here=built_in or _kept(name),
        images_per_second=rate,
    )


def _kept(name: str) -> bool:
    from monitor.backbones.pretrained import kept_weights

    return kept_weights(name, ARCHITECTURES[name], cache_root()) is not None
