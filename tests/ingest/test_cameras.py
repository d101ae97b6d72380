"""Live cameras: real streams on loopback, cut and brought back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitor.cli.root import run
from monitor.ingest import cameras as live
from monitor.ingest.batches import Limits
from monitor.ingest.errors import SourceRefused
from monitor.ingest.frame_spool import Spool
from monitor.ingest.ingest_job import ingest
from monitor.ingest.ingest_options import Options, VideoOptions
from monitor.ingest.reader_items import Picture
from tests.ingest.cameras import Camera, RtspCamera, number_of
from tests.ingest.making import images, put, rows

OPTIONS = Options(follow=True, limits=Limits(seconds=0.2), video=VideoOptions(fps=20), min_free=0)


@pytest.fixture(params=[Camera, RtspCamera], ids=["mjpeg", "rtsp"])
def camera(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Camera]:
    monkeypatch.setattr(live, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(live, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(live, "READ_SECONDS", 1.0)
    with request.param() as camera:
        yield camera


class Running:
    """An ingest in a thread, with what it says."""

    def __init__(self, address: str, feed: Path, **more: object) -> None:
        self.feed, self.notes, self.stop = feed, list[str](), threading.Event()
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(address, more))

    def _run(self, address: str, more: dict[str, object]) -> None:
        try:
            ingest(
                [address],
                self.feed,
                OPTIONS,
                note=self.notes.append,
                stop=self.stop,
                **more,  # type: ignore[arg-type]
            )
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            self._errors.append(error)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()
        if self._errors:
            raise self._errors[0]

    def wait_for_more(self) -> None:
        before = len(self.numbers())
        wait_for(lambda: len(self.numbers()) > before + 5)

    def is_silent(self) -> bool:
        return "no frame since" in "".join(self.notes[-1:])

    def numbers(self) -> list[int]:
        return [number_of(row["image"]) for row in rows(self.feed)]


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_a_camera_that_goes_away_and_comes_back(camera: Camera, tmp_path: Path) -> None:
    with Running(f"gate={camera.address}", tmp_path / "feed") as running:
        for _ in range(3):
            running.wait_for_more()
            camera.off()
            wait_for(running.is_silent)
            camera.on()
        running.wait_for_more()
    numbers = running.numbers()
    assert len(set(numbers)) == len(numbers), "a frame is in the feed twice"
    assert numbers == sorted(numbers)
    found = rows(tmp_path / "feed")
    assert {row["source_id"] for row in found} == {"gate"}
    times = [row["captured_at"] for row in found]
    assert times == sorted(times)
    assert running.notes[0] == "gate: connected"
    assert sum("back after" in note for note in running.notes) == 3
    assert "secret" not in " ".join(running.notes)


def test_a_camera_that_sends_nothing_is_silent(camera: Camera, tmp_path: Path) -> None:
    port = camera.port + 1 if camera.port < 65000 else 64000
    with Running(camera.address, tmp_path / "feed", metrics=f"127.0.0.1:{port}") as running:
        wait_for(lambda: running.numbers())
        camera.is_frozen = True
        wait_for(lambda: any("no frame since" in note for note in running.notes))
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        silent = re.search(r'conclad_ingest_silent_seconds\{source="127.0.0.1/live"\} (\S+)', page)
        assert silent is not None
        assert float(silent[1]) > 0.9
        assert 'conclad_ingest_images_total{source="127.0.0.1/live"}' in page
        camera.is_frozen = False
        wait_for(lambda: any("back after" in note for note in running.notes))


def test_the_rate_of_images(camera: Camera, tmp_path: Path) -> None:
    began = time.monotonic()
    arguments = [
        "--to",
        str(tmp_path / "feed"),
        "--fps",
        "4",
        "--stop-after",
        "3",
        "--min-free",
        "0",
    ]
    assert run(["ingest", camera.address, *arguments]) == 0
    seconds = time.monotonic() - began
    assert 4 <= len(images(tmp_path / "feed")) <= 4 * seconds + 1


@pytest.mark.parametrize("camera", [RtspCamera], indirect=True, ids=["rtsp"])
def test_joining_in_the_middle_of_a_stream(camera: RtspCamera, tmp_path: Path) -> None:
    """Frames that lean on a key frame which nobody saw are passed over."""
    camera.skipped = 4
    with Running(camera.address, tmp_path / "feed") as running:
        running.wait_for_more()
    assert running.notes == ["127.0.0.1/live: connected"]
    assert min(running.numbers()) >= 1
    assert running.numbers() == sorted(set(running.numbers()))


def test_without_follow_the_end_of_the_stream_is_the_end(camera: Camera, tmp_path: Path) -> None:
    threading.Timer(1.5, camera.off).start()
    options = Options(video=VideoOptions(fps=10))
    done = ingest([camera.address], tmp_path / "feed", options)
    assert done.images == len(images(tmp_path / "feed")) > 0


def test_no_camera_there(tmp_path: Path) -> None:
    address = Camera().address
    with pytest.raises(SourceRefused, match=r"http://127.0.0.1:\d+/live: no picture came \("):
        ingest([address], tmp_path / "feed")


@pytest.mark.parametrize("camera", [Camera], indirect=True, ids=["mjpeg"])
def test_frames_of_a_killed_process_are_not_lost(camera: Camera, tmp_path: Path) -> None:
    """Nobody can ask a camera for them again, so they wait in a file of their own."""
    feed, spool = tmp_path / "feed", tmp_path / "feed/_ingest/default/spool"
    for _ in range(2):
        job = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "monitor.cli",
                "ingest",
                camera.address,
                "--to",
                feed,
                "--follow",
                "--fps",
                "20",
                "--batch-seconds",
                "3600",
                "--min-free",
                "0",
                "-q",
            ],
        )
        _wait_for_growth(spool)
        os.kill(job.pid, signal.SIGKILL)
        job.wait(20)
        assert not list(feed.glob("2*/*.parquet"))
    camera.off()
    (tmp_path / "copy").write_bytes(spool.read_bytes())
    kept = [picture.image for picture in Spool(tmp_path / "copy").left()]
    with pytest.raises(SourceRefused):
        ingest([camera.address], feed)
    done = ingest([camera.address], feed, Options(follow=True), stop=_soon())
    found = [number_of(data) for data in images(feed).values()]
    assert len(found) == len(set(found)) == done.images > 10
    assert sorted(images(feed).values()) == sorted(kept)


def _wait_for_growth(spool: Path) -> None:
    size = spool.stat().st_size if spool.exists() else 0
    wait_for(lambda: spool.exists() and spool.stat().st_size > size + 20_000)


def _soon() -> threading.Event:
    stop = threading.Event()
    threading.Timer(1.0, stop.set).start()
    return stop


def test_a_device_that_is_no_camera_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FFmpeg's own driver of V4L2 is asked, and refuses the file."""
    monkeypatch.setattr("monitor.ingest.cameras.DEVICE", f"{tmp_path}/video")
    put(tmp_path / "video0", b"no camera")
    source = live.LiveSource(f"{tmp_path}/video0", "desk", Options(), threading.Event(), print)
    with pytest.raises(SourceRefused, match=r"video0: no picture came .*ioctl"):
        list(source.pictures())


def test_frames_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """No V4L2 device here: FFmpeg's device that draws takes its place, opened the same way."""
    monkeypatch.setattr("monitor.ingest.cameras.DEVICE", "testsrc2")
    monkeypatch.setattr("monitor.ingest.cameras.DEVICE_FORMAT", "lavfi")
    where = "testsrc2=size=64x64:rate=20:duration=0.5"
    options = Options(video=VideoOptions(fps=1e9))
    source = live.LiveSource(where, "desk", options, threading.Event(), lambda said: None)
    pictures = [one for one in source.pictures() if isinstance(one, Picture)]
    assert len(pictures) == 10
    assert {one.source_id for one in pictures} == {"desk"}
    assert len({one.image_id for one in pictures}) == 10
