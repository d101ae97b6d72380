"""What is known of a backbone without building it: kept from the last time it was built.

Building the embedded network, loading and hashing its weights takes four seconds of a core, most of
it imports. A process that finds the translated graph in the cache needs none of that, only what the
fingerprint is made of. A card belongs to one weights file as it lies on the disk (its path, size
and time of change) and to the versions of the libraries; whoever builds the network after all
compares the hash.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.transform import Preprocessing
from monitor.backbones.weights import write_atomically


@dataclass(frozen=True, slots=True)
class BackboneCard:
    """See the fields of `Backbone`."""

    preprocessing: Preprocessing
    blocks: tuple[int, ...]
    weights: str
    any_size: bool


def card_place(spec: BackboneSpec, weights: Path, cache: Path) -> Path:
    """Where the card of this backbone with this weights file lies, if there is one."""
    found = weights.stat()
    facts = [
        [spec.name, spec.layers, spec.size],
        [str(weights.resolve()), found.st_size, found.st_mtime_ns],
        [version("timm"), version("torch")],
    ]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return cache / "backbones" / f"{digest}.json"


def read_card(place: Path) -> BackboneCard | None:
    """None where there is none, or none that can be read: then the network is built."""
    try:
        found = json.loads(place.read_text())
        recipe = found["preprocessing"]
        recipe |= {"mean": tuple(recipe["mean"]), "std": tuple(recipe["std"])}
        return BackboneCard(
            Preprocessing(**recipe), tuple(found["blocks"]), found["weights"], found["any_size"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_card(place: Path, card: BackboneCard) -> None:
    """Appears whole or not at all."""
    text = json.dumps(asdict(card))
    write_atomically(place, lambda part: _write(part, text))


def _write(part: str, text: str) -> None:
    Path(part).write_text(text)
