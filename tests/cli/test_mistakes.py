"""Likely mistakes: one sentence, exit code 2, and neither torch nor Ray is loaded to tell it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.cli.root import run
from tests.jobs.feeds import config_for, picture, write_feed

# Processor time: the machine may be busy. The first command pays for what all of them import.
MOST_SECONDS = 2.0

ONE_BY_ONE = """
import contextlib, io, json, sys, time
from monitor.cli.root import run
for name, arguments in json.load(sys.stdin).items():
    said, out = io.StringIO(), io.StringIO()
    began = time.process_time()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(out):
        code = run(arguments)
    told = {
        "name": name, "code": code, "said": said.getvalue(), "out": out.getvalue(),
        "seconds": time.process_time() - began,
        "loaded": sorted({"torch", "ray", "timm", "sklearn", "openvino"} & set(sys.modules)),
    }
    print(json.dumps(told), flush=True)
"""

HERE = ["--set", "state.dir=state", "--set", "backbone.name=tiny"]

# The command, and how its sentence begins.
MISTAKES: dict[str, tuple[list[str], str]] = {
    "no state": (["status", "--set", "state.dir=nope"], "nope: holds no state; fit a detector"),
    "fit: no path": (["fit", "--data", "nope"], "nope: no such file or folder"),
    "fit: no match": (["fit", "--data", "nope*.parquet"], "nope*.parquet: no Parquet file match"),
    "fit: empty": (["fit", "--data", "empty"], "empty: no Parquet file matches"),
    "fit: flat": (["fit", "--data", "flat"], "flat: holds images and no class folders; put"),
    "fit: no labels": (["fit", "--data", "bare.parquet"], "{}/bare.parquet: no column 'label'"),
    "fit: text": (["fit", "--data", "text.parquet"], "{}/text.parquet: is not a Parquet file"),
    "fit: state": (
        ["fit", "--data", "labelled.parquet", "--set", "state.dir=/proc/x"],
        "/proc/x: cannot be written (No such file or directory); choose another with --set state",
    ),
    "fit: backbone": (
        ["fit", "--data", "labelled.parquet", "--set", "backbone.name=resnet5"],
        "no backbone is called 'resnet5'; near it are resnet50",
    ),
    "fit: weights": (
        ["fit", "--data", "labelled.parquet", "--set", "backbone.name=resnet50@nope.pth"],
        "nope.pth: no such file of weights",
    ),
    "run: no feed": (["run", *HERE, "--set", "feed.path=nope"], "nope: no such folder; name the"),
    "run: file": (["run", *HERE, "--set", "feed.path=text.parquet"], "text.parquet: is a file, wh"),
    "run: images": (["run", *HERE, "--set", "feed.path=flat"], "flat: holds images and no Parquet"),
    "run: no state": (["run", "--set", "feed.path=feed"], "nope: holds no state; fit a detector"),
    "run: backbone": (
        ["run", "--set", "state.dir=state", "--set", "feed.path=feed"],
        "state: its detector was fitted on features of backbone 'tiny', and backbone.name says",
    ),
    "run: oracle": (
        ["run", *HERE, "--set", "feed.path=feed", "--oracle-column", "truth"],
        "feed/a.parquet: has no column 'truth'",
    ),
    "run: config": (["run", "--config", "nope.yaml"], "nope.yaml: no such configuration"),
    "run: key": (["run", "--set", "feed.pth=x"], "--set feed.pth: unknown key; did you mean"),
    "score: no path": (["score", *HERE, "nope", "--out", "out"], "nope: no such file or folder"),
    "score: out": (["score", *HERE, "feed", "--out", "/proc/x"], "/proc/x: cannot be written"),
    "score: columns": (["score", *HERE, "other.parquet", "--out", "o"], "{}/other.parquet: no col"),
    "embed: out": (["embed", "feed", "--out", "text.parquet/x"], "text.parquet/x: cannot be writt"),
    "desk: port": (["desk", *HERE, "--set", "desk.port={port}"], "127.0.0.1:{port}: cannot listen"),
    "verdicts: out": (["verdicts", *HERE, "--out", "/proc/x/v.csv"], "/proc/x: cannot be written"),
    "backup: out": (["store", "backup", "/proc/x"], "/proc/x: cannot be written"),
    "label: query": (["label", *HERE, "7", "car"], "question 7"),
    "classes: none": (["classes", "retire", *HERE, "nope"], "class 'nope': there is no such class"),
    "detector: none": (["detector", "show", *HERE, "9"], "detector version 9: there is no such"),
    "demo: data": (["demo", "--data", "nope"], "nope: no such file or folder"),
    "demo: dir": (["demo", "--dir", "/proc/x"], "/proc/x: cannot be written"),
    "init: there": (["init", "there.yaml"], "there.yaml: already there"),
    "ingest: none": (["ingest", "nope", "--to", "out"], "nope: no such file or folder"),
    "fit: few": (["fit", "--data", "few"], "too few images to fit and to calibrate T_inner on: a"),
    "fit: other": (["fit", "--data", "other.parquet"], "{}/other.parquet: no column 'image_id'"),
    "fit: cut": (["fit", "--data", "cut.parquet"], "{}/cut.parquet: has no footer yet"),
    "score: cut": (["score", *HERE, "cut.parquet", "--out", "o"], "{}/cut.parquet: has no footer"),
    "score: text": (["score", *HERE, "words.parquet", "--out", "o"], "{}/words.parquet: column 'i"),
    "run: typo": (["run", "--config", "typo.yaml"], "typo.yaml:2:3: feed.pathh: unknown key; did"),
    "run: yaml": (["run", "--config", "broken.yaml"], "broken.yaml:2:1: not valid YAML"),
    "run: type": (["run", *HERE, "--set", "pools.size=many"], "--set pools.size: should be a vali"),
    "run: engine": (["run", *HERE, "--set", "backbone.engine=x"], "--set backbone.engine: should"),
    "run: group": (["run", *HERE, "--group", "north"], "--group north: no such group; the config"),
    "run: database": (["run", *HERE, "--set", "state.url=mysql://x/y"], "mysql://x/y: the store k"),
    "verdicts: class": (["verdicts", *HERE, "--class", "lava"], "class 'lava': there is no class"),
    "classes: name": (["classes", "rename", *HERE, "water", "forest"], "class 'forest': c1 alread"),
    "ingest: empty": (["ingest", "empty", "--to", "o2"], "empty: no images in there (found: noth"),
    "ingest: scene": (["ingest", "-q", "broken.tif", "--to", "o2"], "{}/broken.tif: a TIFF that c"),
    "ingest: jpeg": (["ingest", "-q", "text.jpg", "--to", "o2"], "{}/text.jpg: not an image, what"),
    "ingest: table": (["ingest", "-q", "names.parquet", "--to", "o2"], "{}/names.parquet: no colu"),
    "ingest: video": (["ingest", "-q", "cut.mp4", "--to", "o2"], "{}/cut.mp4: cannot be played"),
    "ingest: to file": (["ingest", "few", "--to", "text.parquet"], "text.parquet: is a file, wher"),
    "ingest: itself": (["ingest", "few", "--to", "few"], "few: is the feed itself; name another"),
    "ingest: bucket": (["ingest", "s3://b/x", "--to", "out"], "s3://b/x: ingest reads from disks"),
    "ingest: camera": (["ingest", "/dev/video77", "--to", "out"], "/dev/video77: no such camera;"),
    "ingest: snapshot": (["ingest", "http://127.0.0.1:9/a.jpg", "--to", "out"], "http://127.0.0.1"),
    "ingest: field": (["ingest", "few", "--to", "out", "--pattern", "{x}/*.jpg"], "--pattern '{x}"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told:
    code: int
    said: str
    out: str
    seconds: float
    loaded: list[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a state that knows two classes, a feed, and what people mistake for them."""
    folder = tmp_path_factory.mktemp("mistakes")
    write_feed(folder / "labelled.parquet", ["water", "forest"] * 60)
    write_feed(folder / "feed/a.parquet", ["water"] * 4)
    pq.write_table(pa.table({"image_id": ["1"], "image": [b"x"]}), folder / "bare.parquet")
    pq.write_table(pa.table({"picture": [b"x"]}), folder / "other.parquet")
    for name in ("empty", "flat"):
        (folder / name).mkdir()
    (folder / "flat/1.png").write_bytes(picture("water", 1))
    for kind in ("a", "b"):
        (folder / "few" / kind).mkdir(parents=True)
        (folder / "few" / kind / "1.png").write_bytes(picture("water", 1))
    for name in ("text.parquet", "text.jpg"):
        (folder / name).write_text("hello")
    (folder / "cut.parquet").write_bytes((folder / "feed/a.parquet").read_bytes()[:3000])
    words = {"image_id": ["1"], "captured_at": ["x"], "source_id": ["a"], "image": ["hello"]}
    pq.write_table(pa.table(words), folder / "words.parquet")
    pq.write_table(pa.table({"id": ["1"], "text": ["hello"]}), folder / "names.parquet")
    (folder / "broken.tif").write_bytes(b"II*\0\xff\xff\xff\0" + bytes(100))
    (folder / "cut.mp4").write_bytes(bytes(2000))
    (folder / "typo.yaml").write_text("feed:\n  pathh: x\n")
    (folder / "broken.yaml").write_text("feed: [1,\n")
    (folder / "there.yaml").touch()
    from monitor.jobs.fit_detector import fit

    fit(config_for(folder), [folder / "labelled.parquet"], cache=folder / "cache")
    return folder


