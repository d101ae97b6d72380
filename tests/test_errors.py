"""The taxonomy of errors: every error has a kind, every kind a treatment, and both are right."""

from __future__ import annotations

import errno
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import actors
import monitor
from monitor.backbones import errors as backbones
from monitor.errors import OUTAGES, TREATMENT, ConcladError, Kind, Treatment, is_outage, kind_of
from monitor.feed import errors as feed
from monitor.store import errors as store

#: Errors that are not the operator's. Whoever adds one says here what shall be done about it.
KINDS: dict[type[ConcladError], Kind] = {
    feed.SourceUnavailable: Kind.FEED,
    feed.SourceMissing: Kind.FEED,
    feed.FileGone: Kind.FILE,
    feed.FileChanged: Kind.FILE,
    feed.FileIncomplete: Kind.FILE,
    feed.FileCorrupt: Kind.FILE,
    feed.ContractError: Kind.FILE,
    store.StoreUnreachable: Kind.STORE,
    store.StoreBusy: Kind.STORE,
    store.DiskUnavailable: Kind.DISK,
    backbones.EngineFailure: Kind.BATCH,
    backbones.DeviceFull: Kind.DEVICE,
    backbones.DeviceFailed: Kind.WORKER,
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
    assert {e: e.kind for e in found if e.kind is not Kind.OPERATOR} == KINDS


def test_every_kind_has_one_treatment_and_every_treatment_a_kind() -> None:
    assert set(TREATMENT) == set(Kind)
    assert set(TREATMENT.values()) == set(Treatment)
    assert {Kind.FEED, Kind.STORE, Kind.DISK, Kind.DEVICE, Kind.CLUSTER} == OUTAGES


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN]
)
def test_what_the_kernel_says_of_a_disk_is_an_outage(code: int) -> None:
    assert kind_of(OSError(code, "said")) is Kind.DISK
    assert is_outage(OSError(code, "said"))


@pytest.mark.parametrize("error", [KeyError("x"), OSError(errno.EINVAL, "said"), MemoryError()])
def test_what_nobody_foresaw_is_ours(error: Exception) -> None:
    assert kind_of(error) is Kind.OURS
    assert not is_outage(error)
