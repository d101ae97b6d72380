"""The images that looked new or were settled as new, with what is known about each.

Verdicts are read file by file, and each file once: it is never written twice. What became of an
image since (a discovery brought it into a class, a person marked it as not an image) is
joined to it here, and nowhere else in the desk. Many images of a new class look known at first;
they are here from the moment on at which their pool is settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monitor.images.image_identity import image_key as digest_of
from monitor.people.teach_images import called_no_image
from monitor.store.atomic_files import Folder
from monitor.store.record_states import VersionState
from monitor.store.records import ClassRow
from monitor.store.store import Store
from monitor.store.verdict_columns import NEW, NOVEL, read_table

LATEST = 20_000
"""Images in the gallery, the latest ones: weeks of most feeds, and some megabytes of memory."""

FILES = 600
"""Files of verdicts that are looked through for them; compaction makes them cover weeks."""

_COLUMNS = [
    "image_id",
    "source_id",
    "captured_at",
    "score_ratio",
    "p_known",
    "nearest_class",
    "detector_version",
    "file",
    "row",
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which images; what is None does not matter."""

    source: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    class_id: str | None = None
    least: float | None = None
    most: float | None = None
    by_score: bool = False
    all: bool = False
    """Also those that were settled since: given to a class, or found to be merely shifted."""
    settled: str | None = None
    """Only those that were settled like this: new, known, shifted or undecided."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of an image: the verdict on it, the class, by whom, and when.

    ``version`` is the detector version that it came with; ``revision`` counts how often the pool
    of the image was settled, and is 0 for what a version taught.
    """

    verdict: str = ""
    class_id: str = ""
    by: str = ""
    revision: int = 0
    version: int = 0


_OPEN = Settled()


@dataclass(frozen=True, slots=True)
class NovelImage:
    """One image that looked new when it came, or was settled as new."""

    id: str
    source: str
    image: str
    captured_at: datetime | None
    ratio: float
    nearest_id: str | None
    nearest: str | None
    class_id: str | None
    class_name: str | None
    by: str | None
    """Who gave it to that class: a person, or what followed from answers; None if nobody did."""
    settled: str | None
    """What its pool was found to be in the end; None while it is not settled."""


def image_key(source_id: str, image_id: str) -> str:
    """How the desk names an image in an address: no path, and nothing to guess."""
    return digest_of(source_id, image_id).hex()


class NovelImages:
    """What looked new or was settled as new, at one moment of the store."""

    def __init__(self, table: pa.Table, given: Mapping[str, Settled]) -> None:
        self._table = table
        self._given = given
        ids = table.column("id").to_pylist()
        self._ids = ids
        self._places = {id: place for place, id in enumerate(ids)}
        self._sources = np.asarray(table.column("source_id").to_pylist(), dtype=object)
        self._ratio = table.column("score_ratio").to_numpy()
        times = table.column("captured_at")
        self._times = pc.fill_null(times.cast("int64"), -1).to_numpy()
        self._nearest = np.asarray(table.column("nearest_class").to_pylist(), dtype=object)
        self._class = np.asarray([given.get(id, _OPEN).class_id for id in ids], dtype=object)
        self._settled = np.asarray([given.get(id, _OPEN).verdict for id in ids], dtype=object)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return id in self._places

    def place_of(self, id: str) -> tuple[str, int]:
        """The file and row of the feed that hold the image."""
        place = self._places[id]
        file = self._table.column("file")[place].as_py()
        return str(file), int(self._table.column("row")[place].as_py())

    def name_of(self, id: str) -> tuple[str, str]:
        """Its source and image id."""
        place = self._places[id]
        return str(self._sources[place]), str(self._table.column("image_id")[place].as_py())

    def sources(self) -> list[str]:
        return sorted(set(self._sources.tolist()))

    def find(self, wanted: Wanted, aside: frozenset[str], names: Mapping[str, str]) -> np.ndarray:
        """The places of the images that are wanted, the latest (or the most unusual) first.

        ``names`` has the name of each class by id: what is nearest may be either.
        """
        keep = np.ones(len(self), dtype=bool)
        if wanted.source is not None:
            keep &= self._sources == wanted.source
        if wanted.since is not None:
            keep &= self._times >= _micros(wanted.since)
        if wanted.until is not None:
            keep &= self._times < _micros(wanted.until)
        if wanted.least is not None:
            keep &= self._ratio >= wanted.least
        if wanted.most is not None:
            keep &= self._ratio < wanted.most
        if wanted.class_id is not None:
            near = (self._nearest == wanted.class_id) | (
                self._nearest == names.get(wanted.class_id, wanted.class_id)
            )
            keep &= (self._class == wanted.class_id) | ((self._class == "") & near)
        if wanted.settled is not None:
            keep &= self._settled == wanted.settled
        elif wanted.class_id is None and not wanted.all:
            keep &= (self._settled == "") | (self._settled == "undecided")
        if aside:
            keep &= np.asarray([id not in aside for id in self._ids], dtype=bool)
        places = np.flatnonzero(keep)
        order = self._ratio[places] if wanted.by_score else self._times[places]
        found: np.ndarray = places[np.argsort(-order, kind="stable")]
        return found

    def read(
        self, places: Sequence[int] | np.ndarray, rows: Mapping[str, ClassRow]
    ) -> Iterator[NovelImage]:
        """The images at these places; ``rows`` are the classes, by id and by name."""
        for row in self._table.take(pa.array(places, pa.int64())).to_pylist():
            nearest = rows.get(row["nearest_class"] or "")
            became = self._given.get(row["id"], _OPEN)
            given = rows.get(became.class_id)
            yield NovelImage(
                id=row["id"],
                source=row["source_id"],
                image=row["image_id"],
                captured_at=row["captured_at"],
                ratio=row["score_ratio"],
                nearest_id=nearest.id if nearest else None,
                nearest=nearest.name if nearest else row["nearest_class"],
                class_id=given.id if given else None,
                class_name=given.name if given else None,
                by=became.by or None,
                settled=became.verdict or None,
            )


