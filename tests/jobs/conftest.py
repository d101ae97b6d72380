"""A cache of its own for each test, and a detector that knows two classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.config import Config
from monitor.jobs.fit_detector import fit
from tests.jobs.feeds import config_for, write_feed


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def fitted(tmp_path: Path) -> Config:
    """The configuration of a state that knows water and forest."""
    config = config_for(tmp_path)
    labelled = write_feed(tmp_path / "labelled.parquet", ["water", "forest"] * 60)
    fit(config, [labelled])
    return config
