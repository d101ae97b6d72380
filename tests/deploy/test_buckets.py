"""What the overlay s3-postgres puts together, without the cluster: buckets and a database server.

The feed and the files of the state are on a real S3 server on loopback, the ledger in a real
PostgreSQL, and the monitor drains the feed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import psycopg
import pytest
from moto.server import ThreadedMotoServer

from actors.run_monitor import run
from monitor.cli.root import run as conclad
from monitor.config import Config, load
from monitor.jobs.fit_detector import fit
from monitor.jobs.from_config import open_store
from monitor.store import check
from monitor.store.verdict_columns import current, read_table
from tests.jobs.feeds import write_feed
from tests.store.postgres import server

FILES, ROWS = 3, 40


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with server() as url:
        with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE conclad")
        yield f"{url}/conclad"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    host, port = moto.get_host_and_port()
    address = f"http://{host}:{port}"
    # As the overlay sets them, from its ConfigMap and its Secret.
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    yield address
    moto.stop()


def test_feed_and_state_in_buckets_ledger_in_postgresql(
    endpoint: str,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    bucket = boto3.client("s3", endpoint_url=endpoint)
    for name in ("conclad-feed", "conclad-state"):
        bucket.create_bucket(Bucket=name)
    for number in range(FILES):
        path = write_feed(
            tmp_path / f"{number}.parquet",
            ["water", "forest"] * (ROWS // 2),
            first_id=1000 + number * ROWS,
        )
        bucket.upload_file(str(path), "conclad-feed", f"cam-1/{path.name}")
    settings = [
        "feed.path=s3://conclad-feed",
        "state.dir=s3://conclad-state/monitor",
        f"state.url={database}",
        "backbone.name=tiny",
        "backbone.engine=torch",
        "run.address=none",
        "feed.batch_rows=16",
    ]
    config: Config = load(overrides=settings, environ={}).config
    fit(config, [write_feed(tmp_path / "labelled.parquet", ["water", "forest"] * 60)])
    summary = run(config, once=True)
    assert sum(summary.images.values()) == FILES * ROWS
    with open_store(config) as store:
        assert [found for found in check(store) if found.severity == "error"] == []
        tables = [read_table(store.folder, name) for name in current(store.folder, "verdicts")]
        images = sorted(image for table in tables for image in table["image_id"].to_pylist())
    assert images == [f"{1000 + number:06d}" for number in range(FILES * ROWS)]
    objects = bucket.list_objects_v2(Bucket="conclad-state")["Contents"]
    assert any(found["Key"].startswith("monitor/verdicts/") for found in objects)

    options = [f"--set={setting}" for setting in settings]
    assert conclad(["doctor", "--quick", *options, "--set=metrics.port=0"]) == 0
    assert "s3://conclad-state/monitor can be written" in capsys.readouterr().out
    assert conclad(["store", "backup", str(tmp_path / "backup"), *options]) == 0
    again = [f"--set=state.dir={tmp_path / 'moved'}"]
    assert conclad(["store", "restore", str(tmp_path / "backup"), *again]) == 0
    assert conclad(["store", "check", *again]) == 0