@pytest.fixture(scope="module")
def told(place: Path) -> Iterator[dict[str, Told]]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        commands = {
            name: [one.replace("{port}", port) for one in command]
            for name, (command, _) in MISTAKES.items()
        }
        done = subprocess.run(
            [sys.executable, "-c", ONE_BY_ONE],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(Path.cwd()), "CONCLAD_STATE__DIR": "nope"},
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        found = {line.pop("name"): Told(**line) for line in lines}
        yield {k: Told(t.code, t.said.replace(port, "{port}"), t.out, t.seconds, t.loaded)
               for k, t in found.items()}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_is_one_sentence_at_once(mistake: str, told: dict[str, Told], place: Path) -> None:
    found = told[mistake]
    expected = MISTAKES[mistake][1].replace("{}", str(place))
    assert found.said.startswith(f"conclad: {expected}"), found.said
    assert found.said.count("\n") == 1
    assert (found.code, found.out) == (2, "")
    assert found.loaded == []
    assert found.seconds < MOST_SECONDS


def test_nothing_is_left_behind(told: dict[str, Told], place: Path) -> None:
    assert not [name for name in ("nope", "out", "o") if (place / name).exists()]


def test_whoever_may_only_read_can_look(place: Path) -> None:
    state = place / "state"
    folders = [state, *(path for path in state.rglob("*") if path.is_dir())]
    for path in state.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    state.chmod(0o555)
    # The superuser may write all the same, unless it gives that right up.
    alone = ["setpriv", "--bounding-set=-all"] if os.getuid() == 0 else []

    def look(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*alone, sys.executable, "-m", "monitor.cli", *command],
            capture_output=True,
            text=True,
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            timeout=60,
        )

    before = sorted(path.name for path in (place / "state").iterdir())
    done = look("status", *HERE)
    assert done.returncode == 0, done.stderr
    assert "Detector version 1: 2 classes" in done.stdout
    assert sorted(path.name for path in (place / "state").iterdir()) == before
    refused = look("classes", "retire", *HERE, "water")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    for folder in folders:
        folder.chmod(0o755)  # so that it can be removed


def test_an_unwritable_place_is_a_sentence_wherever_it_is_met(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/data/x")

    monkeypatch.setattr("monitor.cli.root.cli.main", refused)
    assert run([]) == 2
    assert capsys.readouterr().err.startswith("conclad: /data/x: Permission denied; give this user")
