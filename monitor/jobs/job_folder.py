"""The folder that a bounded job fills: which parts are done, and whose they are.

A folder belongs to one detector (or, for features, to one backbone): ``manifest.json`` says which,
and a job with another refuses it. Each part of the input becomes one file whose name tells the
input file, its identity and the first row, so a listing is all that a second run needs to know
what is done.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from monitor.feed.feed_storage import FeedFile
from monitor.jobs.errors import OutputTaken
from monitor.jobs.feature_stream import Part
from monitor.store.atomic_files import Folder, is_temporary
from monitor.store.verdict_columns import REJECTED, read_table, write_table

MANIFEST = "manifest.json"
SCHEMA = 1
# Of the path and of size and time: ten thousand files collide once in some million runs.
PATH_DIGITS, IDENTITY_DIGITS = 16, 12
# Names stay readable, and well below the 255 bytes that file systems allow.
STEM_LENGTH = 60


@dataclass(frozen=True, slots=True)
class PartName:
    """What a file name says about the part that it holds.

    >>> file = FeedFile("cam-7/0003.parquet", 100, 1)
    >>> PartName.of(file, 8192).text
    '0003-4fd2ca02276a956a-1f2ae0d9f9dc-000008192.parquet'
    """

    text: str
    path: str
    identity: str

    @classmethod
    def of(cls, file: FeedFile, first_row: int) -> PartName:
        stem = re.sub(r"[^A-Za-z0-9_.=-]", "_", Path(file.path).stem)[:STEM_LENGTH].lstrip("._-")
        path = hashlib.sha256(file.path.encode()).hexdigest()[:PATH_DIGITS]
        identity = f"{file.size}:{file.modified_ns}".encode()
        digest = hashlib.sha256(identity).hexdigest()[:IDENTITY_DIGITS]
        return cls(f"{stem or 'part'}-{path}-{digest}-{first_row:09d}.parquet", path, digest)

    @classmethod
    def parse(cls, text: str) -> PartName | None:
        found = re.fullmatch(r".+-([0-9a-f]{16})-([0-9a-f]{12})-\d{9,}\.parquet", text)
        return cls(text, found[1], found[2]) if found else None


class JobFolder:
    """The output of one job: ``<kind>/`` and ``rejected/``, a file each for every part.

    A part is done when its file in ``<kind>/`` is there. It is written last, also when it has no
    rows, so whoever sees it sees the rejected rows too.
    """

    def __init__(self, folder: Folder, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        entries = [entry.name for entry in folder.list(kind) if not is_temporary(entry.name)]
        found = [PartName.parse(name.rpartition("/")[2]) for name in entries]
        self._done = {name.text: name for name in found if name is not None}

    @classmethod
    def open(cls, where: str | Path, kind: str, owner: Mapping[str, Any]) -> JobFolder:
        """Take a new or empty folder, or go on with one that has the same owner."""
        folder = Folder.at(where, private=False)  # results, for whoever asked for them
        manifest = {"format": f"conclad-{kind}", "schema": SCHEMA, **owner}
        if folder.size(MANIFEST) is None:
            strangers = [e.name for e in folder.list() if not is_temporary(e.name)]
            if strangers:
                raise OutputTaken(
                    f"{folder}: holds other files already ({strangers[0]}); name an empty folder"
                )
            folder.write(MANIFEST, json.dumps(manifest, indent=2, sort_keys=True).encode())
            return cls(folder, kind)
        found = _manifest(folder)
        different = sorted(key for key in manifest if found.get(key) != manifest[key])
        if different:
            told = ", ".join(f"{k} {found.get(k)!r} and not {manifest[k]!r}" for k in different)
            raise OutputTaken(f"{folder}: was written with {told}; name another folder")
        return cls(folder, kind)

    def is_done(self, part: Part) -> bool:
        return PartName.of(part.file, part.first_row).text in self._done

    def changed(self, file: FeedFile) -> bool:
        """Whether parts of a file of this name, but of other content, were written before."""
        name = PartName.of(file, 0)
        return any(
            done.path == name.path and done.identity != name.identity
            for done in self._done.values()
        )

    def done(self) -> list[str]:
        """The names of all finished parts."""
        return sorted(self._done)

    def write(self, part: Part, found: pa.Table, rejected: pa.Table) -> None:
        name = PartName.of(part.file, part.first_row)
        if rejected.num_rows:
            write_table(self.folder, f"rejected/{name.text}", rejected)
        write_table(self.folder, f"{self.kind}/{name.text}", found)
        self._done[name.text] = name

    def read(self, name: str, columns: list[str]) -> pa.Table:
        return read_table(self.folder, f"{self.kind}/{name}", columns)

    def read_rejected(self, name: str) -> pa.Table:
        if self.folder.size(f"rejected/{name}") is None:
            return REJECTED.empty_table()
        return read_table(self.folder, f"rejected/{name}")


def _manifest(folder: Folder) -> dict[str, Any]:
    try:
        found = json.loads(folder.read(MANIFEST))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OutputTaken(f"{folder}/{MANIFEST}: cannot be read; name another folder")
    return found
