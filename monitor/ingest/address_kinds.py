"""What the arguments of the command line mean: folders, files, cameras."""

from __future__ import annotations

import glob
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from monitor.feed.feed_storage import without_secrets
from monitor.ingest.cameras import LiveSource, camera_name, is_live
from monitor.ingest.errors import SourceRefused
from monitor.ingest.folders import FileSource
from monitor.ingest.frames import need_av
from monitor.ingest.image_names import Reading, root_of_archive
from monitor.ingest.input_formats import FileKind, kind_by_bytes, kind_of
from monitor.ingest.reader_items import as_text
from monitor.ingest.source_files import Settling, SourceFile, Walk

Source = FileSource | LiveSource

_NAMED = re.compile(r"([\w.-]+)=((?:\w+://|/dev/video).*)")
_KINDS = (
    "a folder, images, a zip or tar archive, Parquet, a video, a TIFF scene, a STAC item or the "
    "address of a camera"
)


def recognise(
    arguments: Sequence[str],
    feed: Path,
    reading: Reading,
    stop: threading.Event,
    note: Callable[[str], None],
) -> list[Source]:
    """Every argument as a source, or the sentence that says what is wrong with one.

    Files that are named one by one (`*.tar`) are one source, in the order in which they were
    named. `cam-7=rtsp://…` names a camera.
    """
    if not arguments:
        raise SourceRefused(f"nothing to ingest was named; give {_KINDS}")
    sources: list[Source] = []
    files: list[SourceFile] = []
    for argument in arguments:
        named = _NAMED.fullmatch(argument)
        name, address = (named[1], named[2]) if named else (None, argument)
        if is_live(address):
            sources.append(_camera(address, name, reading, stop, note))
        elif "://" in address:
            raise SourceRefused(_refuse_address(address))
        elif Path(address).is_dir():
            walk = _folder(Path(address), feed)
            sources.append(FileSource(walk, reading, stop, Settling(reading.options.settle)))
        else:
            files.append(_file(Path(address)))
    if files:
        settling = Settling(reading.options.settle)
        sources.insert(0, FileSource(tuple(files), reading, stop, settling))
    return sources


def _camera(
    address: str,
    name: str | None,
    reading: Reading,
    stop: threading.Event,
    note: Callable[[str], None],
) -> LiveSource:
    kind = kind_of(urlsplit(address).path)
    if (
        address.startswith("http")
        and kind is not None
        and not address.endswith((".mjpg", ".mjpeg"))
    ):
        raise SourceRefused(
            f"{without_secrets(address)}: is a file, not a camera; download it, then ingest it"
        )
    if address.startswith("/dev/") and not Path(address).exists():
        raise SourceRefused(f"{address}: no such camera; plug it in, or check the number")
    need_av(without_secrets(address) if "://" in address else address)
    source_id = name or reading.options.source_id or camera_name(address)
    return LiveSource(address, source_id, reading.options, stop, note)


def _refuse_address(address: str) -> str:
    shown = without_secrets(address)
    if address.startswith(("s3://", "gs://", "az://")):
        return f"{shown}: ingest reads from disks and cameras; copy or mount the bucket first"
    return f"{shown}: no camera speaks this; use rtsp://, http://, a device or a path"


def _folder(folder: Path, feed: Path) -> Walk:
    if folder.resolve() == feed.resolve():
        raise SourceRefused(f"{folder}: is the feed itself; name another folder with --to")
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise SourceRefused(
            f"{folder}: cannot be listed ({error.strerror}); give this user the right to"
        ) from error
    return Walk(folder.absolute(), avoid=feed.resolve())


def _file(path: Path) -> SourceFile:
    if not path.exists():
        hint = "quote nothing: the shell finds the files" if glob.has_magic(str(path)) else ""
        raise SourceRefused(f"{path}: no such file or folder; {hint or 'check the path'}")
    try:
        with path.open("rb") as handle:
            head = handle.read(512)
    except OSError as error:
        raise SourceRefused(
            f"{path}: cannot be read ({error.strerror}); give this user the right to"
        ) from error
    kind = kind_of(path.name) or kind_by_bytes(head)
    if kind is None:
        raise SourceRefused(f"{path}: is of no kind that ingest reads; give {_KINDS}")
    if kind is FileKind.VIDEO:
        need_av(str(path))
    if kind in (FileKind.IMAGE, FileKind.TIFF):
        root = path.absolute().parent.name or "root"
    else:
        root = root_of_archive(path.name)
    return SourceFile(str(path.absolute()), as_text(path.name), as_text(root), kind)
