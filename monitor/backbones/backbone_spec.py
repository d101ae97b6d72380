"""Which backbone, with which weights, seen at which layers: as a value and as one line of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from monitor.backbones.errors import BackboneSyntax

Layers = Literal["pooled", "multi"]

PRETRAINED = "pretrained"
RANDOM = "random"


@dataclass(frozen=True, slots=True)
class BackboneSpec:
    """A choice of backbone, before anything is loaded.

    Written as text it is ``NAME[+multi][@WEIGHTS]``:

    >>> BackboneSpec.parse("embedded")
    BackboneSpec(name='embedded', weights=None, layers='pooled', sha256=None, size=None)
    >>> spec = BackboneSpec.parse("resnet50+multi@models/swav.pth")
    >>> spec.layers, spec.weights, str(spec)
    ('multi', 'models/swav.pth', 'resnet50+multi@models/swav.pth')
    """

    name: str = "embedded"
    """`embedded`, `dino-vits16`, `swav-resnet50`, `tiny`, or any name that timm knows."""
    weights: str | None = None
    """None: what the name stands for. Else `pretrained` (from the hub), `random` (for tests and
    speed measurements), or the path of a .safetensors, .pth or .pt file."""
    layers: Layers = "pooled"
    """`pooled`: what the network hands to its classifier. `multi`: the mean of each of its last
    stages before that, one after the other; see `Backbone.blocks`."""
    sha256: str | None = None
    """The weights' hash, as a fingerprint shows it; others are then refused."""
    size: int | None = None
    """Height and width of what the network sees; None: what its weights were trained with."""

    def __post_init__(self) -> None:
        if not self.name:
            raise BackboneSyntax("a backbone needs a name, for example 'embedded'")
        if self.layers not in get_args(Layers):
            raise BackboneSyntax(
                f"layers {self.layers!r} of backbone {self.name!r}: choose 'pooled' or 'multi'"
            )

    @classmethod
    def parse(cls, text: str, *, sha256: str | None = None) -> BackboneSpec:
        """Read the one-line form, as it stands in a configuration or on a command line."""
        front, _, weights = text.strip().partition("@")
        name, plus, layers = front.partition("+")
        if plus and layers not in get_args(Layers):
            raise BackboneSyntax(
                f"{text!r}: '+{layers}' is not understood; write NAME, NAME+multi, or either "
                "followed by @FILE"
            )
        if "@" in text and not weights:
            raise BackboneSyntax(f"{text!r}: after '@' comes the path of a weights file")
        chosen: Layers = "multi" if layers == "multi" else "pooled"
        return cls(name, weights or None, chosen, sha256)

    @property
    def label(self) -> str:
        """What features made with it are called: without the file, which only says where."""
        return self.name if self.layers == "pooled" else f"{self.name}+{self.layers}"

    def __str__(self) -> str:
        return self.label if self.weights is None else f"{self.label}@{self.weights}"
