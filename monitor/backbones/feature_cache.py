"""Features that were computed before, found again by what they were computed from.

The key of a chunk is a hash over the bytes of its images and the fingerprint of the engine, so a
file may be moved, renamed or given other labels and its features are still found, while another
backbone, precision or decoding rule never meets them. Each chunk is one file, written whole or
not at all: a run that was interrupted goes on at the first chunk that is missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from monitor.backbones.weights import write_atomically
from monitor.images.reject_reasons import Reason, Rejected
from monitor.novelty.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """What became of some images: a feature each, or a reason.

    >>> chunk = Chunk(np.array([0, 2]), np.zeros((2, 64), np.float32),
    ...               {1: Rejected(Reason.CORRUPT, "PNG: broken")})
    >>> len(chunk.positions) + len(chunk.rejected)
    3
    """

    positions: NDArray[np.int64]
    """Which of the images, counted from zero, the rows of `features` belong to."""
    features: NDArray[np.float32]
    rejected: dict[int, Rejected]


class FeatureCache:
    """Chunks of features under one folder; safe to share between processes.

    >>> import tempfile
    >>> mark = Fingerprint("tiny", "", "{}", 64, "float32")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = FeatureCache(Path(folder), mark)
    ...     cache.get([b"image"]) is None
    True
    """

    def __init__(self, root: Path, fingerprint: Fingerprint) -> None:
        self._fingerprint = fingerprint
        self._folder = root / "features" / fingerprint.digest()[:16]

    def get(self, images: Iterable[bytes]) -> Chunk | None:
        """What is known about exactly these images in this order; None if it must be computed."""
        try:
            with safetensors.safe_open(self._file(images), framework="numpy") as file:
                rejected = json.loads((file.metadata() or {})["rejected"])
                chunk = Chunk(
                    file.get_tensor("positions"),
                    file.get_tensor("features"),
                    {int(k): Rejected(Reason(v[0]), v[1]) for k, v in rejected.items()},
                )
        # A file damaged by a full disk or an older version costs its recomputation, no more.
        except (OSError, safetensors.SafetensorError, KeyError, ValueError):
            return None
        return chunk if chunk.features.shape[1:] == (self._fingerprint.dimension,) else None

    def put(self, images: Iterable[bytes], chunk: Chunk) -> None:
        rejected = {str(k): [str(v.reason), v.detail] for k, v in chunk.rejected.items()}
        tensors: dict[str, NDArray[Any]] = {
            "positions": np.ascontiguousarray(chunk.positions),
            "features": np.ascontiguousarray(chunk.features),
        }
        metadata = {"rejected": json.dumps(rejected, sort_keys=True)}
        write_atomically(
            self._file(images), lambda part: safetensors.numpy.save_file(tensors, part, metadata)
        )

    def _file(self, images: Iterable[bytes]) -> Path:
        digest = hashlib.sha256(self._fingerprint.digest().encode())
        for image in images:
            digest.update(hashlib.sha256(image).digest())
        name = digest.hexdigest()
        return self._folder / name[:2] / f"{name}.safetensors"
