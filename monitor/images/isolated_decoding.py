"""Decoding in processes of its own: a crash, a hang or a bomb costs one image.

Whoever decodes bytes of a feed asks :func:`decoders_for`. Encoded images go into a piece of shared
memory, a decoder (:mod:`monitor.images.decoder_process`) writes their pixels beside them, and the
caller uses those where they lie. A request holds many small images or one large one, so small ones
cost microseconds of it and no more than a few large ones are in memory at any time. Which image a
decoder was at stands in the shared memory: if it dies, that one is tried alone, then rejected, and
the others are decoded by its successor.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.images.decode import MAX_PIXELS, Decoded, Decoding
from monitor.images.decoder_process import FAULTS, MARK
from monitor.images.errors import DecodersFailed
from monitor.images.image_stats import STATS
from monitor.images.reject_reasons import Reason, Rejected
from monitor.images.unchanged_frames import CELLS

MEMORY_BYTES, MEMORY_BYTES_PER_PIXEL = 192 << 20, 8
"""What a decoder may take beside the shared memory: twice the pixels as Pillow holds them, since
WebP and progressive JPEG need as much again. 730 MB for images of 8192 x 8192."""

SECONDS = 3.0
"""Of processor time for an image of 8192 x 8192 pixels; a PNG of that size takes one. Smaller
ones have less (:data:`monitor.images.decoder_process.LEAST_SECONDS` at least)."""

STILL_SECONDS = 2.0
"""A decoder that sleeps for so long waits for nothing that will come: it has no files to read."""

LOOK_SECONDS = 0.5
"""How often a decoder that has not answered is looked at."""

LOST_SECONDS = 60.0
"""After so long without an answer a decoder is ended whatever it does: stopped, or swapped out."""

ENCODED_BYTES, ENCODED_BYTES_PER_PIXEL = 64 << 20, 4
"""The largest file of one image: uncompressed, with four channels, at the limit of pixels."""

REQUEST_BYTES = 16 << 20
"""Encoded images, and pixels, after which a request is full."""

REQUEST_IMAGES = 64
"""So many small images to a request: its own cost, a tenth of a millisecond, is then nothing."""

TRIES = 2
"""Times that a decoder may die of an image: once may have been somebody else's doing."""

