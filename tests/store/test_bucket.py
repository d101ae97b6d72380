"""The files of the state in a bucket, and the database beside the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.store import Store, check, commit_batches, compact, recover
from monitor.store.note_and_counter_names import STAGING
from monitor.store.verdict_columns import current
from tests.buckets import bucket_at
from tests.store.building import plan_feed, scored, verdict_ids


@pytest.fixture(params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with bucket_at(request.param, "state", monkeypatch) as at:
        yield at.format("state/monitor")


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
