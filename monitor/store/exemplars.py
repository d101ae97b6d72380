"""Pictures that show what a class looks like, and the thumbnails among which they lie.

Exemplars are kept for as long as the class needs them; a note for each class names them. What is
known about where a picture came from is kept beside it, so that a purge of a source also finds
these. Thumbnails that are still to be made are notes as well, by the pool that they lie in.

Thumbnails are small pictures for the desk, addressed by their content. The name is the SHA-256 of
the bytes, so the same crop is kept once, a link never shows another picture, and no path ever comes
from a request: a name that is not 64 hex digits is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from monitor.store.atomic_files import Folder
from monitor.store.errors import NotFound

if TYPE_CHECKING:
    from monitor.store.store import Transaction


ROOM = "exemplars"
#: The notes keep the name that they had in the first release.
MISSING = "unpainted"


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A picture of a class: its thumbnail and, where it came from the feed, which image it is.

    ``by`` is ``fit`` for labelled images, else as in the discoveries: ``person`` or
    ``pseudo-label``.

    >>> Exemplar("ab" * 32).by
    'fit'
    """

    thumbnail: str
    by: str = "fit"
    source_id: str | None = None
    image_id: str | None = None
    captured_at: datetime | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class MissingThumbnail:
    """A picture that a class should have: the image it will show, and what is known of it.

    >>> shown = Exemplar("", "pseudo-label", "cam-1", "0007")
    >>> MissingThumbnail("feed/1.parquet", 7, shown).with_thumbnail("ab" * 32).thumbnail[:4]
    'abab'
    """

    file: str
    row: int
    exemplar: Exemplar
    digest: str | None = None
    """The hash of the image that was scored."""

    def with_thumbnail(self, thumbnail: str) -> Exemplar:
        return replace(self.exemplar, thumbnail=thumbnail)


def keep_exemplars(tx: Transaction, class_id: str, exemplars: Sequence[Exemplar]) -> None:
    """Make these the pictures of the class, in place of the present ones."""
    tx.notes.set(ROOM, class_id, [_to_json(exemplar) for exemplar in exemplars])


def exemplars_of(tx: Transaction, class_id: str) -> list[Exemplar]:
    return [_from_json(entry) for entry in tx.notes.get(ROOM, class_id, [])]


def all_exemplars(tx: Transaction) -> dict[str, list[Exemplar]]:
    """By class id."""
    return {
        class_id: [_from_json(entry) for entry in entries]
        for class_id, entries in tx.notes.all(ROOM).items()
    }


def wanted_pictures(
    pool_id: int, wanted: Mapping[str, Sequence[MissingThumbnail]]
) -> dict[tuple[str, str], Any]:
    """Which images of a pool need a thumbnail, by class, as a note; nothing wanted is no note."""
    entries = {
        class_id: [
            {
                "file": one.file,
                "row": one.row,
                "exemplar": _to_json(one.exemplar),
                "digest": one.digest,
            }
            for one in some
        ]
        for class_id, some in wanted.items()
        if some
    }
    return {(MISSING, str(pool_id)): entries} if entries else {}


def want_pictures(
    tx: Transaction, pool_id: int, wanted: Mapping[str, Sequence[MissingThumbnail]]
) -> None:
    """Remember which images of a pool need a thumbnail; nothing wanted ends it."""
    tx.notes.delete(MISSING, str(pool_id))
    for (room, key), note in wanted_pictures(pool_id, wanted).items():
        tx.notes.set(room, key, note)


def missing_thumbnails(tx: Transaction) -> dict[int, dict[str, list[MissingThumbnail]]]:
    """The thumbnails that are still to be made, by pool and class."""
    return {
        int(pool_id): {
            class_id: [
                MissingThumbnail(
                    one["file"], one["row"], _from_json(one["exemplar"]), one.get("digest")
                )
                for one in some
            ]
            for class_id, some in entries.items()
        }
        for pool_id, entries in tx.notes.all(MISSING).items()
    }


def forget_exemplars(tx: Transaction, source: str, before: datetime) -> list[str]:
    """Drop those of a source captured before a moment; returns their thumbnails.

    Of those that have no thumbnail yet none is made any more.
    """

    def is_meant(one: Exemplar) -> bool:
        early = one.captured_at is None or one.captured_at < before
        return one.source_id == source and early

    for pool_id, wanted in missing_thumbnails(tx).items():
        kept = {
            class_id: [one for one in some if not is_meant(one.exemplar)]
            for class_id, some in wanted.items()
        }
        if kept != wanted:
            want_pictures(tx, pool_id, kept)
    gone: list[str] = []
    for class_id, exemplars in all_exemplars(tx).items():
        matching = [one for one in exemplars if is_meant(one)]
        if matching:
            gone += [one.thumbnail for one in matching]
            keep_exemplars(tx, class_id, [one for one in exemplars if one not in matching])
    return gone


def shown_by_exemplars(tx: Transaction) -> set[str]:
    """The thumbnails of all classes."""
    return {one.thumbnail for found in all_exemplars(tx).values() for one in found}


def _to_json(exemplar: Exemplar) -> dict[str, Any]:
    values = {key: value for key, value in asdict(exemplar).items() if value is not None}
    if exemplar.captured_at is not None:
        values["captured_at"] = exemplar.captured_at.isoformat()
    return values


def _from_json(entry: Any) -> Exemplar:
    """A bare digest is an exemplar of which nothing else is known."""
    if isinstance(entry, str):
        return Exemplar(entry)
    captured_at = entry.get("captured_at")
    return Exemplar(
        **{**entry, "captured_at": datetime.fromisoformat(captured_at) if captured_at else None}
    )


THUMBNAILS = "thumbnails"

_NAME = re.compile(r"^[0-9a-f]{64}$")


def thumbnail_name(digest: str) -> str:
    """Spread over 256 folders, so that none grows too long to list."""
    if not _NAME.match(digest):
        raise NotFound(f"thumbnail {digest[:80]!r}: not the name of a picture")
    return f"{THUMBNAILS}/{digest[:2]}/{digest}"


def put_thumbnail(folder: Folder, data: bytes) -> str:
    """Keep a picture; returns its name."""
    digest = hashlib.sha256(data).hexdigest()
    name = thumbnail_name(digest)
    if folder.size(name) != len(data):
        folder.write(name, data)
    return digest


def get_thumbnail(folder: Folder, digest: str) -> bytes:
    try:
        return folder.read(thumbnail_name(digest))
    except FileNotFoundError as error:
        raise NotFound(f"thumbnail {digest}: is not kept (any more)") from error
