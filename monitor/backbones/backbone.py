"""Backbones: a network, the recipe for its images, and a fingerprint of both."""

from __future__ import annotations

import functools
import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from monitor.backbones.backbone_card import BackboneCard, card_place, read_card, write_card
from monitor.backbones.backbone_spec import PRETRAINED, RANDOM, BackboneSpec, cache_root, check_name
from monitor.backbones.errors import LayersUnavailable, SizeUnavailable, WeightsChanged
from monitor.backbones.int8_ranges import int8_mark
from monitor.backbones.pretrained import embedded_file
from monitor.backbones.transform import Preprocessing
from monitor.backbones.weights import fit_weights, read_weights, sha256_of_state
from monitor.images.decode import Decoding
from monitor.novelty.fingerprint import Fingerprint

SIZE = 32
WIDTHS = (16, 32, 64)


class TinyNetwork(nn.Module):
    """Three strided convolutions, whose weights are drawn from a seeded numpy generator.

    Numpy's streams are stable over releases, so the weights, and with them the fingerprint, are
    the same everywhere. It separates colours and coarse textures, which is all that tests need.

    >>> TinyNetwork().eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        before, layers = 3, []
        for width, stride in zip(WIDTHS, (4, 2, 2), strict=True):
            layer = nn.Conv2d(before, width, kernel_size=stride, stride=stride)
            fan_in = before * stride * stride
            # He's deviation keeps the activations of every layer at about the same size.
            weight = rng.standard_normal(layer.weight.shape) * np.sqrt(2.0 / fan_in)
            bias = rng.standard_normal(width) * 0.1
            layer.weight.data = torch.from_numpy(weight.astype(np.float32))
            layer.bias.data = torch.from_numpy(bias.astype(np.float32))  # type: ignore[union-attr]
            layers.append(layer)
            before = width
        self.layers = nn.ModuleList(layers)

    def forward_intermediates(
        self, images: Tensor, output_fmt: str = "NCHW"
    ) -> tuple[Tensor, list[Tensor]]:
        """The last map and those of all layers, as timm's networks give them."""
        found = []
        for layer in self.layers:
            images = torch.relu(layer(images))
            found.append(images)
        return images, found

    def forward_head(self, final: Tensor, pre_logits: bool = True) -> Tensor:
        return final.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_intermediates(images)[0])


_STAGES = 3
"""Stages that `multi` adds: the earlier ones see edges and colours, not things."""

_DEPTHS = 2
"""Stages that `depths` adds."""

