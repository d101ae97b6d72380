"""The monitor on several machines for real: own addresses, a token, and a node that dies."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from monitor.jobs.fit_detector import fit
from monitor.store import Store, check
from monitor.store.verdict_columns import current, read_table
from tests.deploy.manifests import DEPLOY
from tests.deploy.nodes import BIN, network, wait_for
from tests.jobs.feeds import config_for, write_feed

FILES, ROWS = 12, 64
GAVE_UP = "The current node timed out during startup"


def known_images(store: Store) -> int:
    with store.reading() as tx:
        return int(sum(count.value for count in tx.counters.all("images")))


@pytest.mark.timeout(400)
def test_the_monitor_runs_across_nodes_and_outlives_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    config = config_for(tmp_path, f"feed.path={tmp_path / 'feed'}")
    fit(config, [write_feed(tmp_path / "labelled.parquet", ["water", "forest"] * 60)])
    for number in range(FILES):
        write_feed(
            tmp_path / "feed" / f"{number:03d}.parquet",
            ["water", "forest"] * (ROWS // 2),
            first_id=10_000 + number * ROWS,
            source=f"cam-{number % 3}",
        )
    with network() as net:
        head, one, two, driver = (net.add(name) for name in ("head", "one", "two", "driver"))
        address = net.ray_head(head)
        net.ray_worker(one, address)
        net.ray_worker(two, address)

        # From a machine of the cluster: a Ray driver needs a node beside it.
        seen = net.ask(one, str(BIN / "python"), "-m", "actors.cluster_probe", address)
        nodes = json.loads(seen.stdout.splitlines()[-1])["nodes"]
        assert sorted(node["resources"].get("CPU", 0.0) for node in nodes) == [0.0, 1.0, 1.0]

        log = (tmp_path / "log").open("wb")

        def start() -> subprocess.Popen[bytes]:
            return net.start(
                driver,
                str(DEPLOY / "docker" / "conclad-node"),
                str(BIN / "conclad"),
                "run",
                "--once",
                f"--config={tmp_path / 'empty.yaml'}",
                *_settings(tmp_path),
                log=log,
                RAY_HEAD=address,
                RAY_NODE_IP=driver.address,
                CONCLAD_CACHE=str(tmp_path / "cache"),
            )

        runs = [start()]
        with log, Store.open(tmp_path / "state") as store:

            def working() -> bool:
                if runs[-1].poll() is not None:
                    said = (tmp_path / "log").read_text()
                    # Ray gives a node thirty seconds to start, which a crowded machine may not
                    # have. The container would be started again.
                    assert said.count(GAVE_UP) == len(runs) < 3, said[-3000:]
                    runs.append(start())
                return known_images(store) > 0

            wait_for(working, 200, what="a first verdict")
            net.kill(one)
            assert runs[-1].wait(150) == 0, (tmp_path / "log").read_text()[-3000:]
            assert known_images(store) == FILES * ROWS
            rows = [read_table(store.folder, name) for name in current(store.folder, "verdicts")]
            images = sorted(image for table in rows for image in table["image_id"].to_pylist())
            assert images == [f"{10_000 + number:06d}" for number in range(FILES * ROWS)]
            assert [f for f in check(store) if f.severity == "error"] == []


def _settings(folder: Path) -> list[str]:
    return [
        f"--set={setting}"
        for setting in (
            "backbone.name=tiny",
            "backbone.engine=torch",
            f"feed.path={folder / 'feed'}",
            f"state.dir={folder / 'state'}",
            "feed.batch_rows=8",
            "run.embedders=2",
            "run.embedder_cpus=1",
            "metrics.enabled=false",
            "desk.enabled=false",
        )
    ]
