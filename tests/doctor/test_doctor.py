"""What is wrong is found, named, and explained; what is well is said to be."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from monitor.cli.root import run
from monitor.config import Config, load
from monitor.doctor import Check, Level, examine
from monitor.doctor.cluster_check import Cluster, examine_cluster, look, resources
from monitor.doctor.machine_check import port, ray_version, shared_memory, space, versions
from monitor.doctor.storage_check import clock, filesystem_of, layout, state_folder
from monitor.jobs.actor_placement import Node
from monitor.jobs.fit_detector import fit
from monitor.store import Store
from tests.jobs.feeds import config_for, write_feed
from tests.store.building import dump

COORDINATOR_TTL = timedelta(seconds=30)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def fitted_once(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A state that knows two classes, fitted once; tests take copies of it."""
    folder = tmp_path_factory.mktemp("doctor")
    config = config_for(folder)
    labelled = write_feed(folder / "labelled.parquet", ["water", "forest"] * 60)
    fit(config, [labelled])
    return config


@pytest.fixture
def config(fitted_once: Config, tmp_path: Path) -> Config:
    shutil.copytree(fitted_once.state.dir, tmp_path / "state")
    (tmp_path / "feed").mkdir()
    return load(
        overrides=[
            f"state.dir={tmp_path / 'state'}",
            f"feed.path={tmp_path / 'feed'}",
            f"backbone.name={fitted_once.backbone.name}",
            f"backbone.engine={fitted_once.backbone.engine}",
            "metrics.port=0",
            "desk.port=0",
        ],
        environ={},
    ).config


def changed(config: Config, section: str, **values: object) -> Config:
    part = getattr(config, section).model_copy(update=values)
    return config.model_copy(update={section: part})


def of(checks: list[Check], name: str) -> Check:
    [found] = [check for check in checks if check.name == name]
    return found


def worst(checks: Iterator[Check]) -> Check:
    return max(checks, key=lambda check: list(Level).index(check.level))


def test_a_machine_that_is_ready(config: Config) -> None:
    with Store.open(config.state.dir) as store:
        before = dump(store)
    checks = list(examine(config))
    assert {check.level for check in checks} <= {Level.GOOD, Level.WARNING}
    assert "detector version 1" in of(checks, "store").sentence
    assert "64 features" in of(checks, "backbone").sentence
    assert "knows 2 classes" in of(checks, "detector").sentence
    with Store.open(config.state.dir) as store:
        assert dump(store) == before, "a doctor changes nothing"


def test_a_fresh_machine_is_told_what_comes_next(config: Config, tmp_path: Path) -> None:
    fresh = changed(config, "state", dir=str(tmp_path / "nothing-yet"))
    checks = list(examine(fresh, quick=True))
    assert of(checks, "store").level is Level.WARNING
    assert "conclad fit" in of(checks, "store").sentence
    assert not (tmp_path / "nothing-yet").exists()


def test_a_detector_of_another_backbone(config: Config) -> None:
    other = changed(config, "backbone", name="mobilenetv3_small_050@random", engine="torch")
    checks = list(examine(other))
    assert of(checks, "backbone").level is Level.GOOD
    assert of(checks, "detector").level is Level.PROBLEM


def test_weights_that_are_not_there(config: Config, tmp_path: Path) -> None:
    other = changed(config, "backbone", weights=str(tmp_path / "gone.pth"), name="resnet18")
    found = of(list(examine(other)), "backbone")
    assert found.level is Level.PROBLEM
    assert "gone.pth" in found.sentence


def test_damage_in_the_store(config: Config) -> None:
    folder = Path(config.state.dir)
    [manifest] = folder.glob("detectors/*/manifest.json")
    manifest.unlink()
    checks = list(examine(config, quick=True))
    assert of(checks, "store").level is Level.PROBLEM
    assert "backup" in of(checks, "store").sentence


def test_older_state_is_left_as_it_is(config: Config, tmp_path: Path) -> None:
    import sqlite3

    folder = tmp_path / "old"
    folder.mkdir()
    with sqlite3.connect(folder / "conclad.db") as old:
        old.execute("CREATE TABLE schema_version (number INTEGER PRIMARY KEY, applied_at TEXT)")
        old.execute("INSERT INTO schema_version VALUES (1, '2024-05-17 00:00:00.000000')")
    old.close()
    older = changed(config, "state", dir=str(folder))
    checks = list(examine(older, quick=True))
    assert of(checks, "store").level is Level.PROBLEM
    assert "fit again" in of(checks, "store").sentence
    assert layout(older) == 1


def test_a_database_that_does_not_answer(config: Config) -> None:
    away = changed(config, "state", url="postgresql://ada:secret@127.0.0.1:1/conclad")
    found = of(list(examine(away, quick=True)), "store")
    assert found.level is Level.PROBLEM
    assert "secret" not in found.sentence


def test_a_feed_that_is_not_there(config: Config) -> None:
    found = of(list(examine(changed(config, "feed", path="/no/such"), quick=True)), "feed")
    assert found.level is Level.PROBLEM
    assert "feed.path" in found.sentence


def test_a_state_that_cannot_be_written(config: Config, tmp_path: Path) -> None:
    # A file in place of the folder stops root too, whom no permission stops.
    blocked = tmp_path / "file"
    blocked.write_text("")
    found = worst(state_folder(changed(config, "state", dir=str(blocked))))
    assert found.level is Level.PROBLEM