ARCHITECTURES = {
    "embedded": "tf_efficientnet_lite0",
    "dino-vits16": "vit_small_patch16_224.dino",
    # SwAV trained torchvision's network, whose recipe (bilinear, 0.875) goes with this tag.
    "swav-resnet50": "resnet50.tv_in1k",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Backbone:
    """A loaded network in float32 on the CPU, ready to be taken over by an engine.

    >>> backbone = load_backbone(BackboneSpec("tiny"))
    >>> backbone.dimension, backbone.preprocessing.size
    (64, 32)
    """

    spec: BackboneSpec
    load_network: Callable[[], nn.Module]
    """Builds the network on the first call; see :attr:`network`."""
    preprocessing: Preprocessing
    blocks: tuple[int, ...]
    """Widths of the parts a feature consists of: one for `pooled`, and one a stage for `depths` and
    `multi`. Those of `depths` have length one; those of `multi` are raw and of different scales, so
    whoever combines them may weigh them."""
    weights: str
    """SHA-256 over the tensors, the same for the same weights in any file format."""
    any_size: bool = False
    """Whether the network takes images of other sizes than it was trained with."""

    @property
    def network(self) -> nn.Module:
        """Takes normalised images (n × 3 × size × size), gives features (n × dimension)."""
        return self.load_network()

    @property
    def dimension(self) -> int:
        return sum(self.blocks)

    def fingerprint(self, precision: str, decoding: Decoding | None = None) -> Fingerprint:
        """Everything that changes a feature; see Fingerprint."""
        decoding = decoding or Decoding()
        recipe = json.loads(self.preprocessing.to_json())
        # How many pixels are too many decides which images are refused, not what they become.
        settings = {k: v for k, v in asdict(decoding).items() if k != "max_pixels"}
        if precision == "int8":
            recipe["int8"] = int8_mark(self.weights)
        return Fingerprint(
            backbone=self.spec.label,
            weights=self.weights,
            preprocessing=json.dumps(
                recipe | {"decoding": settings}, sort_keys=True, separators=(",", ":")
            ),
            dimension=self.dimension,
            precision=precision,
        )


class _MultiStage(nn.Module):
    """The means of the last stages, then the pooled feature, side by side."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def parts(self, images: Tensor) -> list[Tensor]:
        final, maps = self.network.forward_intermediates(images, output_fmt="NCHW")
        # Transformers show every block; take as many, spread evenly up to the last.
        step = max(1, len(maps) // (_STAGES + 1)) if len(maps) > 2 * _STAGES else 1
        last = maps[::-1][::step][:_STAGES][::-1]
        pooled = self.network.forward_head(final, pre_logits=True)
        return [*(stage.mean((2, 3)) for stage in last), pooled]

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat(self.parts(images), dim=1)


class _Depths(nn.Module):
    """The pooled feature, then the means of the two stages before it, each of length one.

    What is common to things of a kind is in the last layers, how they look is in those before.
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        # EfficientNets tell of every stage only if asked to, else of those that halve the image.
        asked = inspect.signature(network.forward_intermediates).parameters
        self._every = {"extra_blocks": True} if "extra_blocks" in asked else {}

    def parts(self, images: Tensor) -> list[Tensor]:
        final, maps = self.network.forward_intermediates(images, output_fmt="NCHW", **self._every)
        pooled = self.network.forward_head(final, pre_logits=True)
        # Where nothing comes between the last stage and the pooling, its mean is there already.
        before = maps[:-1] if maps[-1] is final else maps
        stages = [stage.mean((2, 3)) for stage in before[: -_DEPTHS - 1 : -1]]
        return [torch.nn.functional.normalize(part, dim=1) for part in (pooled, *stages)]

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat(self.parts(images), dim=1)


def load_backbone(spec: BackboneSpec, *, cache: Path | None = None) -> Backbone:
    """Build a network and load its weights, or say in one sentence what stands in the way.

    ``cache`` is where converted and downloaded weights are kept; see `cache_root`.
    """
    file = _weights_file(spec)
    place = None if file is None else card_place(spec, file, cache_root(cache))
    card = None if place is None else read_card(place)
    load: Callable[[], nn.Module]
    if card is None:
        network, card = _build(spec, cache)
        load = partial(_same, network)
        if place is not None:
            write_card(place, card)
    else:
        load = functools.cache(partial(_built_as, card.weights, spec, cache))
    if spec.sha256 is not None and card.weights != spec.sha256:
        raise WeightsChanged(
            f"backbone {str(spec)!r}: its weights have the hash {card.weights}, but {spec.sha256} "
            "was asked for; give the right file, or remove the hash if the change is meant"
        )
    _warn_if_unpinned(spec, card.weights, cache_root(cache))
    return Backbone(spec, load, card.preprocessing, card.blocks, card.weights, card.any_size)


def _same(network: nn.Module) -> nn.Module:
    return network


def _build(spec: BackboneSpec, cache: Path | None) -> tuple[nn.Module, BackboneCard]:
    network, preprocessing = _tiny() if spec.name == "tiny" else _from_timm(spec, cache_root(cache))
    network.eval().requires_grad_(False)
    weights = sha256_of_state(network.state_dict())
    whole = network if spec.layers == "pooled" else _with_stages(network, spec)
    any_size = _takes_any_size(network)
    if spec.size is not None and spec.size != preprocessing.size:
        if not any_size:
            raise SizeUnavailable(
                f"backbone {spec.name!r} only takes images of {preprocessing.size} px, not of "
                f"{spec.size}; remove the size, or choose a convolutional backbone"
            )
        preprocessing = preprocessing.at(spec.size)
    blocks = _widths(whole, preprocessing.size)
    return whole, BackboneCard(preprocessing, blocks, weights, any_size)


def _warn_if_unpinned(spec: BackboneSpec, weights: str, cache: Path) -> None:
    """Those that conclad brings have their hash in the code; nobody here knows that of others."""
    ours = spec.name in ("embedded", "tiny") or spec.weights not in (None, PRETRAINED)
    if ours or spec.sha256 is not None:
        return
    from monitor.backbones import pretrained

    if pretrained.kept_weights(spec.name, ARCHITECTURES.get(spec.name, spec.name), cache) is None:
        log.warning(
            "backbone %r: its weights came over the network and nothing says which they must be; "
            "pin them with backbone.sha256: %s",
            spec.name,
            weights,
        )


def _built_as(weights: str, spec: BackboneSpec, cache: Path | None) -> nn.Module:
    """The network of which a card says that its weights have this hash."""
    network, card = _build(spec, cache)
    if card.weights != weights:
        raise WeightsChanged(
            f"backbone {str(spec)!r}: its weights have the hash {card.weights}, but had {weights} "
            "when they were last read; empty the cache, and fit again if the change is meant"
        )
    return network


def _weights_file(spec: BackboneSpec) -> Path | None:
    """The file that holds the weights, where there is one to be seen without a network."""
    if spec.name == "embedded" and spec.weights in (None, PRETRAINED):
        return embedded_file()
    if spec.weights in (None, PRETRAINED, RANDOM):
        return None
    file = Path(str(spec.weights)).expanduser()
    return file if file.is_file() else None


def _takes_any_size(network: nn.Module) -> bool:
    """Convolutions do; transformers learn a place for each patch, and timm says so of them."""
    config = getattr(network, "pretrained_cfg", None)
    return config is not None and not config.get("fixed_input_size", False)


def _tiny() -> tuple[nn.Module, Preprocessing]:
    half = (0.5, 0.5, 0.5)
    return TinyNetwork(), Preprocessing(SIZE, SIZE, "bilinear", mean=half, std=half)


def _from_timm(spec: BackboneSpec, cache: Path) -> tuple[nn.Module, Preprocessing]:
    check_name(spec.name)
    # Here rather than above: timm takes longer to import than torch itself, and what goes on
    # without it (the tiny backbone, features computed elsewhere) should not wait for it.
    from timm.data.config import resolve_model_data_config

    from monitor.backbones import pretrained

    architecture = ARCHITECTURES.get(spec.name, spec.name)
    if spec.weights == RANDOM:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            network = _create(architecture)
    elif spec.weights not in (None, PRETRAINED):
        network = _create(architecture)
        path = Path(str(spec.weights)).expanduser()
        fit_weights(network, read_weights(path, cache), where=str(path))
    elif spec.name == "embedded":
        network = _create(architecture)
        pretrained.load_embedded(network)
    elif (kept := pretrained.kept_weights(spec.name, architecture, cache)) is not None:
        network = _create(architecture)
        fit_weights(network, read_weights(kept, cache), where=str(kept))
    elif spec.name == "swav-resnet50":
        network = _create(architecture)
        file = pretrained.fetch_swav(cache)
        fit_weights(network, read_weights(file, cache), where=str(file))
    else:
        network = pretrained.from_hub(spec.name, architecture)
    config = resolve_model_data_config(network)  # type: ignore[no-untyped-call]
    return network, Preprocessing.from_timm(config, name=spec.name)


def _create(architecture: str) -> nn.Module:
    import timm

    network: nn.Module = timm.create_model(architecture, pretrained=False, num_classes=0)
    return network


def _with_stages(network: nn.Module, spec: BackboneSpec) -> nn.Module:
    if not hasattr(network, "forward_intermediates") or not hasattr(network, "forward_head"):
        raise LayersUnavailable(
            f"backbone {spec.name!r}: its stages cannot be had; use it without '+{spec.layers}'"
        )
    return _Depths(network) if spec.layers == "depths" else _MultiStage(network)


def _widths(network: nn.Module, size: int) -> tuple[int, ...]:
    """Measured with one blank image, because names of attributes differ from model to model."""
    blank = torch.zeros(1, 3, size, size)
    with torch.inference_mode():
        if isinstance(network, _MultiStage | _Depths):
            parts = network.parts(blank)
        else:
            parts = [network(blank)]
    return tuple(int(part.shape[1]) for part in parts)
