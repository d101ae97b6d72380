"""Stores for the tests of the telemetry; SQLite, since the store's own tests cover both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.store import Store
from tests.store.conftest import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with Store.open(tmp_path / "state", clock=clock) as opened:
        yield opened


@pytest.fixture
def live_store(tmp_path: Path) -> Iterator[Store]:
    """On the real clock, for those who show it to a real Prometheus."""
    with Store.open(tmp_path / "state") as opened:
        yield opened
