"""Frames of a video or a camera as images: which ones, and their bytes.

JPEG frames (Motion JPEG) are taken as they are, others are decoded and encoded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from monitor.ingest.errors import MissingExtra
from monitor.ingest.ingest_options import VideoOptions

if TYPE_CHECKING:
    import av
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

CELLS = 16
"""A frame is compared in 16 × 16 parts, so that something small in a corner counts as a change."""

MOST_BAD = 500
"""Damaged packets in a row: key frames come every few seconds, so this is no stream but noise."""


def need_av(where: str) -> Any:
    """The module `av`, or the sentence that names the extra."""
    try:
        import av
    except ImportError as error:
        raise MissingExtra(where, "video files and cameras", "video") from error
    # Its own lines on stderr would stand among ours; what matters is raised.
    av.logging.set_level(None)
    return av


@dataclass(slots=True)
class Frame:
    """One frame, decoded only if somebody asks for its pixels."""

    seconds: float | None
    """Since the beginning of the video; None where the stream does not say."""
    jpeg: bytes | None
    decoded: VideoFrame | None = None

    def cells(self) -> NDArray[np.float32]:
        """The grey level of each part."""
        if self.jpeg is not None:
            grey = simplejpeg.decode_jpeg(self.jpeg, "GRAY", min_height=64, min_width=64)[..., 0]
        else:
            assert self.decoded is not None
            grey = self.decoded.reformat(width=128, height=128, format="gray8").to_ndarray()
        return _means(grey)

    def encoded(self, quality: int) -> bytes:
        if self.jpeg is not None:
            return self.jpeg
        assert self.decoded is not None
        pixels = np.ascontiguousarray(self.decoded.to_ndarray(format="rgb24"))
        data: bytes = simplejpeg.encode_jpeg(pixels, quality, "RGB", "420")
        return data


def read_frames(container: InputContainer, options: VideoOptions) -> Iterator[Frame]:
    """Every frame, or every key frame, in the order of its time."""
    stream = container.streams.video[0]
    if options.keyframes:
        stream.codec_context.skip_frame = "NONKEY"
    stream.thread_type = "AUTO"
    bad = _BadPackets()
    if stream.codec_context.name == "mjpeg":
        yield from _jpegs(container, stream, bad)
        return
    for packet in container.demux(stream):
        for frame in _decoded(packet, bad):
            yield Frame(frame.time, None, frame)


@dataclass(slots=True)
class _BadPackets:
    """How many packets in a row could not be decoded."""

    count: int = 0


def _decoded(packet: Packet[VideoStream], bad: _BadPackets) -> list[VideoFrame]:
    """The frames of a packet; none if it is damaged.

    Whoever joins a camera's stream gets pieces of frames until the next key frame, and a radio link
    loses some at any time.
    """
    from av.error import InvalidDataError

    try:
        frames = packet.decode()
    except InvalidDataError:
        bad.count += 1
        if bad.count > MOST_BAD:
            raise
        return []
    bad.count = 0
    return frames


def _jpegs(container: InputContainer, stream: VideoStream, bad: _BadPackets) -> Iterator[Frame]:
    for packet in container.demux(stream):
        data = bytes(packet)
        seconds = None
        if packet.pts is not None and packet.time_base is not None:
            seconds = float(packet.pts * packet.time_base)
        # Old AVI files leave the Huffman tables out, and are no JPEG without them.
        if data[:3] == b"\xff\xd8\xff" and b"\xff\xc4" in data:
            yield Frame(seconds, data)
        elif data:
            for frame in _decoded(packet, bad):
                yield Frame(seconds, None, frame)


@dataclass(slots=True)
class Sampling:
    """Which frames are kept: so many a second, and only those that show a change.

    >>> sampling = Sampling(VideoOptions(fps=2))
    >>> [sampling.is_due(n / 10) for n in range(11)].count(True)
    3
    """

    options: VideoOptions
    _due: float | None = None
    _last: NDArray[np.float32] | None = None

    def is_due(self, seconds: float) -> bool:
        """Whether a frame at this time is one of those wanted."""
        period = 1 / self.options.fps
        # Half a millisecond: times of frames are rounded, and 0.9999 is meant to be 1.
        if self._due is None or seconds < self._due - 2 * period:
            self._due = seconds
        if seconds < self._due - 0.0005:
            return False
        # After a gap the grid starts again instead of catching up with a burst.
        self._due = max(self._due + period, seconds + period / 2)
        return True

    def is_changed(self, frame: Frame) -> bool:
        """Whether any part of the frame differs enough from the last one kept."""
        if not self.options.min_change:
            return True
        cells = frame.cells()
        if self._last is not None and np.abs(cells - self._last).max() < self.options.min_change:
            return False
        self._last = cells
        return True


def _means(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    """
    >>> _means(np.full((40, 50), 7, np.uint8)).shape
    (16, 16)
    """
    rows = np.linspace(0, grey.shape[0], CELLS + 1).astype(int)[:-1]
    columns = np.linspace(0, grey.shape[1], CELLS + 1).astype(int)[:-1]
    values = grey.astype(np.float32)
    sums = np.add.reduceat(np.add.reduceat(values, rows, axis=0), columns, axis=1)
    counts = np.outer(
        np.diff(np.append(rows, grey.shape[0])), np.diff(np.append(columns, grey.shape[1]))
    )
    return np.asarray(sums / counts, np.float32)


def open_video(av_module: Any, where: str, **options: Any) -> InputContainer:
    """A container with a video stream in it; raises what PyAV raises."""
    container: av.container.InputContainer = av_module.open(where, "r", **options)
    if not container.streams.video:
        container.close()
        raise ValueError("there is no video in it")
    return container
