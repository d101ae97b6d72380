"""Images in zip and tar archives, and WebDataset tars with their labels, as a stream.

In a WebDataset the members of one sample follow each other and share their name up to the first
dot: `0001.jpg`, `0001.cls`, `0001.json`. A tar of plain images is the same with nothing beside.
"""

from __future__ import annotations

import contextlib
import json
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from pathlib import PurePosixPath
from typing import Any

from monitor.ingest.errors import Unreadable
from monitor.ingest.image_files import LARGEST, picture_of
from monitor.ingest.image_names import Reading, name_image, whole_file
from monitor.ingest.input_formats import FileKind, is_passed_over, kind_of
from monitor.ingest.reader_items import Finished, Handed, Item, Known, LeftOut
from monitor.ingest.source_files import SourceFile, Stamp

_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)
_LARGEST_NOTE = 2**20
"""Bytes of a label or JSON beside an image; anything larger is not that."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive."""

    name: str
    data: bytes
    time: datetime | None


def read_archive(file: SourceFile, stamp: Stamp, reading: Reading) -> Iterator[Handed]:
    """Every image of an archive, in the archive's order."""
    done = whole_file(file, stamp, reading.options)
    members = _zip_members if file.kind is FileKind.ZIP else _tar_members
    sample: list[Member] = []
    try:
        for member in members(file, stamp, reading):
            if not isinstance(member, Member):
                yield member
                continue
            if sample and _key(sample[0].name) != _key(member.name):
                yield from _sample(sample, file, stamp, reading)
                sample = []
            sample.append(member)
    except _BROKEN as error:
        # What was whole before the damage is not lost for it.
        yield from _sample(sample, file, stamp, reading)
        raise Unreadable(
            f"{file.path}: cannot be read to its end ({error}); copy it again"
        ) from error
    yield from _sample(sample, file, stamp, reading)
    yield Finished(done)


def _sample(
    members: list[Member], file: SourceFile, stamp: Stamp, reading: Reading
) -> Iterator[Handed]:
    notes = _notes(members, reading.options.zone)
    for member in members:
        if not _is_image(member.name):
            continue
        named = name_image(file, reading.options, member.name)
        if isinstance(named, LeftOut):
            yield named
            continue
        named = replace(
            named,
            label=named.label or notes.label,
            time=named.time or notes.time,
            source_id=reading.options.source_id or notes.source or named.source_id,
        )
        where = f"{file.path}/{member.name}"
        item = Item.of(file.path, str(stamp), member.name)
        found = picture_of(item, named, member.data, where, reading)
        if not isinstance(found, LeftOut) and found.captured_at is None:
            found = replace(found, captured_at=member.time)
        yield found


def _zip_members(
    file: SourceFile, stamp: Stamp, reading: Reading
) -> Iterator[Member | LeftOut | Known]:
    with zipfile.ZipFile(file.path) as archive:
        for info in archive.infolist():
            if info.is_dir() or not _is_wanted(info.filename):
                continue
            if reading.is_known(Item.of(file.path, str(stamp), info.filename)):
                yield Known()
                continue
            if info.file_size > LARGEST:
                yield LeftOut(f"{file.path}/{info.filename}", "too large for an image")
                continue
            time = None
            with contextlib.suppress(ValueError):
                zone = reading.options.zone
                time = datetime(*info.date_time, tzinfo=zone).astimezone(UTC)
            yield Member(info.filename, archive.read(info), time)


def _tar_members(
    file: SourceFile, stamp: Stamp, reading: Reading
) -> Iterator[Member | LeftOut | Known]:
    # As a stream: compressed archives are read once, and no list of members is kept.
    with tarfile.open(file.path, "r|*") as archive:
        for info in archive:
            archive.members = []  # type: ignore[attr-defined]
            if not info.isfile() or not _is_wanted(info.name):
                continue
            if reading.is_known(Item.of(file.path, str(stamp), info.name)):
                yield Known()
                continue
            if info.size > LARGEST:
                yield LeftOut(f"{file.path}/{info.name}", "too large for an image")
                continue
            content = archive.extractfile(info)
            assert content is not None
            time = datetime.fromtimestamp(info.mtime, UTC) if info.mtime else None
            yield Member(info.name, content.read(), time)


def _is_image(name: str) -> bool:
    return kind_of(name) in (FileKind.IMAGE, FileKind.TIFF)


def _is_wanted(name: str) -> bool:
    parts = PurePosixPath(name).parts
    if any(is_passed_over(part) for part in parts if part not in (".", "..")):
        return False
    return _is_image(name) or name.endswith((".cls", ".json"))


def _key(name: str) -> str:
    """
    >>> _key("a.b/0001.left.jpg"), _key("a.b/0001.cls")
    ('a.b/0001', 'a.b/0001')
    """
    folder, slash, base = name.rpartition("/")
    return folder + slash + base.split(".", 1)[0]


@dataclass(frozen=True, slots=True)
class _Notes:
    """What stands beside an image."""

    label: str | None = None
    time: datetime | None = None
    source: str | None = None


def _notes(members: list[Member], zone: tzinfo) -> _Notes:
    label, fields = None, dict[str, Any]()
    for member in members:
        if len(member.data) > _LARGEST_NOTE:
            continue
        if member.name.endswith(".cls"):
            label = member.data.decode("utf-8", "replace").strip() or None
        elif member.name.endswith(".json"):
            with contextlib.suppress(ValueError):
                found = json.loads(member.data)
                fields = found if isinstance(found, dict) else fields
    label = label or _text(fields.get("label"))
    time = None
    with contextlib.suppress(ValueError, TypeError):
        time = datetime.fromisoformat(fields["captured_at"]) if "captured_at" in fields else None
    if time is not None:
        time = (time if time.tzinfo else time.replace(tzinfo=zone)).astimezone(UTC)
    return _Notes(label, time, _text(fields.get("source_id")))


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and value != "" else None
