"""OpenVINO: on CPUs about twice as fast as torch at the same precision, and to the bit repeatable.

Measured on a crowded machine (AVX2, float32, images a second and core, two runs): EfficientNet-
Lite0 ran at 59 and 83 with one image a request, at 52 and 65 with eight; torch at 30 to 42. Since
larger requests gain nothing, requests are small, each runs on one core, and there are as many side
by side as there are cores. That also makes a feature independent of its neighbours in the batch.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

import numpy as np

from monitor.backbones.backbone import Backbone
from monitor.backbones.engine import Engine, Features, Images
from monitor.backbones.errors import EngineFailure
from monitor.backbones.openvino_graph import compiled
from monitor.images.decode import Decoding

_PIXELS_A_REQUEST = 224 * 224
"""Small images share a request until it is worth the 0.1 ms that a request costs."""

_IN_INT8 = 8
"""Images of a request: integers are so quick that more must share the weights that are read for
them. Eight of 160 px took 6% less time than two."""

_REQUESTS_A_THREAD = 2
"""One runs while the next already waits, so that no core idles while Python wakes up."""

_OPENING = Lock()
"""The first array that crosses into OpenVINO sets up its tie to numpy under a lock and the
interpreter's; two threads that do so at once wait for each other for ever. So engines are opened
one at a time, each up to its first answer. Processes share nothing but the cache, whose entries
appear whole or not at all."""


class OpenVinoEngine(Engine):
    """See the module; made by `open_engine`."""

    runtime = "openvino"

    def __init__(
        self,
        backbone: Backbone,
        precision: str,
        decoding: Decoding,
        threads: int,
        cache: Path | None = None,
    ) -> None:
        super().__init__(backbone, precision, decoding)
        share = math.ceil(_PIXELS_A_REQUEST / backbone.preprocessing.size**2)
        self._share = _IN_INT8 if precision == "int8" else share
        # Enough requests in one call that its beginning and its uneven end do not matter: with
        # four of them int8 took 4% more processor time than with eight.
        self.batch = max(32, 8 * self._share, 2 * threads * self._share)
        self.workers = threads + 1
        requests = _REQUESTS_A_THREAD * threads
        self._idle: SimpleQueue[Any] = SimpleQueue()
        with _OPENING:
            model = compiled(backbone, self._share, precision, threads, cache)
            for _ in range(requests):
                self._idle.put(model.create_infer_request())
            size = backbone.preprocessing.size
            self._request(np.zeros((1, size, size, 3), np.uint8))
        self._pool = ThreadPoolExecutor(requests, thread_name_prefix="openvino")

    def _run(self, images: Images) -> Features:
        parts = [images[i : i + self._share] for i in range(0, len(images), self._share)]
        try:
            return np.concatenate(list(self._pool.map(self._request, parts)))
        except RuntimeError as error:
            raise EngineFailure(f"OpenVINO could not run the backbone: {error}") from error

    def _request(self, part: Images) -> Features:
        request = self._idle.get()
        try:
            # Copied, since the caller's array may be read-only, or shorter than a request.
            request.input_tensors[0].data[: len(part)] = part
            request.infer()
            features: Features = request.output_tensors[0].data[: len(part)].copy()
            return features
        finally:
            self._idle.put(request)

    def close(self) -> None:
        self._pool.shutdown()
