"""Video files: the frames that were asked for, with their moments."""

from __future__ import annotations

import io
import os
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from monitor.ingest.ingest_job import ingest
from monitor.ingest.ingest_options import Options, VideoOptions
from tests.ingest.making import OLD, images, moment, rows


def shade(number: int) -> int:
    """The grey level of a frame, far enough from its neighbours' to survive a codec."""
    return 20 + 10 * (number % 20)


def write_video(
    path: Path,
    *,
    frames: int,
    fps: int = 10,
    codec: str = "mpeg4",
    shades: list[int] | None = None,
    began: str | None = None,
    group: int = 10,
) -> Path:
    """A video of plain frames, each of its own grey level."""
    with av.open(str(path), "w") as out:
        if began:
            out.metadata["creation_time"] = began
        stream: Any = out.add_stream(codec, rate=fps)
        stream.width, stream.height = 64, 48
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.codec_context.time_base = Fraction(1, fps)
        stream.codec_context.gop_size = group
        # Or every change of shade would be a key frame.
        stream.codec_context.options = {"sc_threshold": "1000000000"}
        for number in range(frames):
            level = shades[number] if shades else shade(number)
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), level, np.uint8), "rgb24")
            frame.pts = number
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    os.utime(path, (OLD, OLD))
    return path


def levels(feed: Path) -> list[int]:
    found = sorted(images(feed).items())
    return [
        int(np.mean(np.asarray(Image.open(io.BytesIO(data)).convert("L")))) for _, data in found
    ]


@pytest.mark.parametrize(
    ("fps", "expected"), [(10, range(30)), (5, range(0, 30, 2)), (1, (0, 10, 20))]
)
def test_frames_at_a_rate(tmp_path: Path, fps: float, expected: range) -> None:
    video = write_video(tmp_path / "door.mp4", frames=30)
    ingest([str(video)], tmp_path / "feed", Options(video=VideoOptions(fps=fps)))
    assert levels(tmp_path / "feed") == pytest.approx([shade(n) for n in expected], abs=4)
    assert {row["source_id"] for row in rows(tmp_path / "feed")} == {"door"}


def test_frames_know_their_moment(tmp_path: Path) -> None:
    video = write_video(tmp_path / "door.mp4", frames=30, began="2026-03-11T07:00:00.000000Z")
    ingest([str(video)], tmp_path / "feed")
    times = [row["captured_at"] for row in rows(tmp_path / "feed")]
    began = moment("2026-03-11T07:00:00+00:00")
    assert times == [began + timedelta(seconds=n) for n in range(3)]
    assert sorted(images(tmp_path / "feed")) == [f"door.mp4#{n * 1000:09d}" for n in range(3)]


def test_key_frames_only(tmp_path: Path) -> None:
    video = write_video(tmp_path / "door.mp4", frames=30, group=15)
    ingest([str(video)], tmp_path / "feed", Options(video=VideoOptions(fps=100, keyframes=True)))
    assert levels(tmp_path / "feed") == pytest.approx([shade(0), shade(15)], abs=4)


def test_frames_that_show_no_change_are_skipped(tmp_path: Path) -> None:
    shades = [50] * 10 + [120] * 10 + [122] * 5 + [50] * 5
    video = write_video(tmp_path / "door.mp4", frames=30, shades=shades)
    options = Options(video=VideoOptions(fps=10, min_change=20))
    done = ingest([str(video)], tmp_path / "feed", options)
    assert levels(tmp_path / "feed") == pytest.approx([50, 120, 50], abs=4)
    assert done.repeated == 27


def test_motion_jpeg_is_not_encoded_again(tmp_path: Path) -> None:
    video = write_video(tmp_path / "door.avi", frames=5, codec="mjpeg")
    ingest([str(video)], tmp_path / "feed", Options(video=VideoOptions(fps=10)))
    with av.open(str(video)) as container:
        packets = [bytes(packet) for packet in container.demux() if packet.size]
    assert [images(tmp_path / "feed")[f"door.avi#{n * 100:09d}"] for n in range(5)] == packets


def test_other_rates_add_only_what_is_missing(tmp_path: Path) -> None:
    video = write_video(tmp_path / "door.mp4", frames=30)
    for fps, new in ((1, 3), (1, 0), (2, 3), (1, 0)):
        done = ingest([str(video)], tmp_path / "feed", Options(video=VideoOptions(fps=fps)))
        assert done.images == new
