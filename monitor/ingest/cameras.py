"""Cameras that are live: RTSP, HTTP (Motion JPEG, HLS) and V4L2, through PyAV.

A stream that ends, breaks or falls silent is opened again, soon at first and then ever more rarely.
Whoever runs it is told when a camera falls silent and when it is back, and since when.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from monitor.feed.feed_storage import without_secrets
from monitor.ingest.errors import SourceRefused
from monitor.ingest.frames import Frame, Sampling, need_av, open_video, read_frames
from monitor.ingest.ingest_options import Options
from monitor.ingest.reader_items import Handed, Idle, Item, Picture, Repeated, content_digest

SCHEMES = ("rtsp", "rtsps", "rtmp", "http", "https", "udp", "tcp", "srt")
DEVICE, DEVICE_FORMAT = "/dev/video", "v4l2"

OPEN_SECONDS, READ_SECONDS = 10.0, 10.0
"""Cameras answer within a second; after ten without a frame the connection is taken for dead."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""A camera that restarts is back within a minute; one that is gone is asked once a minute."""


@dataclass(slots=True)
class CameraState:
    """What metrics and messages say of a camera; written by its thread, read by others."""

    source_id: str
    last_frame: float
    """On the monotonic clock; the start, as long as none has come."""
    last_seen: datetime | None = None
    is_connected: bool = False
    reconnects: int = 0

    def silent_seconds(self) -> float:
        return max(0.0, time.monotonic() - self.last_frame)


def is_live(address: str) -> bool:
    """
    >>> is_live("rtsp://cam/1"), is_live("/dev/video0"), is_live("videos/a.mp4")
    (True, True, False)
    """
    return urlsplit(address).scheme in SCHEMES or address.startswith(DEVICE)


def camera_name(address: str) -> str:
    """What a camera is called if nobody named it: its host and path, never its password.

    >>> camera_name("rtsp://admin:secret@10.0.0.7:554/stream1?x=1"), camera_name("/dev/video0")
    ('10.0.0.7/stream1', 'video0')
    """
    if address.startswith(DEVICE):
        return address.removeprefix("/dev/")
    parts = urlsplit(address)
    return f"{parts.hostname or parts.scheme}{parts.path.rstrip('/')}"


@dataclass(slots=True)
class LiveSource:
    """One camera: with `follow` for ever, else until its stream ends."""

    address: str
    source_id: str
    options: Options
    stop: threading.Event
    note: Callable[[str], None]
    state: CameraState = field(init=False)

    def __post_init__(self) -> None:
        self.state = CameraState(self.source_id, time.monotonic())

    def pictures(self) -> Iterator[Handed]:
        av, sampling = need_av(self._shown), Sampling(self.options.video)
        pause, last = FIRST_PAUSE, b""
        while not self.stop.is_set():
            seen_before, why = self.state.last_seen, "the stream ended"
            try:
                with open_video(av, self.address, **self._how()) as container:
                    for frame in read_frames(container, self.options.video):
                        if self.stop.is_set():
                            return
                        self._arrived()
                        handed = self._handed(frame, sampling, last)
                        if isinstance(handed, Picture):
                            last, pause = handed.digest(), FIRST_PAUSE
                        if handed is not None:
                            yield handed
            except (av.error.FFmpegError, OSError, ValueError) as error:
                # Not the whole message, which repeats the address with its password.
                why = getattr(error, "strerror", None) or str(error)
            self.state.is_connected = False
            if not self.options.follow:
                self._ended(why)
                return
            if self.state.last_seen == seen_before:
                pause = min(pause * 2, LONGEST_PAUSE)
            yield Idle()
            self._say_silent(why, pause)
            # Not all cameras of a building at once after a power cut.
            self.stop.wait(pause * random.uniform(0.8, 1.2))
            self.state.reconnects += 1

    @property
    def _shown(self) -> str:
        return without_secrets(self.address) if "://" in self.address else self.address

    def _how(self) -> dict[str, Any]:
        how: dict[str, Any] = {"timeout": (OPEN_SECONDS, READ_SECONDS)}
        if self.address.startswith(DEVICE):
            return {"format": DEVICE_FORMAT}
        if self.address.startswith("rtsp"):
            # Over UDP a lossy network leaves grey smears in frames, which look like novelty.
            how["options"] = {"rtsp_transport": "tcp"}
        return how

    def _arrived(self) -> None:
        now = datetime.now(UTC)
        if not self.state.is_connected:
            self.state.is_connected = True
            before = self.state.last_seen
            since = f" after {self.state.silent_seconds():.0f} s without a frame" if before else ""
            self.note(f"{self.source_id}: {'back' if before else 'connected'}{since}")
        self.state.last_frame, self.state.last_seen = time.monotonic(), now

    def _handed(self, frame: Frame, sampling: Sampling, last: bytes) -> Handed | None:
        if not sampling.is_due(time.monotonic()):
            return None
        if not sampling.is_changed(frame):
            return Repeated()
        now = self.state.last_seen
        assert now is not None
        image = frame.encoded(self.options.video.quality)
        # A server that restarts may begin with the frame that it sent last.
        if content_digest(image) == last:
            return Repeated()
        name = f"{now:%Y%m%dT%H%M%S.%fZ}"
        return Picture(Item.of(self.source_id, name), self.source_id, name, now, image)

    def _say_silent(self, why: str, pause: float) -> None:
        seen = self.state.last_seen
        since = f"no frame since {seen:%Y-%m-%d %H:%M:%S} UTC" if seen else "no frame yet"
        self.note(f"{self.source_id}: {since} ({why}); trying again in {pause:.0f} s")

    def _ended(self, why: str) -> None:
        if self.state.last_seen is None:
            raise SourceRefused(
                f"{self._shown}: no picture came ({why}); check the address and the camera"
            )
        self.note(f"{self.source_id}: {why}; with --follow it would be opened again")
