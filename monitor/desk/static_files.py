"""The files of the page, read once: no path is ever made from a request."""

from __future__ import annotations

from importlib.resources import files

_KINDS = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}

STATIC: dict[str, tuple[bytes, str]] = {
    entry.name: (entry.read_bytes(), _KINDS[entry.name.rpartition(".")[2]])
    for entry in files("monitor.desk").joinpath("static").iterdir()
    if entry.name.rpartition(".")[2] in _KINDS
}
