"""What an image is called, whose it is, and what is known of it from its path alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from monitor.ingest.ingest_options import Options
from monitor.ingest.reader_items import Item, LeftOut, as_text, short_hash
from monitor.ingest.source_files import SourceFile, Stamp

_SHARD = re.compile(r"[-_.]?\d+$")


@dataclass(frozen=True, slots=True)
class Reading:
    """What every reader of files is given."""

    options: Options
    is_known: Callable[[Item], bool]
    """Whether the journal holds this already, so that it need not be read."""


@dataclass(frozen=True, slots=True)
class Named:
    """The name of one image, and what its path says about it."""

    source_id: str
    image_id: str
    label: str | None
    time: datetime | None


def name_image(file: SourceFile, options: Options, member: str = "") -> Named | LeftOut:
    """Name an image by its path below the source, or by its path within an archive.

    The source is the first folder on the way down; where there is none, the folder or archive
    that was named.

    >>> from monitor.ingest.input_formats import FileKind
    >>> file = SourceFile("/in/cam-1/day/0001.jpg", "cam-1/day/0001.jpg", "in", FileKind.IMAGE)
    >>> name_image(file, Options()).source_id
    'cam-1'
    """
    member = as_text(member)
    full = f"{file.name}/{member}" if member else file.name
    folders = file.name.split("/")[:-1] + member.split("/")[:-1]
    source = next((folder for folder in folders if folder not in ("", ".", "..")), file.root)
    image_id, label, time = full, None, None
    if options.pattern is not None:
        above = file.name.rpartition("/")[0]
        inside = f"{above}/{member}" if member and above else member
        found = options.pattern.match(inside or file.name)
        if found is None:
            return LeftOut(full, "its path does not match --pattern")
        source = found.source or source
        image_id, label, time = found.image_id or full, found.label, found.time
    return Named(options.source_id or source, image_id, label, time)


def root_of_archive(name: str) -> str:
    """The source of an archive, video or table named outright; shards of one set share it.

    >>> [root_of_archive(name) for name in ("photos.zip", "train-00012.tar", "01.tar", "a.tar.gz")]
    ['photos', 'train', '01', 'a']
    """
    stem = name.removesuffix(".gz").removesuffix(".bz2").removesuffix(".xz")
    stem = re.sub(r"-\d+-of-\d+(?=\.)", "", stem)
    stem = stem.rsplit(".", 1)[0] if "." in stem.strip(".") else stem
    return _SHARD.sub("", stem) or stem


def whole_file(file: SourceFile, stamp: Stamp, options: Options, settings: str = "") -> Item:
    """The journal's note that all of a file has been read, with these settings."""
    pattern = options.pattern.text if options.pattern else ""
    return Item.of(file.path, f"{stamp} {pattern} {settings}", "*")


def fingerprint(file: SourceFile, stamp: Stamp) -> str:
    """What a large file is, whatever its place and time: its size, its beginning and its end."""
    edge = 65536
    with open(file.path, "rb") as handle:
        head = handle.read(edge)
        handle.seek(max(0, stamp.size - edge))
        tail = handle.read(edge)
    return f"{stamp.size} {short_hash(head + tail).hex()}"
