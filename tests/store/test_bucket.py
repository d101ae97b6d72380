"""The files of the state in a bucket, and the database beside the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from monitor.store import Store, check, commit_batches, compact, recover
from monitor.store.files import STAGING, current
from tests.store.building import plan_feed, scored, verdict_ids


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    query = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    made, _ = fs.FileSystem.from_uri(f"s3://state?{query}&allow_bucket_creation=true")
    made.create_dir("state")
    yield f"s3://state/monitor?{query}"
    server.stop()


def test_batches_are_committed_recovered_and_merged(bucket: str, tmp_path: Path) -> None:
    with Store.open(tmp_path, files=bucket) as store:
        batches = plan_feed(store, rows=40)
        with store.transaction() as tx:
            pool = tx.pools.open().id
        commit_batches(store, [scored(b, rejected=1, pool=pool) for b in batches[:4]])
        commit_batches(store, [scored(b, pool=pool) for b in batches[4:]])
        expected = verdict_ids(store, current(store.folder, "verdicts"))
        assert len(expected) == 36

        with store.reading() as tx:
            first, _ = tx.outputs.of_kind("verdicts")
        assert first.staged is not None
        store.folder._move(first.name, first.staged)
        store.folder.write(f"{STAGING}/.verdicts-b000000000099.parquet.00.tmp", b"half")
        assert [finding.code for finding in check(store)] == ["unnamed"]
        done = recover(store)
        assert done.named == (first.name,)
        assert done.removed == (f"{STAGING}/.verdicts-b000000000099.parquet.00.tmp",)
        assert store.folder.settle(first.staged, first.name)

        compact(store, "verdicts", owner="me", least_files=2)
        names = current(store.folder, "verdicts")
        assert len(names) == 1
        assert verdict_ids(store, names) == expected
        assert check(store) == []