def test_a_state_that_others_can_read(config: Config) -> None:
    os.chmod(config.state.dir, 0o777)
    os.chmod(Path(config.state.dir, "conclad.db"), 0o640)
    found = worst(state_folder(config))
    assert found.level is Level.WARNING
    assert "2 files and folders" in found.sentence
    assert "--repair" in found.sentence
    assert "closed 2" in of(list(state_folder(config, repair=True)), "permissions").sentence
    assert of(list(state_folder(config)), "permissions").level is Level.GOOD


def test_sqlite_on_a_network_disk(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    assert filesystem_of(tmp_path / "state", mounts) == "nfs4"
    assert filesystem_of(Path("/usr"), mounts) == "ext4"
    monkeypatch.setattr("monitor.doctor.storage_check.filesystem_of", lambda folder: "nfs4")
    assert "PostgreSQL" in worst(state_folder(config)).sentence


def test_clocks_that_differ(config: Config) -> None:
    with Store.open(config.state.dir) as store:
        with store.transaction() as tx:
            tx.events.append("monitor.started")
        now = datetime.now(UTC)
        assert clock(store, now).level is Level.GOOD
        assert clock(store, now + timedelta(minutes=3)).level is Level.WARNING


def test_a_clock_that_is_behind_the_store(config: Config) -> None:
    with Store.open(config.state.dir) as store, store.transaction() as tx:
        tx.events.append("monitor.started")

    def behind() -> datetime:
        return datetime.now(UTC) - timedelta(hours=1)

    with Store.open(config.state.dir, clock=behind) as store:
        found = clock(store, behind())
    assert found.level is Level.PROBLEM
    assert "future" in found.sentence


def test_a_port_that_somebody_has() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        found = port("desk", "127.0.0.1", number, monitor_runs=False)
        assert found.level is Level.PROBLEM
        assert "desk.port" in found.sentence
        assert port("desk", "127.0.0.1", number, monitor_runs=True).level is Level.GOOD
    assert port("desk", "127.0.0.1", number, monitor_runs=False).level is Level.GOOD


def test_a_running_monitor_explains_its_port(config: Config) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = changed(config, "metrics", port=taken.getsockname()[1])
        assert of(list(examine(busy, quick=True)), "metrics").level is Level.PROBLEM
        with Store.open(config.state.dir) as store:
            store.acquire_lease("coordinator", "elsewhere:1", COORDINATOR_TTL)
        assert of(list(examine(busy, quick=True)), "metrics").level is Level.GOOD


def test_versions_and_space(tmp_path: Path) -> None:
    assert worst(versions((3, 9, 1))).level is Level.PROBLEM
    assert ray_version("2.53.9").level is Level.PROBLEM
    assert ray_version("2.60.0").level is Level.GOOD
    assert ray_version(None).level is Level.PROBLEM
    assert shared_memory(tmp_path / "none").level is Level.WARNING
    assert "GB free" in space(tmp_path / "not" / "yet").sentence


def test_a_cluster_that_nobody_runs() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    found = look(f"127.0.0.1:{number}")
    assert isinstance(found, str)
    assert "nobody listens" in found
    [check] = examine_cluster(Config(), "x", found, "2.60.0")
    assert check.level is Level.PROBLEM


def test_what_the_cluster_lacks() -> None:
    cpus = (Node({"CPU": 0.0}), Node({"CPU": 4.0}), Node({"CPU": 4.0}))
    config = Config()
    assert "room for 2 embedders of 4 CPU each" in resources(config, cpus).sentence
    many = changed(config, "run", embedders=10, embedder_cpus=2.0)
    assert resources(many, cpus).level is Level.WARNING
    assert "room for 4" in resources(many, cpus).sentence
    gpu = changed(config, "run", embedder_gpus=0.5)
    assert resources(gpu, cpus).level is Level.PROBLEM
    assert "0.5 GPU" in resources(gpu, cpus).sentence
    assert resources(gpu, (Node({"CPU": 4.0, "GPU": 1.0}),)).level is Level.GOOD
    site = changed(config, "run", embedder_resources={"harbour": 1.0})
    assert "1 harbour" in resources(site, cpus).sentence
    helpers = changed(config, "run", helper_labels={"role": "helper"})
    assert "label role=helper" in resources(helpers, cpus).sentence
    growing = changed(config, "run", embedders_most=20, embedder_cpus=1.0)
    assert "up to 20 embedders" in resources(growing, cpus).sentence
    checks = list(examine_cluster(config, "head:6379", Cluster("2.59.0", cpus), "2.60.0"))
    assert worst(iter(checks)).sentence.endswith("both must be the same")


def test_the_speed_of_what_the_detector_was_fitted_on(config: Config) -> None:
    checks = list(examine(config, cameras=40))
    first = next(check for check in checks if check.name == "speed")
    assert first.level is Level.GOOD
    assert first.sentence.startswith("float32 at 32 px: ")
    needed = of(checks, "cameras").sentence
    assert needed.startswith("40 cameras with an image a second need ")
    assert "float32 at 32 px" in needed


def test_the_command(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    options = [f"--set=state.dir={config.state.dir}", "--set=metrics.port=0", "--set=desk.port=0"]
    assert run(["doctor", "--quick", *options, f"--set=feed.path={config.feed.path}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Ready")
    assert run(["doctor", "--quick", "--json", *options, "--set=feed.path=/no/such"]) == 3
    shown = json.loads(capsys.readouterr().out)
    assert shown["well"] is False
    assert {"name": "feed", "level": "problem"}.items() <= next(
        check for check in shown["checks"] if check["name"] == "feed"
    ).items()
