"""Which precision and input size a first fit takes: the cheapest that costs no quality.

A sample of the labelled images is embedded as the backbone was trained, in float32, and then more
cheaply: in int8 and in bfloat16 where the processor computes in it, and for images that are smaller
than the backbone's own size at smaller sizes, which are never below the images' own. The cheapest
that tells the classes apart as well is taken. Speeds are not measured: the same images give the
same choice.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from monitor.config import Config
from monitor.feed.labelled_dataset import LabelledImage, sample_dataset
from monitor.images.decode import Decoding, decode
from monitor.images.reject_reasons import Rejected
from monitor.jobs.from_config import backbone_spec_of, columns_of, decoding_of, with_input
from monitor.novelty.class_separation import Separation, separation

if TYPE_CHECKING:
    from monitor.backbones.backbone import Backbone
    from monitor.backbones.engine import Engine, Precision

IMAGES = 1500
"""Looked at in each way: the differences then wobble by about 0.1 points, in seconds."""

_LEAST_IMAGES = 15
"""Of a class, to be judged by: five of them stay out of each fit."""

_LEAST_CLASSES = 3
"""With fewer, leaving one out leaves nothing to confuse it with."""

_APART = 0.0015
"""AUROC that a cheaper way may lose; what is lost here, `conclad evaluate` loses as well."""

_LEFT_OUT = 0.01
"""AUROC of classes left out, which wobbles by half as much on such a sample."""

_SIZES = (5 / 7, 6 / 7)
"""Of the backbone's own size: 160 and 192 of 224. At 128 px settled verdicts of live feeds lost
half a point on EuroSAT (64 px), which a sample of this size does not always show."""

_STEP = 32
"""Networks halve their input five times; other sizes only add padding."""


@dataclass(frozen=True, slots=True)
class TriedInput:
    """One way to compute features, and what it is worth on the sample."""

    precision: str
    size: int
    apart: float
    """AUROC of each class against the others."""
    left_out: float
    """The same while nobody knows the class."""
    agreement: float
    """Rank correlation of the scores with those of the first way, float32 at full size."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What a first fit took, and why. ``tried`` is empty where nothing could be compared."""

    precision: str
    size: int
    native: int
    """The middle one of the images' shorter edges."""
    images: int
    tried: tuple[TriedInput, ...]

    @property
    def reason(self) -> str:
        """In a few words."""
        if not self.tried:
            return "nothing cheaper was compared"
        return "the cheapest that tells the labelled classes apart as well as float32 in full size"


OpenAt = Callable[["Precision", int], "Engine"]
"""Opens an engine of this precision and input size."""


def choose_input(
    samples: Sequence[LabelledImage],
    backbone: Backbone,
    open_at: OpenAt,
    *,
    cheaper: Sequence[Precision],
    sizes: bool,
    precision: Precision = "float32",
    decoding: Decoding | None = None,
    seed: int = 0,
) -> EngineChoice:
    """Compare on ``samples``; ``cheaper`` and ``sizes`` say what is open to choice.

    What they are held against is ``precision`` in the backbone's own size. Of ``cheaper``, the
    cheapest first, the first that is as good is taken.
    """
    own = backbone.preprocessing.size
    native = _native_edge(samples, decoding or Decoding())
    counts = Counter(str(sample.label) for sample in samples)
    judged = [s for s in samples if counts[str(s.label)] >= _LEAST_IMAGES]
    smaller = _smaller_sizes(own, native) if sizes and backbone.any_size else []
    enough = len({s.label for s in judged}) >= _LEAST_CLASSES
    if not enough or not (cheaper or smaller):
        return EngineChoice(precision, own, native, len(judged), ())
    look = _Look(judged, open_at, seed)
    in_full = look.at(precision, own)
    precision = next((p for p in cheaper if _as_good(look.at(p, own), in_full)), precision)
    size = next((s for s in smaller if _as_good(look.at(precision, s), in_full)), own)
    return EngineChoice(precision, size, native, len(judged), tuple(look.tried))


def _as_good(way: TriedInput, full: TriedInput) -> bool:
    return way.apart >= full.apart - _APART and way.left_out >= full.left_out - _LEFT_OUT


def with_chosen_input(
    config: Config,
    data: Sequence[str | os.PathLike[str]],
    *,
    cache: Path | None = None,
) -> tuple[Config, EngineChoice | None]:
    """The configuration with what ``auto`` became on these labelled images.

    None in place of a choice where the configuration, or a GPU, leaves none.
    """
    from monitor.backbones.backbone import load_backbone
    from monitor.backbones.engine import cheaper_precisions, is_on_gpu, open_engine

    chosen = config.backbone
    free = chosen.precision == "auto", chosen.size == "auto"
    if not any(free) or is_on_gpu(chosen.engine):
        return config, None
    spec = backbone_spec_of(config)
    decoding = decoding_of(config)

    def open_at(precision: Precision, size: int) -> Engine:
        return open_engine(
            load_backbone(replace(spec, size=size), cache=cache),
            runtime=chosen.engine,
            precision=precision,
            threads=chosen.threads,
            decoding=decoding,
            cache=cache,
        )

    backbone = load_backbone(spec, cache=cache)
    found = choose_input(
        sample_dataset(data, IMAGES, columns=columns_of(config)),
        backbone,
        open_at,
        cheaper=cheaper_precisions(chosen.engine, backbone) if free[0] else (),
        sizes=free[1],
        precision="float32" if free[0] else chosen.precision,
        decoding=decoding,
        seed=config.fit.seed,
    )
    return with_input(config, found.precision, found.size), found


class _Look:
    """Embeds the same images in several ways, and compares their ranks with the first."""

    def __init__(self, samples: Sequence[LabelledImage], open_at: OpenAt, seed: int) -> None:
        self._samples = samples
        self._open_at = open_at
        self._seed = seed
        self._first: Separation | None = None
        self.tried: list[TriedInput] = []

    def at(self, precision: Precision, size: int) -> TriedInput:
        found = separation(*self._features(precision, size), seed=self._seed)
        first = self._first = self._first or found
        tried = TriedInput(precision, size, found.apart, found.left_out, found.agreement(first))
        self.tried.append(tried)
        return tried

    def _features(self, precision: Precision, size: int) -> tuple[np.ndarray, list[str]]:
        from monitor.backbones.embed_images import embed_images

        images = [(str(s.label), s.image) for s in self._samples if isinstance(s.image, bytes)]
        with self._open_at(precision, size) as engine:
            parts = list(embed_images(images, engine))
        labels = [label for part in parts for label in part.keys]
        return np.concatenate([part.features for part in parts]), labels


def _native_edge(samples: Sequence[LabelledImage], decoding: Decoding) -> int:
    """The middle one of the shorter edges of some images; 0 where none can be decoded."""
    edges = []
    for sample in samples[:: max(1, len(samples) // 64)]:
        found = decode(sample.image, decoding) if isinstance(sample.image, bytes) else None
        if found is not None and not isinstance(found, Rejected):
            edges.append(min(found.pixels.shape[:2]))
    return int(np.median(edges)) if edges else 0


def _smaller_sizes(own: int, native: int) -> list[int]:
    """Sizes below the backbone's own that images of this edge need not be shrunk for.

    >>> _smaller_sizes(224, 64), _smaller_sizes(224, 180), _smaller_sizes(224, 800)
    ([160, 192], [192], [])
    """
    sizes = {_STEP * round(own * share / _STEP) for share in _SIZES}
    return sorted(size for size in sizes if native <= size < own)
