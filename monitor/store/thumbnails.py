"""Small pictures for the desk, addressed by their content.

The name is the SHA-256 of the bytes, so the same crop is kept once, a link never shows another
picture, and no path ever comes from a request: a name that is not 64 hex digits is refused.
"""

from __future__ import annotations

import hashlib
import re

from monitor.store.atomic_files import Folder
from monitor.store.errors import NotFound

FOLDER = "thumbnails"

_NAME = re.compile(r"^[0-9a-f]{64}$")


def thumbnail_name(digest: str) -> str:
    """Spread over 256 folders, so that none grows too long to list."""
    if not _NAME.match(digest):
        raise NotFound(f"thumbnail {digest[:80]!r}: not the name of a picture")
    return f"{FOLDER}/{digest[:2]}/{digest}"


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