def _micros(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def novel_images(store: Store) -> NovelImages:
    """The latest images that looked new; cheap while no file was added."""
    with store.reading() as tx:
        verdicts = tuple(one.name for one in tx.outputs.of_kind("verdicts")[-FILES:])
        used = [one.number for one in tx.versions.all() if one.state is VersionState.PUBLISHED]
        discovered = tuple(one.name for one in tx.outputs.of_kind("discoveries"))
        settled = tuple(one.name for one in tx.outputs.of_kind("settled"))
    return _novel(_Place(store.folder), verdicts, discovered, settled, frozenset(used))


def discovered_place(store: Store, id: str) -> tuple[str, int] | None:
    """The file and row of an image that taught a class, however long ago."""
    with store.reading() as tx:
        names = [one.name for one in tx.outputs.of_kind("discoveries")]
    for name in reversed(names):
        found = _places_in(_Place(store.folder), name).get(id)
        if found is not None:
            return found
    return None


def classes_by_key(rows: Sequence[ClassRow]) -> dict[str, ClassRow]:
    """Classes by id, those merged since as what they became, and living ones also by name."""
    by_id = {row.id: row for row in rows}
    found: dict[str, ClassRow] = {row.name: row for row in rows if row.living}
    for row in rows:
        final = row
        while final.merged_into is not None:
            final = by_id[final.merged_into]
        found[row.id] = final
    return found


def read_no_image(store: Store) -> frozenset[str]:
    with store.reading() as tx:
        return called_no_image(tx)


class _Place:
    """A folder that caches can tell apart."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and str(other.folder) == str(self.folder)

    def __hash__(self) -> int:
        return hash(str(self.folder))


@lru_cache(maxsize=2)
def _novel(
    place: _Place,
    verdicts: Sequence[str],
    discovered: Sequence[str],
    settled: Sequence[str],
    used: frozenset[int],
) -> NovelImages:
    found: list[pa.Table] = []
    count = 0
    for name in reversed(verdicts):
        found.append(_of_file(place, name))
        count += found[-1].num_rows
        if count >= LATEST:
            break
    whole = pa.concat_tables(found) if found else _nothing()
    given = {
        id: one
        for name in discovered
        for id, found_by in _given_by(place, name).items()
        for one in found_by
        if one.version in used
    }
    ended: dict[str, Settled] = {}
    for name in settled:
        for id, one in _settled_by(place, name).items():
            if id not in ended or one.revision >= ended[id].revision:
                ended[id] = one
    for id, one in ended.items():
        # What somebody taught after the pool was settled is newer than its verdict.
        if id not in given or one.version >= given[id].version:
            given[id] = one
    whole = whole.slice(0, LATEST)
    shown = set(whole.column("id").to_pylist())
    late = [id for id, one in given.items() if one.verdict == NEW and id not in shown]
    names = {
        name for files in (discovered, settled) for file in files for name in _new(place, file)
    }
    rows = _LATE.rows(place, verdicts, late[-LATEST:], names)
    if rows:
        whole = pa.concat_tables([whole, pa.Table.from_pylist(rows, schema=whole.schema)])
    return NovelImages(whole.combine_chunks(), given)


class _LateRows:
    """The verdicts on images that looked known at first and were settled as new.

    They lie anywhere in the files of verdicts. What was found is kept, also that there is nothing
    to be found, so that only a settled pool makes these files be read again.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[_Place, str], dict[str, Any] | None] = {}
        self._lock = Lock()

    def rows(
        self, place: _Place, verdicts: Sequence[str], ids: Sequence[str], names: set[str]
    ) -> list[dict[str, Any]]:
        """``names`` are the image ids among which they are."""
        with self._lock:
            missing = {id for id in ids if (place, id) not in self._found}
            is_whole = True
            for name in reversed(verdicts) if missing else ():
                try:
                    rows = _rows_named(place, name, names)
                except FileNotFoundError:  # merged into another one since it was listed
                    is_whole = False
                    continue
                for row in rows:
                    if row["id"] in missing:
                        missing.remove(row["id"])
                        self._found[place, row["id"]] = row
                if not missing:
                    break
            if is_whole:
                self._found |= {(place, id): None for id in missing}
            wanted = {(place, id): self._found.get((place, id)) for id in ids}
            self._found = {
                key: row for key, row in self._found.items() if key[0] != place or key in wanted
            }
        return [row for row in wanted.values() if row is not None]


