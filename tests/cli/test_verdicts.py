"""``conclad verdicts`` writes both kinds of verdict as one table."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.cli.export_formats import WRITERS
from monitor.cli.root import run
from monitor.store import Store
from monitor.store.read_verdicts import STANDING
from monitor.store.record_states import ClassOrigin
from tests.store.building import commit_batch, plan_feed, scored, settle_pool


@pytest.fixture
def state(tmp_path: Path) -> str:
    with Store.open(tmp_path / "state") as store:
        with store.transaction() as tx:
            tx.classes.add("water", ClassOrigin.FIT, class_id="class-1")
            tx.classes.add("dune", ClassOrigin.PERSON, class_id="class-9")
            tx.pools.open()
        first, second, _ = plan_feed(store)
        commit_batch(store, scored(first, pool=1))
        commit_batch(store, scored(second, source="cam-2"))
        settle_pool(store)
    return f"state.dir={tmp_path / 'state'}"


def lines(capfd: pytest.CaptureFixture[str], *options: str) -> list[dict[str, object]]:
    assert run(["verdicts", "--format", "jsonl", *options]) == 0
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_a_spreadsheet_runs_nothing_of_an_export(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "plain = 1"]
    with Store.open(tmp_path / "state") as store:
        for number, name in enumerate(names):
            [batch] = plan_feed(store, f"{number}.parquet", rows=2, size=2)
            commit_batch(store, scored(batch, source=name))
    state = f"state.dir={tmp_path / 'state'}"
    assert {row["source_id"] for row in lines(capfd, "--set", state)} == set(names)
    assert run(["verdicts", "--set", state]) == 0
    table = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
    assert {row["source_id"] for row in table} == {*(f"'{name}" for name in names[:4]), names[4]}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_texts_of_every_length_are_made_plain(kind: pa.DataType) -> None:
    names = pa.array(["=1+1", "plain", None], kind)
    batch = pa.RecordBatch.from_arrays([names], names=["source_id"])
    sink = io.BytesIO()
    WRITERS["csv"]([batch], batch.schema, sink)
    assert sink.getvalue().decode() == '"source_id"\n"\'=1+1"\n"plain"\n\n'


def test_the_formats_hold_the_same_rows(
    state: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = lines(capfd, "--set", state)
    assert len(rows) == 8
    assert list(rows[0]) == STANDING.names
    assert rows[1]["class_name"] == "dune"
    assert rows[1]["captured_at"] == "2024-05-17T05:00:00+00:00"
    assert run(["verdicts", "--set", state]) == 0
    table = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
    assert [row["image_id"] for row in table] == [row["image_id"] for row in rows]
    assert [row["settled_verdict"] for row in table[:5]] == ["known", "new", "known", "new", ""]
    out = tmp_path / "all.parquet"
    assert run(["verdicts", "--format", "parquet", "--out", str(out), "--set", state]) == 0
    assert "8 verdicts" in capfd.readouterr().err
    found = pq.read_table(out)
    assert found.schema.equals(STANDING)
    assert found.column("class_id").to_pylist() == [row["class_id"] for row in rows]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.parquet", "state"]


def test_filters(state: str, capfd: pytest.CaptureFixture[str]) -> None:
    def images(*options: str) -> list[str]:
        return [str(row["image_id"])[-1] for row in lines(capfd, *options, "--set", state)]

    assert images("--source", "cam-2") == list("4567")
    assert images("--verdict", "new") == list("13")
    assert images("--verdict", "novel") == list("57")
    assert images("--class", "dune") == images("--class", "class-9") == list("13")
    assert images("--since", "2024-05-18") == images("--until", "2024-05-17") == []
    assert len(images("--since", "2024-05-17", "--until", "2024-05-18")) == 8


def test_a_mistake_writes_nothing(
    state: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    assert run(["verdicts", "--class", "steppe", "--out", str(out), "--set", state]) == 2
    assert "there is no class with this id or name" in capfd.readouterr().err
    assert not out.exists()


def test_it_reads_while_the_monitor_writes_and_loads_no_backbone(
    state: str, tmp_path: Path
) -> None:
    script = (
        "import sys; from monitor.cli.root import run;"
        f"code = run(['verdicts', '--set', {state!r}, '--out', {str(tmp_path / 'o.csv')!r}]);"
        "print(code, sorted({'torch', 'ray', 'timm'} & set(sys.modules)))"
    )
    with Store.open(tmp_path / "state") as store:
        lease = store.acquire_lease("coordinator", "test", timedelta(days=1))
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
        )
        store.release_lease(lease)
    assert done.stdout.split(maxsplit=1) == ["0", "[]\n"]
