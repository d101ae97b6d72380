"""The tiny backbone with a flaw: slow, or deadly for its process. Importable by every worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from monitor.backbones.engine import Engine, Features, Images
from monitor.config import Config
from monitor.jobs.from_config import open_engine_of

#: Long against everything else that a small batch needs.
SLOW_SECONDS = 1.0


class Around(Engine):
    """Another engine, and something that happens before each of its calls."""

    def __init__(self, inner: Engine, before: Callable[[Images], None]) -> None:
        super().__init__(inner.backbone, inner.fingerprint.precision, inner.decoding)
        self.runtime, self.batch, self.workers = inner.runtime, inner.batch, inner.workers
        self._inner, self._before = inner, before

    def _run(self, images: Images) -> Features:
        self._before(images)
        return self._inner.embed(images)


def slow(config: Config) -> Engine:
    """Takes its time with every batch, so that something can happen meanwhile."""
    return Around(open_engine_of(config), lambda images: time.sleep(SLOW_SECONDS))


def deadly(config: Config) -> Engine:
    """Takes its process along when it meets an image that is all black."""

    def look(images: Images) -> None:
        if not images.any(axis=(1, 2, 3)).all():
            os._exit(1)

    return Around(open_engine_of(config), look)
