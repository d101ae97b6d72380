"""The taxonomy, walked: an error of every kind strikes a run, and is treated as the table says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import actors.coordinator
from actors.ray_cluster import ClusterLost
from actors.run_monitor import Summary, run
from monitor.backbones.engine import Images
from monitor.backbones.errors import DeviceFailed, DeviceFull
from monitor.config import Config
from monitor.errors import OUTAGES, TREATMENT, ErrorKind, Treatment
from monitor.feed.errors import FileCorrupt, SourceUnavailable
from monitor.jobs.from_config import open_engine_of
from monitor.store import Store
from monitor.store.errors import DiskUnavailable, StoreUnreachable
from tests.actors.engines import Around
from tests.actors.story import Story, expected_ids, image_ids, tell_story
from tests.actors.test_faults import assert_as_undisturbed, copied, striking, undisturbed
from tests.jobs.feeds import write_feed

__all__ = ["undisturbed"]

#: What says of itself that it will pass, and a worker that is replaced: nothing may come of them.
PASSING = {
    ErrorKind.WORKER: DeviceFailed("CUDA error: an illegal memory access"),
    ErrorKind.FEED: SourceUnavailable("the bucket did not answer"),
    ErrorKind.STORE: StoreUnreachable("the server closed the connection"),
    ErrorKind.DISK: DiskUnavailable("the state's disk takes no more"),
    ErrorKind.DEVICE: DeviceFull("no memory left for a single image"),
    ErrorKind.CLUSTER: ClusterLost("Ray's head does not answer"),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"))


@pytest.fixture
def config(told: Story, tmp_path: Path) -> Config:
    return copied(told, tmp_path)


def raising(error: Exception) -> Callable[[], None]:
    def strike() -> None:
        raise error

    return strike


@pytest.mark.parametrize("kind", PASSING, ids=str)
def test_what_passes_leaves_no_trace(
    config: Config, undisturbed: dict[str, Any], kind: ErrorKind
) -> None:
    heard: list[str] = []
    summary = run(
        config,
        once=True,
        open_engine=striking(raising(PASSING[kind])),
        listener=lambda message: heard.append(message.kind),
    )
    shown = ErrorKind.DEVICE if kind is ErrorKind.WORKER else kind
    assert f"{shown}.unavailable" in heard
    assert f"{shown}.back" in heard
    assert_as_undisturbed(config, summary, undisturbed)


def test_an_error_of_an_image_rejects_its_row(config: Config) -> None:
    path = Path(config.feed.path) / "009.parquet"
    write_feed(path, ["water"] * 3, first_id=900_000, images=[b"GIF89a", None, b""])
    summary = run(config, once=True)
    assert summary.images["rejected"] == 3
    assert summary.quarantined == {"files": 0, "batches": 0, "images": 0}
    assert sorted(image_ids(Path(config.state.dir))) == expected_ids()


def test_an_error_of_a_file_sets_it_aside_until_somebody_takes_it_back(
    config: Config, undisturbed: dict[str, Any]
) -> None:
    summary = run(config, once=True, open_engine=striking(raising(FileCorrupt("no footer"))))
    assert summary.quarantined["files"] == 1
    assert_can_be_taken_back(config, summary)


def test_an_error_of_a_batch_costs_a_row_until_somebody_takes_it_back(config: Config) -> None:
    poison: list[bytes] = []

    def before(images: Images) -> None:
        poison[:] = poison or [images[5].tobytes()]
        if any(image.tobytes() == poison[0] for image in images):
            raise RuntimeError("a decoder's bug")

    summary = run(config, once=True, open_engine=lambda c: Around(open_engine_of(c), before))
    assert summary.quarantined == {"files": 0, "batches": 1, "images": 1}
    assert_can_be_taken_back(config, summary)


def assert_can_be_taken_back(config: Config, summary: Summary) -> None:
    assert (summary.pending, summary.unaccounted) == (0, 0)
    assert summary.quarantined["images"] + sum(summary.images.values()) == len(expected_ids())
    with Store.open(config.state.dir) as store, store.transaction() as tx:
        tx.quarantine.retry()
    assert run(config, once=True).quarantined == {"files": 0, "batches": 0, "images": 0}
    assert sorted(image_ids(Path(config.state.dir))) == expected_ids()


def test_an_error_of_the_operator_is_one_sentence(config: Config, tmp_path: Path) -> None:
    said = conclad(config, "--set", f"feed.path={tmp_path / 'nowhere'}")
    assert said.returncode == 2
    assert "Traceback" not in said.stderr
    assert [line for line in said.stderr.splitlines() if "no such folder" in line]


def test_an_error_of_ours_is_raised_and_nothing_is_quarantined(
    config: Config, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        def broken(*_: object) -> None:
            raise AssertionError("a bug")

        patched.setattr(actors.coordinator.Coordinator, "_advance_pools", broken)
        with pytest.raises(AssertionError, match="a bug"):
            run(config, once=True)
    assert_as_undisturbed(config, run(config, once=True), undisturbed)


def conclad(config: Config, *flags: str) -> subprocess.CompletedProcess[str]:
    ours = [f"state.dir={config.state.dir}", "backbone.name=tiny", "run.address=none"]
    flags = (*(part for one in ours for part in ("--set", one)), *flags)
    return subprocess.run(
        [sys.executable, "-m", "monitor.cli", "run", "--once", *flags],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CONCLAD_CACHE": str(Path(config.state.dir) / "cache")},
    )


def test_the_whole_table_is_walked() -> None:
    """Whoever adds a kind adds its walk: these have a test of their own, the rest pass."""
    alone = {
        ErrorKind.IMAGE: Treatment.REJECT,
        ErrorKind.FILE: Treatment.QUARANTINE,
        ErrorKind.BATCH: Treatment.BISECT,
        ErrorKind.OPERATOR: Treatment.EXIT,
        ErrorKind.OURS: Treatment.TRACEBACK,
    }
    assert {**alone, **{kind: TREATMENT[kind] for kind in PASSING}} == dict(TREATMENT)
    assert set(PASSING) == OUTAGES | {ErrorKind.WORKER}
