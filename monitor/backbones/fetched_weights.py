"""Weights brought to this machine beforehand, over the network or from a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import safetensors.torch

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec, cache_root
from monitor.backbones.pretrained import kept_file
from monitor.backbones.weights import write_atomically


@dataclass(frozen=True, slots=True)
class FetchedWeights:
    """Where the weights of a backbone are now."""

    name: str
    file: str | None
    """None for weights that come with a package."""
    sha256: str
    """Of the tensors, as `backbone.sha256` takes it."""
    dimension: int
    megabytes: float


def fetch(
    name: str, *, source: str | None = None, sha256: str | None = None, cache: Path | None = None
) -> FetchedWeights:
    """Bring the weights of a backbone here and prove that they fit; later nobody asks the network.

    ``source`` is a file fetched elsewhere; without it they come from where the name says.
    ``sha256`` refuses other weights than these.
    """
    spec = BackboneSpec(name, sha256=sha256)
    backbone = load_backbone(replace(spec, weights=source), cache=cache)
    state = backbone.network.state_dict()
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values()) / 1e6
    file: Path | None = None
    if name not in ("embedded", "tiny"):
        file = kept_file(name, cache_root(cache))
        tensors = {key: tensor.contiguous() for key, tensor in state.items()}
        write_atomically(file, lambda part: safetensors.torch.save_file(tensors, part))
    return FetchedWeights(
        name, str(file) if file else None, backbone.weights, backbone.dimension, size
    )
