"""The taxonomy of errors: every error has a kind, every kind a treatment, and both are right."""

from __future__ import annotations

import ast
import builtins
import errno
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import actors
import monitor
from actors.ray_cluster import ClusterLost
from monitor.backbones import errors as backbones
from monitor.errors import (
    OUTAGES,
    TREATMENT,
    ConcladError,
    ErrorKind,
    Treatment,
    is_outage,
    kind_of,
)
from monitor.feed import errors as feed
from monitor.images import errors as images
from monitor.store import errors as store

#: Errors that are not the operator's. Whoever adds one says here what shall be done about it.
KINDS: dict[type[ConcladError], ErrorKind] = {
    feed.SourceUnavailable: ErrorKind.FEED,
    feed.SourceMissing: ErrorKind.FEED,
    feed.FileGone: ErrorKind.FILE,
    feed.FileChanged: ErrorKind.FILE,
    feed.FileIncomplete: ErrorKind.FILE,
    feed.FileRefused: ErrorKind.FILE,
    feed.FileCorrupt: ErrorKind.FILE,
    feed.ContractError: ErrorKind.FILE,
    store.StoreUnreachable: ErrorKind.STORE,
    store.StoreBusy: ErrorKind.STORE,
    store.DiskUnavailable: ErrorKind.DISK,
    store.BatchMismatch: ErrorKind.BATCH,
    store.TableMismatch: ErrorKind.BATCH,
    images.DecodersFailed: ErrorKind.WORKER,
    backbones.EngineFailure: ErrorKind.BATCH,
    backbones.DeviceFull: ErrorKind.DEVICE,
    backbones.DeviceFailed: ErrorKind.WORKER,
    ClusterLost: ErrorKind.CLUSTER,
}


#: Exceptions that never leave the module that raises them: signals to itself, and no errors.
INTERNAL = {
    "monitor.images.isolated_decoding._DecoderDied",
    "monitor.ingest.batches.Stopped",
    "monitor.people.resettle_corrections._Moved",
    "monitor.store.batch_commit._LostRace",
}


def _modules() -> Iterator[str]:
    for package in (monitor, actors):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("errors") or found.name.startswith("actors."):
                yield found.name


def _all(root: type[ConcladError]) -> Iterator[type[ConcladError]]:
    for child in root.__subclasses__():
        yield child
        yield from _all(child)


def test_every_error_has_the_kind_that_is_written_here() -> None:
    for name in _modules():
        importlib.import_module(name)
    found = {e for e in _all(ConcladError) if e.__module__.startswith(("monitor.", "actors."))}
    assert len(found) > 60
    assert {e: e.kind for e in found if e.kind is not ErrorKind.OPERATOR} == KINDS


def test_no_exception_is_outside_of_the_table() -> None:
    """By the source, wherever it is written: whatever can be raised is an error with a kind."""
    bases: dict[str, list[str]] = {}
    names = {name for name, found in vars(builtins).items() if _is_exception(found)}
    for package in (monitor, actors):
        root = Path(package.__path__[0])
        for file in root.rglob("*.py"):
            module = ".".join(file.relative_to(root.parent).with_suffix("").parts)
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    bases[f"{module}.{node.name}"] = [ast.unparse(base) for base in node.bases]
    written: set[str] = set()
    while True:
        more = {one for one, of in bases.items() if one not in written and names & set(of)}
        if not more:
            break
        written |= more
        names |= {one.rpartition(".")[2] for one in more}
    every: set[type[ConcladError]] = {ConcladError, *_all(ConcladError)}
    ours = {f"{error.__module__}.{error.__name__}" for error in every}
    assert written - ours == INTERNAL


def _is_exception(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, BaseException)


def test_every_kind_has_one_treatment_and_every_treatment_a_kind() -> None:
    assert set(TREATMENT) == set(ErrorKind)
    assert set(TREATMENT.values()) == set(Treatment)
    assert {
        ErrorKind.FEED,
        ErrorKind.STORE,
        ErrorKind.DISK,
        ErrorKind.DEVICE,
        ErrorKind.CLUSTER,
    } == OUTAGES


def test_the_page_of_guarantees_has_the_table() -> None:
    page = (Path(__file__).parents[1] / "docs" / "guarantees.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.partition("## Errors")[2].partition("\n## ")[0].splitlines()
        if line.startswith("| `")
    ]
    assert {cells[0].strip("`"): cells[2] for cells in rows} == {
        kind.value: done.value for kind, done in TREATMENT.items()
    }


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN]
)
def test_what_the_kernel_says_of_a_disk_is_an_outage(code: int) -> None:
    assert kind_of(OSError(code, "said")) is ErrorKind.DISK
    assert is_outage(OSError(code, "said"))


@pytest.mark.parametrize("error", [KeyError("x"), OSError(errno.EINVAL, "said"), MemoryError()])
def test_what_nobody_foresaw_is_ours(error: Exception) -> None:
    assert kind_of(error) is ErrorKind.OURS
    assert not is_outage(error)
