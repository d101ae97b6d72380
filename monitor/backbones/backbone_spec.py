"""Which backbone, with which weights, seen at which layers: as a value and as one line of text.

Names are checked without loading torch or timm: a misspelt one is reported at once.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from monitor.backbones.errors import BackboneSyntax, UnknownBackbone

Layers = Literal["pooled", "depths", "multi"]

PRETRAINED = "pretrained"
RANDOM = "random"


@dataclass(frozen=True, slots=True)
class BackboneSpec:
    """A choice of backbone, before anything is loaded.

    Written as text it is ``NAME[+depths|+multi][@WEIGHTS]``:

    >>> BackboneSpec.parse("embedded")
    BackboneSpec(name='embedded', weights=None, layers='pooled', sha256=None, size=None)
    >>> spec = BackboneSpec.parse("resnet50+depths@models/swav.pth")
    >>> spec.layers, spec.weights, str(spec)
    ('depths', 'models/swav.pth', 'resnet50+depths@models/swav.pth')
    """

    name: str = "embedded"
    """`embedded`, `dino-vits16`, `swav-resnet50`, `tiny`, or any name that timm knows."""
    weights: str | None = None
    """None: what the name stands for. Else `pretrained` (from the hub), `random` (for tests and
    speed measurements), or the path of a .safetensors, .pth or .pt file."""
    layers: Layers = "pooled"
    """`pooled`: what the network hands to its classifier. `depths`: that and the means of the
    two stages before it, each of length one, one after the other. `multi`: the means of its last
    three stages and the pooled feature as they are; see `Backbone.blocks`."""
    sha256: str | None = None
    """The weights' hash, as a fingerprint shows it; others are then refused."""
    size: int | None = None
    """Height and width of what the network sees; None: what its weights were trained with."""

    def __post_init__(self) -> None:
        if not self.name:
            raise BackboneSyntax("a backbone needs a name, for example 'embedded'")
        if self.layers not in get_args(Layers):
            raise BackboneSyntax(
                f"layers {self.layers!r} of backbone {self.name!r}: choose one of "
                f"{', '.join(get_args(Layers))}"
            )

    @classmethod
    def parse(cls, text: str, *, sha256: str | None = None) -> BackboneSpec:
        """Read the one-line form, as it stands in a configuration or on a command line."""
        front, _, weights = text.strip().partition("@")
        name, plus, layers = front.partition("+")
        chosen: Layers | None = next((one for one in get_args(Layers) if one == layers), None)
        if plus and chosen is None:
            raise BackboneSyntax(
                f"{text!r}: '+{layers}' is not understood; write NAME, NAME+depths or NAME+multi, "
                "with @FILE behind it if you like"
            )
        if "@" in text and not weights:
            raise BackboneSyntax(f"{text!r}: after '@' comes the path of a weights file")
        return cls(name, weights or None, chosen or "pooled", sha256)

    @property
    def label(self) -> str:
        """What features made with it are called: without the file, which only says where."""
        return self.name if self.layers == "pooled" else f"{self.name}+{self.layers}"

    def __str__(self) -> str:
        return self.label if self.weights is None else f"{self.label}@{self.weights}"


NAMED = ("embedded", "dino-vits16", "swav-resnet50", "tiny")
"""The choices that are ours; every other name is timm's."""

_REGISTERED = re.compile(r"^@register_model\s+def (\w+)\(", re.MULTILINE)
_DEPRECATED = re.compile(r"""^\s+["']([\w.]+)["']\s*:\s*["'][\w.]+["'],?\s*$""", re.MULTILINE)


def check_name(name: str) -> None:
    """Raise, with the names near it, unless it is one of ours or one that timm knows."""
    if name in NAMED or name.startswith("hf-hub:") or _architecture(name) in timm_names():
        return
    near = ", ".join(nearest_names(name))
    raise UnknownBackbone(
        f"no backbone is called {name!r}; "
        + (f"near it are {near}" if near else f"ours are {', '.join(NAMED)}, the others timm's")
    )


def nearest_names(name: str) -> list[str]:
    """Names that somebody who typed this one may have meant."""
    names = [*NAMED, *sorted(timm_names())]
    return difflib.get_close_matches(name, names, n=3, cutoff=0.5)


@lru_cache(maxsize=1)
def timm_names() -> frozenset[str]:
    """Every architecture that timm has, from its sources: importing it takes six seconds.

    >>> {"resnet50", "vit_small_patch16_224"} <= timm_names()
    True
    """
    found = find_spec("timm")
    folders = list(found.submodule_search_locations or ()) if found else []
    names: set[str] = set()
    for folder in folders:
        for file in Path(folder, "models").glob("*.py"):
            text = file.read_text(encoding="utf-8")
            names.update(_REGISTERED.findall(text))
            # Old names that timm still understands stand in a table: "old": "new".
            names.update(_architecture(old) for old in _DEPRECATED.findall(text))
    return frozenset(names)


def _architecture(name: str) -> str:
    """Without the tag of the weights."""
    return name.partition(".")[0]


ENVIRONMENT = "CONCLAD_CACHE"


def cache_root(chosen: Path | None = None) -> Path:
    """The folder for what can be computed or downloaded again.

    What the caller chose, else ``CONCLAD_CACHE``, else ``conclad`` in the user's cache folder.
    """
    if chosen is not None:
        return chosen.expanduser()
    if named := os.environ.get(ENVIRONMENT):
        return Path(named).expanduser()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "conclad"
