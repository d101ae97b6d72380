"""A storage that fails on demand, over real local files."""

from __future__ import annotations

import errno
from typing import Any

import pyarrow as pa
from pyarrow import fs


class Faults(fs.FileSystemHandler):  # type: ignore[misc]
    """Hands everything to the local filesystem; reads fail while `broken` counts down."""

    def __init__(self) -> None:
        self.broken = 0
        self.local = fs.LocalFileSystem()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def get_type_name(self) -> str:
        return "faults"

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = self.local.get_file_info(paths)
        return found

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = self.local.get_file_info(selector)
        return found

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(_File(self, self.local.open_input_file(path)), mode="r")


class _File:
    def __init__(self, faults: Faults, inner: pa.NativeFile) -> None:
        self.faults = faults
        self.inner = inner

    def read(self, size: int = -1) -> bytes:
        if self.faults.broken > 0:
            self.faults.broken -= 1
            raise OSError(errno.EIO, "Input/output error")
        return bytes(self.inner.read(size))

    def __getattr__(self, name: str) -> Any:
        # Arrow would rather call this one, and pass the fault by.
        if name == "read_buffer":
            raise AttributeError(name)
        return getattr(self.inner, name)


def _unused(*_: Any) -> None:
    raise NotImplementedError("the feed only reads")


for _name in Faults.__abstractmethods__:
    setattr(Faults, _name, _unused)
Faults.__abstractmethods__ = frozenset()
