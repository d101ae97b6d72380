"""A camera that comes and goes for an hour: python -m bench.cameras [--minutes 60] [--mjpeg].

A real stream on loopback (H.264 over RTSP, or Motion JPEG over HTTP) is cut after a few seconds,
left off for a few, and brought back, again and again, while `conclad ingest --follow` reads it in a
process of its own that is killed now and then. Every frame carries its number, so at the end it is
known which ones are in the feed twice. Every pause of the camera must be reported, and every gap in
the feed must be one of these pauses or a kill.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from tests.ingest.cameras import Camera, RtspCamera, number_of
from tests.ingest.making import rows

GAP = 3.0
"""Seconds without an image that count as a gap; at five images a second nothing else is."""
NEAR = 1.5
"""Seconds that a frame may be on its way."""


def start(camera: Camera, feed: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "monitor.cli", "ingest", camera.address, "--to", str(feed)]
    options = ["--follow", "--fps", "5", "--batch-seconds", "5", "--min-free", "0"]
    with log.open("ab") as out:
        return subprocess.Popen(command + options, stderr=out, stdout=out)


@dataclass(slots=True)
class Hour:
    """When the camera was off, by the clock, and when the reading process was killed."""

    pauses: list[tuple[float, float]] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)


def play(camera: Camera, feed: Path, log: Path, minutes: float) -> Hour:
    chance, hour = random.Random(1), Hour()
    job = start(camera, feed, log)
    until = time.monotonic() + minutes * 60
    while time.monotonic() < until:
        camera.on()
        time.sleep(chance.uniform(4, 20))
        if chance.random() < 0.2:
            job.kill()
            job.wait()
            hour.kills.append(time.time())
            job = start(camera, feed, log)
            time.sleep(8)
        camera.off()
        off = time.time()
        time.sleep(chance.uniform(0.5, 6))
        hour.pauses.append((off, time.time()))
    camera.on()
    time.sleep(10)
    job.terminate()
    job.wait(30)
    camera.off()
    return hour


def unreported(hour: Hour, told: str) -> list[tuple[float, float]]:
    """Pauses of which no line says that frames stopped then.

    Frames may be on their way for a moment after the camera was cut, and the time in a message has
    whole seconds. A process that has not received a frame yet says so.
    """
    since = re.findall(r"no frame since ([-0-9]+ [:0-9]+) UTC", told)
    said = [datetime.fromisoformat(one).replace(tzinfo=UTC).timestamp() for one in since]
    return [
        (off, on)
        for off, on in hour.pauses
        if not any(off - 3 <= one <= off + NEAR for one in said)
    ]


def unexplained(hour: Hour, times: list[float]) -> list[tuple[float, float]]:
    """Gaps between images of the feed with neither a pause nor a kill in them."""
    moments = [off for off, _ in hour.pauses] + hour.kills
    return [
        (before, after)
        for before, after in pairwise(times)
        if after - before > GAP
        and not any(before - NEAR <= moment <= after + NEAR for moment in moments)
    ]


def main(minutes: float, mjpeg: bool) -> None:
    camera = Camera(fps=10) if mjpeg else RtspCamera(fps=10)
    with tempfile.TemporaryDirectory() as name:
        feed, log = Path(name) / "feed", Path(name) / "log"
        hour = play(camera, feed, log, minutes)
        images = rows(feed)
        found = Counter(number_of(row["image"]) for row in images)
        times = sorted(row["captured_at"].timestamp() for row in images)
        told = log.read_text()
        print(
            f"{minutes:g} minutes, {len(hour.pauses)} pauses, {len(hour.kills)} kills, "
            f"{next(camera.numbers)} frames sent"
        )
        print(f"{found.total()} images in the feed, {found.total() - len(found)} of them twice")
        print(f"told: {told.count('no frame')} silences, {told.count('back after')} returns")
        print(f"{len(unreported(hour, told))} pauses that no message reports")
        gaps = unexplained(hour, times)
        print(f"{len(gaps)} gaps of the feed that are neither a pause nor a kill")
        for before, after in gaps[:20]:
            print(f"  {datetime.fromtimestamp(before, UTC):%H:%M:%S}, {after - before:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--mjpeg", action="store_true")
    main(**vars(parser.parse_args()))
