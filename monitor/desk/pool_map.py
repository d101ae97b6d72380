"""A pool on a plane: images that look alike lie together.

A first layout (principal components) is there at once; a better one (t-SNE on them) takes seconds
and is computed beside the requests. Both are functions of the features alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import numpy as np

from monitor.desk.novel_images import image_key
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.pipeline.pool_samples import PoolSamples, read_samples
from monitor.store.record_states import QuestionState
from monitor.store.records import Pool
from monitor.store.snapshots import load_snapshot
from monitor.store.store import Store

MOST = 4000
"""Points on a map; of a larger pool the most unusual and every nth of the others."""

REMEMBERED = 3
"""Pools whose layout is kept in memory: each is some hundred kilobytes and its image names."""

NEIGHBOURS = 8
"""Images beside a large view: two rows of them."""

_COMPONENTS, _PERPLEXITY, _STEPS = 30, 20, 350
"""What is laid out, how many neighbours count, and for how long: 2,000 points in some 5 s."""


@dataclass(frozen=True, slots=True)
class MapPoint:
    """One image of a pool."""

    id: str
    source: str
    image: str
    x: float
    y: float
    ratio: float
    novel: bool
    nearest: str | None
    asked: bool
    answer: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A pool that was laid out: where each image lies in the feed and on the plane."""

    pool_id: int
    size: int
    rows: np.ndarray
    ids: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    places: tuple[tuple[str, int], ...]
    features: Floats
    """A few principal components of each, by which neighbours are found."""
    ratio: np.ndarray
    novel: np.ndarray
    nearest: tuple[str | None, ...]
    first: np.ndarray
    better: Future[np.ndarray]

    def positions(self) -> tuple[np.ndarray, bool]:
        """Where the points lie, and whether that stays so."""
        if self.better.done() and self.better.exception() is None:
            return self.better.result(), True
        return self.first, self.better.done()


