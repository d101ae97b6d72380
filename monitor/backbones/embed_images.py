"""From encoded images to features, decoding some while others are computed.

Each worker takes a batch, has it decoded (by processes of their own) and hands it to the engine.
While it waits there, others decode, so the engine is never short of work, and nobody has to guess
how many threads decoding needs against computing. Results come in the order of the images, and no
more than a few batches exist at any time, however long the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from monitor.backbones.engine import Engine, Features
from monitor.images.image_stats import image_stats
from monitor.images.isolated_decoding import decoders_for
from monitor.images.reject_reasons import Reason, Rejected

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, eq=False)
class Embedded(Generic[Key]):
    """What became of some images: `len(keys) + len(rejected) + len(copies)` of them."""

    keys: tuple[Key, ...]
    features: Features
    """One row for each key."""
    stats: NDArray[np.float32]
    """How each image was taken, one row for each key; see `monitor.images.image_stats.STATS`. No
    rows where nobody asked."""
    rejected: tuple[tuple[Key, Rejected], ...]
    copies: tuple[tuple[Key, int], ...] = ()
    """Images that show what another one shows, by its place among the keys."""
    checked: tuple[tuple[int, int], ...] = ()
    """Of the keys: images that were embedded although they could have been copies, and of what."""


def embed_images(
    images: Iterable[tuple[Key, bytes]],
    engine: Engine,
    *,
    batch: int | None = None,
    workers: int | None = None,
    stats: bool = False,
) -> Iterator[Embedded[Key]]:
    """Decode and embed a stream of (key, encoded image), batch by batch, in order.

    Every image comes out once: with its feature, or with the reason why it has none.

    >>> from monitor.backbones.backbone import load_backbone
    >>> from monitor.backbones.engine import open_engine
    >>> from monitor.backbones.backbone_spec import BackboneSpec
    >>> with open_engine(load_backbone(BackboneSpec("tiny")), runtime="torch") as engine:
    ...     [found] = embed_images([("a", b"no image")], engine)
    >>> found.keys, str(found.rejected[0][1].reason)
    ((), 'unknown_format')
    """
    parts = _cut(images, batch or engine.batch)
    embed = partial(embed_part, engine=engine, stats=stats)
    return embed_parts_of(parts, embed, workers or engine.workers)


def embed_parts_of(
    parts: Iterable[list[tuple[Key, bytes]]],
    embed: Callable[[list[tuple[Key, bytes]]], Embedded[Key]],
    workers: int,
) -> Iterator[Embedded[Key]]:
    """The parts of a stream, embedded by several threads, in order.

    The stream is read in the caller's thread, only as far as there is room. Closing the iterator
    stops the work.
    """
    waiting: deque[Future[Embedded[Key]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="embed")
    try:
        for part in parts:
            waiting.append(pool.submit(embed, part))
            # One more than there are workers: the next batch lies ready when one is done.
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _cut(images: Iterable[tuple[Key, bytes]], size: int) -> Iterator[list[tuple[Key, bytes]]]:
    stream = iter(images)
    while part := list(islice(stream, size)):
        yield part


def embed_part(
    part: list[tuple[Key, bytes]], engine: Engine, *, stats: bool = True
) -> Embedded[Key]:
    """One batch, in the caller's thread.

    Without ``stats`` an image costs a tenth of a millisecond less.
    """
    recipe = engine.backbone.preprocessing
    keys: list[Key] = []
    rejected: list[tuple[Key, Rejected]] = []
    # Resized as they come, because decoded images may be large and lie in shared memory.
    prepared: list[NDArray[np.uint8]] = [recipe.apply_all([])]
    measured: list[NDArray[np.float32]] = [image_stats([])]
    decoders = decoders_for(engine.decoding)
    images = [data for _, data in part]
    for some in decoders.decode(images, min_side=recipe.decode_side, stats=stats):
        pictures: list[NDArray[np.uint8]] = []
        for (key, _), found in zip(part[some.first :], some.found, strict=False):
            if isinstance(found, Rejected):
                rejected.append((key, found))
            else:
                keys.append(key)
                pictures.append(found.pixels)
        prepared.append(recipe.apply_all(pictures))
        measured.append(some.stats)
    taken = np.concatenate(measured)
    features = engine.embed(np.concatenate(prepared))
    finite = np.asarray(np.isfinite(features).all(axis=1))
    if not finite.all():
        rejected += [(keys[row], _NOT_FINITE) for row in np.flatnonzero(~finite)]
        keys = [keys[row] for row in np.flatnonzero(finite)]
        features, taken = features[finite], taken[finite] if len(taken) else taken
    return Embedded(tuple(keys), features, taken, tuple(rejected))


_NOT_FINITE = Rejected(
    Reason.NOT_FINITE, "the backbone gives no finite feature for it in this precision"
)
