"""A camera that comes and goes for an hour: python -m bench.cameras [--minutes 60] [--mjpeg].

A real stream on loopback (H.264 over RTSP, or Motion JPEG over HTTP) is cut after a few seconds,
left off for a few, and brought back, again and again, while `conclad ingest --follow` reads it in a
process of its own that is killed now and then. Every frame carries its number, so at the end it is
known which ones are in the feed twice, and whether each pause of the camera was reported.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.ingest.cameras import Camera, RtspCamera, number_of
from tests.ingest.making import rows


def start(camera: Camera, feed: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "monitor.cli", "ingest", camera.address, "--to", str(feed)]
    options = ["--follow", "--fps", "5", "--batch-seconds", "5", "--min-free", "0"]
    with log.open("ab") as out:
        return subprocess.Popen(command + options, stderr=out, stdout=out)


def main(minutes: float, mjpeg: bool) -> None:
    chance = random.Random(1)
    camera = Camera(fps=10) if mjpeg else RtspCamera(fps=10)
    with tempfile.TemporaryDirectory() as name:
        feed, log = Path(name) / "feed", Path(name) / "log"
        job = start(camera, feed, log)
        cuts = kills = 0
        until = time.monotonic() + minutes * 60
        while time.monotonic() < until:
            camera.on()
            time.sleep(chance.uniform(4, 20))
            if chance.random() < 0.2:
                job.kill()
                job.wait()
                kills += 1
                job = start(camera, feed, log)
                time.sleep(4)
            camera.off()
            cuts += 1
            time.sleep(chance.uniform(0.5, 6))
        camera.on()
        time.sleep(10)
        job.terminate()
        job.wait(30)
        camera.off()
        found = Counter(number_of(row["image"]) for row in rows(feed))
        told = log.read_text()
        print(
            f"{minutes:g} minutes, {cuts} cuts, {kills} kills, {next(camera.numbers)} frames sent"
        )
        print(f"{found.total()} images in the feed, {found.total() - len(found)} of them twice")
        print(f"told: {told.count('no frame since')} silences, {told.count('back after')} returns")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--mjpeg", action="store_true")
    main(**vars(parser.parse_args()))
