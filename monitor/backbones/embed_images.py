"""From encoded images to features, decoding some while others are computed.

Each worker takes a batch, has it decoded (by processes of their own) and hands it to the engine.
While it waits there, others decode, so the engine is never short of work, and nobody has to guess
how many threads decoding needs against computing. Results come in the order of the images, and no
more than a few batches exist at any time, however long the stream.

Frames that show nothing new share features (``embed_frames``). Which frames are unchanged is
decided among the frames of one source in one batch, by :mod:`monitor.images.unchanged_frames`, from
nothing but their bytes: whoever does the work again comes to the same result. Of each source one
more frame is embedded than need be, the one that differs most from what it would have used; if its
features are other ones, all frames of the source are embedded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from monitor.backbones.engine import Engine, Features
from monitor.images.image_stats import STATS
from monitor.images.isolated_decoding import Decoders, decoders_for
from monitor.images.reject_reasons import Reason, Rejected
from monitor.images.unchanged_frames import (
    FEWEST_FRAMES,
    PROBED_PAIRS,
    Unchanged,
    find_unchanged,
    stands_still,
)

Key = TypeVar("Key")
Reuse = Literal["auto", "always", "never"]

_NO_STATS = np.empty((0, len(STATS)), np.float32)


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
    embed = partial(embed_part, engine=engine, stats=False)
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
    prepared = np.empty((len(part), recipe.size, recipe.size, 3), np.uint8)
    measured: list[NDArray[np.float32]] = [_NO_STATS]
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
        recipe.apply_into(prepared[len(keys) - len(pictures) : len(keys)], pictures)
        measured.append(some.stats)
    taken = np.concatenate(measured)
    features = engine.embed(prepared[: len(keys)])
    finite = np.asarray(np.isfinite(features).all(axis=1))
    if not finite.all():
        rejected += [(keys[row], _NOT_FINITE) for row in np.flatnonzero(~finite)]
        keys = [keys[row] for row in np.flatnonzero(finite)]
        features, taken = features[finite], taken[finite] if len(taken) else taken
    return Embedded(tuple(keys), features, taken, tuple(rejected))


_NOT_FINITE = Rejected(
    Reason.NOT_FINITE, "the backbone gives no finite feature for it in this precision"
)


OTHER_FEATURES = 0.5
"""Length of the difference of two features, over the length of one. Noise makes 0.1 to 0.4 of it,
two images of one class differ by 0.6 to 1.1 (EuroSAT, the embedded backbone)."""


def embed_frames(
    part: Sequence[tuple[Key, bytes]],
    engine: Engine,
    reuse: Reuse,
    together: Callable[[Key], Hashable],
    *,
    stats: bool = True,
) -> Embedded[Key]:
    """Some images, in the caller's thread; compared are those for which ``together`` is equal.

    Every image is embedded, rejected, or a copy of one that is embedded. ``auto`` looks at a few
    images of each source first, and at all of them if those are alike.
    """
    sources: dict[Hashable, list[int]] = {}
    for index, (key, _) in enumerate(part if reuse != "never" else ()):
        sources.setdefault(together(key), []).append(index)
    looked = ((at, _unchanged([part[i][1] for i in at], engine, reuse)) for at in sources.values())
    unchanged = [_Source(indices, shared) for indices, shared in looked if shared is not None]
    copies = {copy: other for source in unchanged for copy, other in source.copies()}
    found = _embed(part, (i for i in range(len(part)) if i not in copies), engine, stats)
    places = {index: place for place, index in enumerate(found.keys)}
    refused = {
        copy
        for source in unchanged
        for copy, other in source.copies()
        if other not in places or source.has_other_features(found.features, places)
    }
    if refused:
        found = _joined([found, _embed(part, sorted(refused), engine, stats)], engine)
        places = {index: place for place, index in enumerate(found.keys)}
    checks = [source.checked for source in unchanged if source.copies()[0][0] not in refused]
    return Embedded(
        tuple(part[index][0] for index in found.keys),
        found.features,
        found.stats,
        tuple((part[index][0], why) for index, why in found.rejected),
        tuple((part[i][0], places[other]) for i, other in copies.items() if i not in refused),
        tuple((places[one], places[other]) for one, other in checks if one in places),
    )


class _Source:
    """The frames of a source by their place in the batch, some of them unchanged."""

    def __init__(self, indices: list[int], found: Unchanged) -> None:
        self._indices, self._found = indices, found
        assert found.checked is not None
        self.checked = indices[found.checked[0]], indices[found.checked[1]]

    def copies(self) -> list[tuple[int, int]]:
        return [
            (self._indices[at], self._indices[other])
            for at, other in enumerate(self._found.same_as)
            if other is not None
        ]

    def has_other_features(self, features: Features, places: dict[int, int]) -> bool:
        """Whether the frame that differs most shows that features are not to be shared."""
        one, other = map(places.get, self.checked)
        if one is None or other is None:
            return True
        apart = np.linalg.norm(features[one] - features[other])
        return bool(apart > OTHER_FEATURES * np.linalg.norm(features[other]))


def _unchanged(images: Sequence[bytes], engine: Engine, reuse: Reuse) -> Unchanged | None:
    """What can be shared among the frames of one source, if anything can."""
    if len(images) < FEWEST_FRAMES:
        return None
    decoders = decoders_for(engine.decoding)
    if reuse == "auto" and not _seems_still(images, decoders):
        return None
    found = find_unchanged(decoders.signatures(images))
    return found if found.copies else None


def _seems_still(images: Sequence[bytes], decoders: Decoders) -> bool:
    """By a few pairs of neighbouring frames, from the beginning to the end."""
    firsts = [number * (len(images) - 2) // (PROBED_PAIRS - 1) for number in range(PROBED_PAIRS)]
    seen = decoders.signatures([images[at + step] for at in firsts for step in (0, 1)])
    return stands_still(list(zip(seen[::2], seen[1::2], strict=True)))


def _embed(
    part: Sequence[tuple[Key, bytes]], indices: Iterable[int], engine: Engine, stats: bool
) -> Embedded[int]:
    """Some of the images, as many at a time as suit the engine."""
    chosen = [(index, part[index][1]) for index in indices]
    size = engine.batch
    parts = [
        embed_part(chosen[start : start + size], engine, stats=stats)
        for start in range(0, len(chosen), size)
    ]
    return _joined(parts, engine)


def _joined(parts: Sequence[Embedded[int]], engine: Engine) -> Embedded[int]:
    """In the order of the images."""
    keys = np.asarray([key for part in parts for key in part.keys], np.int64)
    order = np.argsort(keys)
    nothing = np.empty((0, engine.fingerprint.dimension), np.float32)
    features = np.concatenate([nothing, *(part.features for part in parts)])
    stats = np.concatenate([_NO_STATS, *(part.stats for part in parts)])
    return Embedded(
        tuple(keys[order].tolist()),
        features[order],
        stats[order] if len(stats) else stats,
        tuple(one for part in parts for one in part.rejected),
    )
