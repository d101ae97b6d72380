"""Likely mistakes: one sentence, exit code 2, at once, and nothing left behind."""

from __future__ import annotations

import builtins
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli.root import run
from tests.ingest.making import jpeg, put

Make = Callable[[Path], list[str]]


def _folder(path: Path) -> str:
    put(path / "in/1.jpg", jpeg())
    return str(path / "in")


def _file(path: Path, name: str, data: bytes = b"hello") -> str:
    return str(put(path / name, data))


def _empty(path: Path) -> str:
    (path / "empty").mkdir()
    return str(path / "empty")


# What is asked for, and the beginning of what must be said; {} is the folder of the test.
MISTAKES: dict[str, tuple[Make, str]] = {
    "nothing": (lambda p: [], "nothing to ingest was named"),
    "missing": (lambda p: [f"{p}/nope"], "{}/nope: no such file or folder; check the path"),
    "quoted pattern": (lambda p: [f"{p}/*.jpg"], "{}/*.jpg: no such file or folder; quote nothing"),
    "empty folder": (lambda p: [_empty(p)], "{}/empty: no images in there (found: nothing)"),
    "folder of texts": (
        lambda p: [str(Path(_file(p, "in/a.txt")).parent)],
        "{}/in: no images in there (found: 1 .txt)",
    ),
    "text": (lambda p: [_file(p, "a.txt")], "{}/a.txt: is of no kind that ingest reads"),
    "no image": (lambda p: [_file(p, "a.jpg")], "{}/a.jpg: not an image, whatever its name says"),
    "empty image": (lambda p: [_file(p, "a.jpg", b"")], "{}/a.jpg: the file is empty"),
    "no zip": (lambda p: [_file(p, "a.zip")], "{}/a.zip: cannot be read to its end"),
    "no tar": (lambda p: [_file(p, "a.tar")], "{}/a.tar: cannot be read to its end"),
    "no table": (lambda p: [_file(p, "a.parquet")], "{}/a.parquet: is not whole Parquet"),
    "no video": (lambda p: [_file(p, "a.mp4")], "{}/a.mp4: cannot be played to its end"),
    "no stac": (lambda p: [_file(p, "a.json")], "{}/a.json: is not a STAC item"),
    "bucket": (lambda p: ["s3://key:secret@bucket/x"], "s3://bucket/x: ingest reads from disks"),
    "scheme": (lambda p: ["gopher://x/y"], "gopher://x/y: no camera speaks this"),
    "download": (lambda p: ["http://x/a.zip"], "http://x/a.zip: is a file, not a camera"),
    "device": (lambda p: ["/dev/video97"], "/dev/video97: no such camera"),
    "camera": (lambda p: ["http://u:secret@127.0.0.1:9/"], "http://127.0.0.1:9/: no picture"),
    "pattern": (lambda p: [_folder(p), "--pattern", "{camera}"], "--pattern '{camera}': no field"),
    "pattern without time": (lambda p: [_folder(p), "--pattern", "{time}"], "--pattern '{time}'"),
    "pattern code": (lambda p: [_folder(p), "--pattern", "{time:%Q}"], "--pattern '{time:%Q}': %Q"),
    "pattern brace": (lambda p: [_folder(p), "--pattern", "{id"], "--pattern '{id': a brace"),
    "pattern of nothing": (
        lambda p: [_folder(p), "--pattern", "{source}/x/*.jpg"],
        "1.jpg: its path does not match --pattern",
    ),
    "fps": (lambda p: [_folder(p), "--fps", "0"], "--fps 0: must be more than 0"),
    "overlap": (lambda p: [_folder(p), "--overlap", "512"], "--overlap 512: must be less than"),
    "bands": (lambda p: [_folder(p), "--bands", "red"], "--bands red: numbers with commas"),
    "band zero": (lambda p: [_folder(p), "--bands", "0"], "--bands: bands are counted from 1"),
    "stretch": (lambda p: [_folder(p), "--stretch", "5,1"], "--stretch: two numbers"),
    "zone": (lambda p: [_folder(p), "--timezone", "Mars/X"], "--timezone Mars/X: no such zone"),
    "size": (lambda p: [_folder(p), "--min-free", "lots"], "--min-free lots: give a size"),
    "name": (lambda p: [_folder(p), "--name", "a/b"], "--name 'a/b': letters"),
    "metrics": (lambda p: [_folder(p), "--metrics", "here"], "--metrics here: give HOST:PORT"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_sentence(mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, expected = MISTAKES[mistake]
    arguments = make(tmp_path)
    began = time.monotonic()
    assert run(["ingest", *arguments, "--to", str(tmp_path / "feed"), "-q"]) == 2
    assert time.monotonic() - began < 2
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    assert line.startswith("conclad: " + expected.replace("{}", str(tmp_path), 1)), line
    assert "secret" not in line
    assert not list((tmp_path / "feed").glob("2*")), "nothing was there to be written"


def test_a_wrong_path_leaves_nothing_behind(tmp_path: Path) -> None:
    assert run(["ingest", f"{tmp_path}/nope", "--to", str(tmp_path / "feed")]) == 2
    assert not (tmp_path / "feed").exists()


def test_the_feed_is_the_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _folder(tmp_path)
    assert run(["ingest", folder, "--to", folder]) == 2
    assert "is the feed itself" in capsys.readouterr().err


def test_the_feed_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(tmp_path, "feed")
    assert run(["ingest", _folder(tmp_path), "--to", file]) == 2
    assert "is a file, where --to names the folder of a feed" in capsys.readouterr().err


def test_the_feed_is_a_bucket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ingest", _folder(tmp_path), "--to", "s3://bucket/feed"]) == 2
    assert "ingest writes to a folder" in capsys.readouterr().err


def test_the_feed_may_not_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Where not even the superuser may.
    assert run(["ingest", _folder(tmp_path), "--to", "/proc/feed"]) == 2
    assert "/proc/feed: cannot be written" in capsys.readouterr().err


def test_the_metrics_port_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["--to", str(tmp_path / "feed"), "--metrics", where]
        assert run(["ingest", _folder(tmp_path), *arguments]) == 2
    assert "choose another port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "source", "sentence"),
    [
        ("av", "a.mp4", "a.mp4: video files and cameras need one more package: "
         "pip install 'conclad-monitor[video]'"),
        ("av", "rtsp://u:secret@cam/1", "rtsp://cam/1: video files and cameras need one more"),
        ("rasterio", "s.tif", "s.tif: satellite scenes need one more package: "
         "pip install 'conclad-monitor[geo]'"),
    ],
)  # fmt: skip
def test_missing_extras_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    module: str,
    source: str,
    sentence: str,
) -> None:
    from tests.ingest.test_satellite_scenes import write_scene

    monkeypatch.chdir(tmp_path)
    put(tmp_path / "a.mp4", b"....ftyp")
    write_scene(tmp_path / "s.tif")
    real = builtins.__import__

    def without(name: str, *arguments: object) -> object:
        if name.split(".")[0] == module:
            raise ImportError(name)
        return real(name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert run(["ingest", source, "--to", "feed", "-q"]) == 2
    monkeypatch.undo()
    [line] = capsys.readouterr().err.splitlines()
    assert sentence in line
