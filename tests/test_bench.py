"""What is measured can be measured on a clone that has nothing beside it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bench import peers, store
from bench.drawn import write_scenes

ROOT = Path(__file__).parents[1]


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A bench from somewhere else: nothing of ours lies beside that folder."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import runpy; "
    code += f"sys.argv = {list(arguments)!r}; runpy.run_module(sys.argv[0], run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=300
    )


def test_scenes_are_a_labelled_feed(tmp_path: Path) -> None:
    path = write_scenes(tmp_path / "new" / "scenes.parquet", 30, classes=3)
    table = pq.read_table(path)
    assert Counter(table.column("label").to_pylist()) == {"water": 10, "forest": 10, "fields": 10}
    assert len(set(table.column("image").to_pylist())) == 30
    assert all(jpeg.startswith(b"\xff\xd8") for jpeg in table.column("image").to_pylist())
    assert [p.name for p in path.parent.iterdir()] == ["scenes.parquet"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("bench.throughput", "backbone", "--data", "gone.parquet"), "gone.parquet is no file"),
        (("bench.throughput", "backbones"), "choose from device, nodes, backbone"),
        (("bench.engine", "--images", "10"), "--images: at least 100"),
        (("bench.peers",), "nothing to compare"),
        (("bench.quality",), "name labelled images"),
        (("bench.quality", "gone.parquet"), "no such file: gone.parquet"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    done = python(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_throughput_draws_its_own_images_where_there_are_none(tmp_path: Path) -> None:
    little = ("--images", "64", "--turns", "1", "--address", "none")
    done = python("bench.throughput", "backbone", *little, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "drawing 464 scenes" in done.stdout
    assert "conclad run against conclad score" in done.stdout


def test_the_store_takes_what_its_bench_commits(tmp_path: Path) -> None:
    state = store.open_state(tmp_path, None, sources=2, rows=4)
    assert store.seconds(state, 2, 1, np.random.default_rng(0)) > 0
    with state.store.reading() as tx:
        assert tx.seen.count() == 8
    state.store.close()


def test_a_peer_that_takes_too_long_is_stopped() -> None:
    endless = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    with pytest.raises(peers.PeerMissing, match="took longer than"):
        peers.lines_of(endless, 0.2)


def dry_run(*arguments: str) -> str:
    made = subprocess.run(
        ["make", "-n", "-o", "install", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_evaluate_draws_its_own_images_where_there_are_none() -> None:
    said = dry_run("evaluate", "DATA=out/scenes.parquet", "-W", "nothing")
    assert "conclad evaluate --data out/scenes.parquet" in said
    if not (ROOT / "out" / "scenes.parquet").exists():
        assert "-m bench.drawn out/scenes.parquet" in said
    assert "bench.drawn" not in dry_run("evaluate", "DATA=pyproject.toml")
