"""The names of backbones, read without loading torch or timm: a misspelt one is told at once."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from monitor.backbones.errors import UnknownBackbone

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