_LATE = _LateRows()


def _rows_named(place: _Place, name: str, images: set[str]) -> list[dict[str, Any]]:
    table = read_table(place.folder, name, [*_COLUMNS, "same_as"])
    named = pc.is_in(table.column("image_id"), value_set=pa.array(sorted(images), pa.string()))
    wanted = table.filter(pc.and_(named, table.column("same_as").is_null()))
    rows: list[dict[str, Any]] = _with_ids(wanted.drop_columns(["same_as"])).to_pylist()
    return rows


@lru_cache(maxsize=1024)
def _new(place: _Place, name: str) -> frozenset[str]:
    """The ids that the feed gives to the images which one file says are new."""
    is_settled = name.startswith("settled/")
    columns = ["image_id", "verdict"] if is_settled else ["image_id"]
    try:
        table = read_table(place.folder, name, columns)
    except FileNotFoundError:
        return frozenset()
    if is_settled:
        table = table.filter(pc.equal(table.column("verdict"), NEW))
    return frozenset(table.column("image_id").to_pylist())


@lru_cache(maxsize=FILES)
def _of_file(place: _Place, name: str) -> pa.Table:
    """What looked new in one file, the latest first; of a large file no more than are shown."""
    try:
        table = read_table(place.folder, name, [*_COLUMNS, "verdict", "same_as"])
    except FileNotFoundError:  # merged into another one since it was listed
        return _nothing()
    # What shows the same as another image is shown once.
    wanted = pc.and_(pc.equal(table.column("verdict"), NOVEL), table.column("same_as").is_null())
    novel = table.filter(wanted).drop_columns(["verdict", "same_as"])
    novel = novel.take(pa.array(np.arange(novel.num_rows)[::-1], pa.int64())).slice(0, LATEST)
    return _with_ids(novel)


def _with_ids(table: pa.Table) -> pa.Table:
    pairs = zip(
        table.column("source_id").to_pylist(), table.column("image_id").to_pylist(), strict=True
    )
    ids = pa.array([image_key(source, image) for source, image in pairs], pa.string())
    return table.append_column("id", ids)


def _nothing() -> pa.Table:
    from monitor.store.verdict_columns import VERDICTS

    schema = pa.schema([VERDICTS.field(name) for name in _COLUMNS])
    return _with_ids(schema.empty_table())


@lru_cache(maxsize=1024)
def _given_by(place: _Place, name: str) -> dict[str, tuple[Settled, ...]]:
    """What one file of discoveries says: the class of each image, by whom, in which version."""
    columns = ["source_id", "image_id", "class_id", "by", "detector_version"]
    try:
        table = read_table(place.folder, name, columns)
    except FileNotFoundError:
        return {}
    found: dict[str, tuple[Settled, ...]] = {}
    for row in table.to_pylist():
        id = image_key(row["source_id"], row["image_id"])
        one = Settled("new", row["class_id"], row["by"], version=row["detector_version"])
        found[id] = (*found.get(id, ()), one)
    return found


@lru_cache(maxsize=256)
def _places_in(place: _Place, name: str) -> dict[str, tuple[str, int]]:
    """Where the feed holds the images of one file of discoveries."""
    try:
        table = read_table(place.folder, name, ["source_id", "image_id", "file", "row"])
    except FileNotFoundError:
        return {}
    rows: list[dict[str, Any]] = table.to_pylist()
    return {image_key(row["source_id"], row["image_id"]): (row["file"], row["row"]) for row in rows}


@lru_cache(maxsize=1024)
def _settled_by(place: _Place, name: str) -> dict[str, Settled]:
    """The settled verdicts of one file; of an image that was settled again, the last."""
    columns = ["source_id", "image_id", "verdict", "class_id", "by", "revision", "detector_version"]
    try:
        table = read_table(place.folder, name, columns)
    except FileNotFoundError:
        return {}
    rows: list[dict[str, Any]] = table.to_pylist()
    return {
        image_key(row["source_id"], row["image_id"]): Settled(
            row["verdict"],
            row["class_id"] or "",
            row["by"],
            row["revision"],
            row["detector_version"],
        )
        for row in sorted(rows, key=lambda row: row["revision"])
    }
