"""Stores of their own for each test, on SQLite: the store's own tests hold both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.store import Store
from tests.people import world


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A fitted state without questions."""
    with Store.open(tmp_path / "state") as opened:
        world.fit(opened)
        yield opened