class PoolMaps:
    """Lays out pools, one after the other, and remembers the latest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._laid: OrderedDict[tuple[int, int, int], Laid] = OrderedDict()
        self._lock = Lock()
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="map")

    def of(self, pool: Pool, version: int | None) -> Laid:
        """The layout of a pool as it is now; one that is filling is laid out again as it grows."""
        key = (pool.id, _step(pool.size), version or 0)
        with self._lock:
            if key in self._laid:
                self._laid.move_to_end(key)
                return self._laid[key]
            laid = self._lay(pool)
            self._laid[key] = laid
            while len(self._laid) > REMEMBERED:
                _, gone = self._laid.popitem(last=False)
                gone.better.cancel()
            return laid

    def place_of(self, id: str) -> tuple[str, int] | None:
        """The file and row of an image that lies on one of the maps."""
        for laid in list(self._laid.values()):
            if id in laid.ids:
                return laid.places[laid.ids.index(id)]
        return None

    def name_of(self, id: str) -> tuple[str, str] | None:
        """The source and image id of an image that lies on one of the maps."""
        for laid in list(self._laid.values()):
            if id in laid.ids:
                return laid.names[laid.ids.index(id)]
        return None

    def close(self) -> None:
        self._beside.shutdown(wait=False, cancel_futures=True)

    def _lay(self, pool: Pool) -> Laid:
        samples = read_samples(self._store, pool.id)
        with self._store.reading() as tx:
            current = tx.versions.current()
        ratio = samples.meta.column("score_ratio").to_numpy()
        nearest: Sequence[str | None] = samples.meta.column("nearest_class").to_pylist()
        novel = ratio > 1
        if current is not None:
            detector = load_snapshot(self._store.folder, current.snapshot, sha256=current.sha256)
            ratio, novel, nearest = _judged(detector, samples.features)
        rows = _chosen(ratio)
        components = _components(samples.features[rows])
        names = _names(samples, rows)
        return Laid(
            pool_id=pool.id,
            size=len(ratio),
            rows=rows,
            ids=tuple(image_key(*name) for name in names),
            names=names,
            places=tuple(samples.place(int(row)) for row in rows),
            features=components,
            ratio=ratio[rows],
            novel=novel[rows],
            nearest=tuple(nearest[int(row)] for row in rows),
            first=_unit_square(components[:, :2]),
            better=self._beside.submit(_better, components),
        )


def read_points(store: Store, laid: Laid) -> tuple[list[MapPoint], bool]:
    """The points of a map as they stand, with what was asked and answered about them."""
    positions, settled = laid.positions()
    with store.reading() as tx:
        asked = {(one.source_id, one.image_id): one for one in tx.questions.of_pool(laid.pool_id)}
        standing = tx.answers.standing(laid.pool_id)
        classes = {row.id: tx.classes.resolve(row.id).name for row in tx.classes.all()}
    points = []
    for place, name in enumerate(laid.names):
        question = asked.get(name)
        answer = standing.get(question.id) if question is not None else None
        points.append(
            MapPoint(
                id=laid.ids[place],
                source=name[0],
                image=name[1],
                x=round(float(positions[place, 0]), 4),
                y=round(float(positions[place, 1]), 4),
                ratio=round(float(laid.ratio[place]), 3),
                novel=bool(laid.novel[place]),
                nearest=laid.nearest[place],
                asked=question is not None and question.state is QuestionState.OPEN,
                answer=classes.get(answer.class_id or "") if answer is not None else None,
            )
        )
    return points, settled


def neighbours(laid: Laid, id: str, count: int = NEIGHBOURS) -> list[int]:
    """The places of the images that look most like one of the map, the nearest first."""
    place = laid.ids.index(id)
    distance = np.linalg.norm(laid.features - laid.features[place], axis=1)
    order = np.argsort(distance, kind="stable")
    return [int(one) for one in order if one != place][:count]


def _step(size: int) -> int:
    """A filling pool is laid out again when it has grown by a quarter.

    >>> _step(120) == _step(130), _step(120) == _step(160)
    (True, False)
    """
    return int(np.log(max(size, 1)) / np.log(1.25))


def _chosen(ratio: np.ndarray) -> np.ndarray:
    if len(ratio) <= MOST:
        return np.arange(len(ratio))
    order = np.argsort(-ratio, kind="stable")
    others = order[MOST // 2 :]
    step = len(others) / (MOST - MOST // 2)
    thinned = others[(np.arange(MOST - MOST // 2) * step).astype(int)]
    found: np.ndarray = np.sort(np.concatenate([order[: MOST // 2], thinned]))
    return found


def _judged(
    detector: Detector, features: Floats
) -> tuple[np.ndarray, np.ndarray, Sequence[str | None]]:
    """The pool as the detector in use sees it, not the one of when its images came."""
    scores = detector.score(features)
    names = [known.name for known in detector.classes]
    nearest = [names[int(index)] for index in scores.nearest]
    return scores.ratio, scores.novel, nearest


def _names(samples: PoolSamples, rows: np.ndarray) -> tuple[tuple[str, str], ...]:
    sources = samples.meta.column("source_id").to_pylist()
    images = samples.meta.column("image_id").to_pylist()
    return tuple((sources[int(row)], images[int(row)]) for row in rows)


def _components(features: Floats) -> Floats:
    from sklearn.decomposition import PCA

    count = min(_COMPONENTS, *features.shape)
    found: Floats = np.zeros((len(features), max(count, 2)), np.float32)
    if count:
        pca = PCA(count, svd_solver="randomized", random_state=0)
        found[:, :count] = pca.fit_transform(features)
    return found


def _better(components: Floats) -> np.ndarray:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if len(components) < 3 * _PERPLEXITY:
        return _unit_square(components[:, :2])
    with threadpool_limits(1):
        laid = TSNE(
            2, init="pca", perplexity=_PERPLEXITY, max_iter=_STEPS, random_state=0, n_jobs=1
        ).fit_transform(components)
    return _unit_square(laid)


def _unit_square(points: np.ndarray) -> np.ndarray:
    """Into the middle of the square from 0 to 1, with the same scale in both directions."""
    low = points.min(axis=0, initial=0)
    extents = points.max(axis=0, initial=0) - low
    extent = float(extents.max()) or 1.0
    found: np.ndarray = (points - low + (extent - extents) / 2) / extent
    return found