_FIRST = mmap.PAGESIZE
"""Where images begin in the arena; before it stands which of them is being decoded."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedPart:
    """What became of some images that follow each other."""

    first: int
    """The position of the first of them."""
    found: tuple[Decoded | Rejected, ...]
    """Pixels lie in shared memory and are overwritten when the next part is asked for."""
    stats: NDArray[np.float32]
    """One row for each that was decoded, if they were asked for."""


def decoders_for(decoding: Decoding) -> Decoders:
    """The decoders of this process with these settings; the first call starts them.

    They are ready half a second later, which is waited for by whoever decodes first.
    """
    with _LOCK:
        if decoding not in _OPEN:
            _OPEN[decoding] = Decoders(decoding)
        return _OPEN[decoding]


class Decoders:
    """As many decoders as there are threads that decode; may be used from all of them.

    >>> with contextlib.closing(Decoders(Decoding())) as decoders:
    ...     [part] = decoders.decode([b"GIF89a"], min_side=None)
    >>> str(part.found[0].reason)
    'unknown_format'
    """

    def __init__(self, decoding: Decoding) -> None:
        self._limits = _Limits.of(decoding)
        self._server = _Server()
        self._idle: LifoQueue[_Decoder] = LifoQueue()

    def decode(
        self, images: Sequence[bytes], *, min_side: int | None, stats: bool = False
    ) -> Iterator[DecodedPart]:
        """Decode images, part by part and in order; each is decoded or has a reason."""
        request = _request(min_side=min_side, stats=stats)
        for first, answer in self._answers(images, request):
            if isinstance(answer, Rejected):
                nothing = np.empty((0, len(STATS)), np.float32)
                yield DecodedPart(first, (answer,), nothing)
            elif isinstance(answer, DecodedPart):
                yield answer

    def signatures(self, images: Sequence[bytes]) -> list[Decoded | None]:
        """Coarse pictures (:mod:`monitor.images.unchanged_frames`), each with its image's size.

        None where an image cannot be decoded. A JPEG costs a third of its whole decoding.
        """
        found: list[Decoded | None] = []
        request = _request(min_side=CELLS, signature=True)
        for _, answer in self._answers(images, request):
            if isinstance(answer, DecodedPart):
                found += [
                    Decoded(one.pixels.copy(), one.size) if isinstance(one, Decoded) else None
                    for one in answer.found
                ]
            else:
                found.append(None)
        return found

    def thumbnail(self, image: bytes, side: int) -> bytes | Rejected:
        """A small JPEG of an image (:func:`monitor.images.thumbnail.render_thumbnail`)."""
        request = _request(thumbnail=side)
        [(_, answer)] = self._answers([image], request)
        if isinstance(answer, DecodedPart):
            raise DecodersFailed("a decoder gave pixels where a thumbnail was asked for")
        return answer

    def close(self) -> None:
        """End the decoders; they are started again if somebody decodes."""
        with contextlib.suppress(Empty):
            while True:
                self._idle.get_nowait().close()
        self._server.close()

    def _answers(
        self, images: Sequence[bytes], request: dict[str, Any]
    ) -> Iterator[tuple[int, DecodedPart | Rejected | bytes]]:
        """What became of the images, in order: parts of them, or single ones."""
        # Positions from ... to ..., and images about which nothing is left to find out.
        waiting: deque[tuple[int, int] | tuple[int, Rejected]] = deque([(0, len(images))])
        deaths: Counter[int] = Counter()
        while waiting:
            first, end = waiting.popleft()
            if isinstance(end, Rejected):
                yield first, end
                continue
            if first == end:
                continue
            some = self._fitting(images, first, end)
            if not some:
                refused = _too_many_bytes(len(images[first]), self._limits.encoded)
                waiting.extendleft([(first + 1, end), (first, refused)])
                continue
            decoder = self._decoder()
            try:
                answer = decoder.ask(some, request, first)
                yield first, answer
                decoder.forget()
            except _DecoderDied as died:
                status = self._server.bury(decoder)
                at = first + min(died.index, len(some) - 1)
                deaths[at] += 1
                # What came before is decoded again, and what comes after by another decoder. The
                # image itself is tried once more, alone.
                why, is_proof = died.judge(status)
                this = (at, why) if is_proof or deaths[at] >= TRIES else (at, at + 1)
                waiting.extendleft([(at + 1, end), this, (first, at)])
            except BaseException:
                # Whoever asked has gone in the middle: what the decoder does now is not known.
                self._server.bury(decoder)
                raise
            else:
                self._idle.put(decoder)
                done = len(answer.found) if isinstance(answer, DecodedPart) else 1
                waiting.appendleft((first + done, end))

    def _fitting(self, images: Sequence[bytes], first: int, end: int) -> list[bytes]:
        """As many of the images as a request takes; none if the first alone is too large."""
        some: list[bytes] = []
        size = 0
        for image in images[first : min(end, first + REQUEST_IMAGES)]:
            size += len(image)
            if size > (REQUEST_BYTES if some else self._limits.encoded):
                break
            some.append(image)
        return some

    def _decoder(self) -> _Decoder:
        with contextlib.suppress(Empty):
            return self._idle.get_nowait()
        return self._server.fork(self._limits)


def _request(
    *,
    min_side: int | None = None,
    stats: bool = False,
    thumbnail: int | None = None,
    signature: bool = False,
) -> dict[str, Any]:
    return {"min_side": min_side, "stats": stats, "thumbnail": thumbnail, "signature": signature}


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a decoder may use, by the largest image that it may meet."""

    decoding: Decoding
    memory: int
    seconds: float
    encoded: int
    arena: int

    @classmethod
    def of(cls, decoding: Decoding) -> _Limits:
        pixels = decoding.max_pixels
        encoded = max(ENCODED_BYTES, ENCODED_BYTES_PER_PIXEL * pixels)
        # Encoded images; pixels up to where a request is full, and one more image; their stats.
        room = encoded + REQUEST_BYTES + 3 * pixels + REQUEST_BYTES
        return cls(
            decoding,
            memory=MEMORY_BYTES + MEMORY_BYTES_PER_PIXEL * pixels,
            seconds=SECONDS * max(1.0, pixels / MAX_PIXELS),
            encoded=encoded,
            arena=_FIRST + -(-room // mmap.PAGESIZE) * mmap.PAGESIZE,
        )


class _DecoderDied(Exception):
    """A decoder is gone, or is not to be waited for any longer."""

    def __init__(self, index: int, *, is_late: bool = False) -> None:
        super().__init__(index)
        self.index, self.is_late = index, is_late

    def judge(self, status: int) -> tuple[Rejected, bool]:
        """Why the image is to be rejected, and whether once is proof: time is never lost twice."""
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if ended_by == signal.SIGPROF:
            return Rejected(Reason.TOO_LARGE, "takes too long to decode"), True
        if self.is_late:
            return Rejected(Reason.DECODER_DIED, "its decoder hangs and was ended"), True
        name = signal.Signals(ended_by).name if ended_by else "an error"
        return Rejected(Reason.DECODER_DIED, f"its decoder died of it each time ({name})"), False


class _Server:
    """Where decoders come from. May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        with self._lock:
            self._start()

    def fork(self, limits: _Limits) -> _Decoder:
        ours, theirs = socket.socketpair()
        shared = os.memfd_create("conclad-decoder", os.MFD_CLOEXEC)
        try:
            os.ftruncate(shared, limits.arena)
            asked = {
                "decoding": asdict(limits.decoding),
                "arena": limits.arena,
                "memory": limits.memory,
                "seconds": limits.seconds,
            }
            number = self._ask(asked, [theirs.fileno(), shared])
            arena = mmap.mmap(shared, limits.arena)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(shared)
        return _Decoder(number, Connection(ours.detach()), arena)

    def bury(self, decoder: _Decoder) -> int:
        """End a decoder; how it ended."""
        decoder.close()
        with contextlib.suppress(DecodersFailed):
            return self._ask({"bury": decoder.number}, [])
        return 0

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _ask(self, message: dict[str, Any], handles: list[int]) -> int:
        with self._lock:
            if self._control is None:
                self._start()
            assert self._control is not None
            try:
                socket.send_fds(self._control, [json.dumps(message).encode()], handles)
                answer = self._control.recv(64)
            except OSError as error:
                self._stop()
                raise DecodersFailed(f"the decoders of images died ({error})") from error
            if not answer:
                self._stop()
                raise DecodersFailed(
                    "the decoders of images died or cannot start; run "
                    f"{sys.executable} -m monitor.images.decoder_process 0 to see why"
                )
            return int(answer)

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "monitor.images.decoder_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # No secrets: neither credentials of buckets nor addresses of databases.
                env=_environment(),
            )

    def _stop(self) -> None:
        if self._control is not None and self._process is not None:
            self._control.close()
            # It ends when it sees that; its decoders end with it.
            self._process.wait()
        self._control = self._process = None


def _environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    # Threads of numpy's would count as memory, each with a stack of megabytes.
    fixed = {"PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}
    fixed |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    kept = ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", FAULTS)
    return {name: os.environ[name] for name in kept if name in os.environ} | fixed


class _Decoder:
    """One process that decodes, and the memory that it shares. For one thread at a time."""

    def __init__(self, number: int, pipe: Connection, arena: mmap.mmap) -> None:
        self.number = number
        self._pipe, self._arena = pipe, arena
        self._bytes = np.frombuffer(arena, np.uint8)
        self._used = 0

    def ask(
        self, images: Sequence[bytes], request: dict[str, Any], first: int
    ) -> DecodedPart | Rejected | bytes:
        """Raises _DecoderDied if there will be no answer."""
        spans, free = [], _FIRST
        self._used = sum(map(len, images))
        for image in images:
            self._arena[free : free + len(image)] = image
            spans.append((free, len(image)))
            free += len(image)
        asked = {**request, "spans": spans, "free": free, "enough": free + REQUEST_BYTES}
        try:
            self._pipe.send_bytes(json.dumps(asked).encode())
            self._wait()
            answer = json.loads(self._pipe.recv_bytes(1 << 20))
        except (OSError, EOFError, ValueError) as error:
            raise _DecoderDied(self._index()) from error
        # From here on nothing is believed: whoever took over a decoder may answer anything.
        try:
            found = tuple(map(self._result, answer["found"]))
            if not 0 < len(found) <= len(images):
                raise ValueError(f"{len(found)} answers about {len(images)} images")
            if request["thumbnail"] is not None:
                return _thumbnail(found[0])
            pictures = tuple(map(_picture, found))
            rows = sum(isinstance(one, Decoded) for one in pictures) if request["stats"] else 0
            stats = self._place(answer["stats"], rows * len(STATS) * 4) if rows else b""
            table = np.frombuffer(stats, np.float32).reshape(-1, len(STATS)).copy()
            return DecodedPart(first, pictures, table)
        except (LookupError, TypeError, ValueError) as error:
            raise _DecoderDied(self._index()) from error

    def forget(self) -> None:
        """Give back the memory of a large image."""
        if self._used > 2 * REQUEST_BYTES:
            start = _FIRST + 2 * REQUEST_BYTES
            self._arena.madvise(mmap.MADV_REMOVE, start, len(self._arena) - start)

    def close(self) -> None:
        self._pipe.close()

    def _result(self, said: Sequence[Any]) -> Decoded | Rejected | bytes:
        what, *rest = said
        if what == "rejected":
            return Rejected(Reason(rest[0]), str(rest[1]))
        if what == "bytes":
            return self._place(*map(int, rest)).tobytes()
        start, height, width, *size = map(int, rest)
        pixels = self._place(start, height * width * 3).reshape(height, width, 3)
        return Decoded(pixels, (size[0], size[1]))

    def _place(self, start: int, length: int) -> NDArray[np.uint8]:
        if start < _FIRST or length < 0 or start + length > len(self._bytes):
            raise ValueError("outside of the shared memory")
        self._used = max(self._used, start + length)
        return self._bytes[start : start + length]

    def _index(self) -> int:
        """Which image it was at."""
        return int(MARK.unpack_from(self._arena)[0])

    def _wait(self) -> None:
        """Wait for the answer for as long as the decoder works at it."""
        began = worked_at = time.monotonic()
        worked = -1
        while not self._pipe.poll(LOOK_SECONDS):
            now = time.monotonic()
            state, ticks = _progress(self.number)
            if ticks != worked or state != "S":
                worked, worked_at = ticks, now
            if now - worked_at > STILL_SECONDS:
                raise _DecoderDied(self._index(), is_late=True)
            if now - began > LOST_SECONDS:
                raise _DecoderDied(self._index())


def _progress(number: int) -> tuple[str, int]:
    """What a process does, and how long it has computed."""
    with open(f"/proc/{number}/stat", "rb") as stat:
        words = stat.read().rpartition(b")")[2].split()
    return words[0].decode(), int(words[11]) + int(words[12])


def _thumbnail(found: Decoded | Rejected | bytes) -> Rejected | bytes:
    if isinstance(found, Decoded):
        raise TypeError("pixels where a thumbnail was asked for")
    return found


def _picture(found: Decoded | Rejected | bytes) -> Decoded | Rejected:
    if isinstance(found, bytes):
        raise TypeError("bytes where pixels were asked for")
    return found


def _too_many_bytes(size: int, most: int) -> Rejected:
    return Rejected(Reason.TOO_LARGE, f"{size} bytes; an image has at most {most}")


_OPEN: dict[Decoding, Decoders] = {}
_LOCK = threading.Lock()


def close_decoders() -> None:
    """End all decoders of this process; called at its end."""
    with _LOCK:
        for decoders in _OPEN.values():
            decoders.close()
        _OPEN.clear()


atexit.register(close_decoders)
# A fork must not talk through its parent's sockets.
os.register_at_fork(after_in_child=_OPEN.clear)
