"""The processes in which image bytes are decoded: a small server, and the decoders it forks.

A decoder that meets hostile bytes may take all memory, never end, or be taken over. So it runs in
a process that has limits on memory and processor time, can open neither files nor sockets, sees
no environment, and shares one piece of memory with whoever asked (the *arena*, in which encoded
images come and pixels go back). The server imports the decoders once and forks, which takes
milliseconds; it never looks at an image itself.

Started by :mod:`monitor.images.isolated_decoding`, which has the other end of both sockets.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from monitor.images.bands import Bands
from monitor.images.decode import Decoding, decode
from monitor.images.image_formats import sniff, stated_work
from monitor.images.image_stats import image_stats
from monitor.images.reject_reasons import Rejected
from monitor.images.thumbnail import render_thumbnail
from monitor.images.unchanged_frames import frame_signature

MARK = struct.Struct("<I")
"""At the start of the shared memory: which image of the request is being decoded."""

FAULTS = "CONCLAD_DECODER_FAULTS"
"""Set by tests: images with such a text in them make their decoder misbehave."""

LEAST_SECONDS = 1.0
"""Of processor time for the smallest image: a hundred times what it takes."""

DYING_SECONDS, DYING_LOOKS = 0.1, 20
"""A process that has closed its sockets needs a moment until it has ended."""

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


def serve(control: socket.socket) -> None:
    """Fork a decoder, or bury one, whenever asked; ends when the other side is gone."""
    _warm_up()
    while True:
        message, handed, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not message:
            return
        asked = json.loads(message)
        if "bury" in asked:
            control.send(json.dumps(_bury(asked["bury"])).encode())
            continue
        number = os.fork()
        if number == 0:
            try:
                control.close()
                _work(handed[0], handed[1], asked)
            finally:
                os._exit(1)
        for each in handed:
            os.close(each)
        control.send(json.dumps(number).encode())


def _bury(number: int) -> int:
    """End a decoder; how it ended, which may have been by itself a moment ago."""
    for _ in range(DYING_LOOKS):
        found, status = os.waitpid(number, os.WNOHANG)
        if found:
            return status
        time.sleep(DYING_SECONDS / DYING_LOOKS)
    os.kill(number, signal.SIGKILL)
    return os.waitpid(number, 0)[1]


def _work(connection: int, shared: int, asked: dict[str, Any]) -> None:
    """Answer requests until nobody is left who asks."""
    arena = mmap.mmap(shared, asked["arena"])
    os.close(shared)
    bands = asked["decoding"].pop("bands")
    settings = Decoding(
        max_pixels=asked["decoding"]["max_pixels"],
        background=tuple(asked["decoding"]["background"]),
        bands=Bands(tuple(bands["mapping"]), tuple(bands["stretch"]), bands["unit"])
        if bands
        else None,
    )
    pipe = Connection(connection)
    # Libraries write there what they think of an image, and quote it.
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    _confine(asked["memory"])
    while True:
        try:
            request = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        pipe.send_bytes(json.dumps(_answer(request, arena, settings, asked["seconds"])).encode())


def _confine(memory: int) -> None:
    """Give up all rights that decoding does not need; none of it can be taken back."""
    with open("/proc/self/statm", "rb") as statm:
        used = int(statm.read().split()[0]) * mmap.PAGESIZE
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for limit, most in (
        (resource.RLIMIT_AS, used + memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        # Files and sockets that are open stay so; another one cannot be opened.
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(limit, (most, most))


def _answer(
    request: dict[str, Any], arena: mmap.mmap, settings: Decoding, seconds: float
) -> dict[str, Any]:
    """Decode the images that a request names, as far as there is room for their pixels."""
    room = _Room(arena, request["free"])
    found: list[list[Any]] = []
    pictures: list[NDArray[np.uint8]] = []
    for index, (start, length) in enumerate(request["spans"]):
        MARK.pack_into(arena, 0, index)
        data = arena[start : start + length]
        _limit_time(data, settings.max_pixels, seconds)
        if FAULTS in os.environ:
            _misbehave(data)
        if request["thumbnail"] is not None:
            picture = render_thumbnail(data, settings, request["thumbnail"])
            kept = picture if isinstance(picture, Rejected) else room.keep(picture)
            found.append(_rejected(kept) if isinstance(kept, Rejected) else ["bytes", *kept])
            continue
        decoded = decode(data, settings, min_side=request["min_side"], room=room.take)
        if isinstance(decoded, Rejected):
            found.append(_rejected(decoded))
        else:
            wanted = frame_signature(decoded.pixels) if request["signature"] else decoded.pixels
            start, pixels = room.settle(wanted)
            pictures.append(pixels)
            found.append(["pixels", start, *pixels.shape[:2], *decoded.size])
        if room.next > request["enough"]:
            break
    stats = room.keep(image_stats(pictures).tobytes())[0] if request["stats"] else None
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {"found": found, "stats": stats}


def _limit_time(data: bytes, max_pixels: int, seconds: float) -> None:
    """As much as an image of its stated size may take; ``seconds`` if it states none.

    Processor time: on a crowded machine an honest image may wait for long.
    """
    least = min(LEAST_SECONDS, seconds)
    signal.setitimer(signal.ITIMER_PROF, least)
    work = stated_work(data, sniff(data))
    share = 1.0 if work is None else min(1.0, work / max_pixels)
    signal.setitimer(signal.ITIMER_PROF, max(least, share * seconds))


def _rejected(why: Rejected) -> list[Any]:
    return ["rejected", why.reason.value, why.detail]


class _Room:
    """Places in the arena, one after the other."""

    def __init__(self, arena: mmap.mmap, start: int) -> None:
        self._bytes = np.frombuffer(arena, np.uint8)
        self.next = start

    def take(self, height: int, width: int) -> NDArray[np.uint8]:
        """Where an image may be decoded to; not yet its own."""
        length = height * width * 3
        return self._bytes[self.next : self.next + length].reshape(height, width, 3)

    def settle(self, pixels: NDArray[np.uint8]) -> tuple[int, NDArray[np.uint8]]:
        """Keep an image, where it was decoded to or as a copy."""
        start = self.next
        place = self.take(*pixels.shape[:2])
        if not np.may_share_memory(place, pixels):
            place[...] = pixels
        self.next = start + place.nbytes
        return start, place

    def keep(self, data: bytes) -> tuple[int, int]:
        """Where the bytes lie now: from which place, and how many."""
        start, self.next = self.next, self.next + len(data)
        self._bytes[start : self.next] = np.frombuffer(data, np.uint8)
        return start, len(data)


def _misbehave(data: bytes) -> None:
    """What a decoder with a hole does, for tests."""
    if b"conclad: crash" in data:
        os.kill(os.getpid(), signal.SIGSEGV)
    if b"conclad: hang" in data:
        time.sleep(3600)
    while b"conclad: spin" in data:
        pass
    if b"conclad: hoard" in data:
        bytearray(1 << 34)
    if b"conclad: open" in data:
        os.open("/etc/passwd", os.O_RDONLY)


def _warm_up() -> None:
    """Use every decoder once, because what they import late cannot be opened in a fork."""
    picture = Image.new("RGB", (16, 16))
    for kind in ("JPEG", "PNG", "WEBP", "TIFF"):
        out = io.BytesIO()
        picture.save(out, kind)
        decode(out.getvalue(), min_side=8)
        decode(out.getvalue()[:-20])
        render_thumbnail(out.getvalue())
    for compression in (None, "zlib", "lzw", "packbits"):
        out = io.BytesIO()
        # LZW and PackBits need a package that is not always there.
        with contextlib.suppress(Exception):
            tifffile.imwrite(out, np.zeros((8, 8, 4), np.uint16), compression=compression)
            decode(out.getvalue(), Decoding(bands=Bands((1, 2, 3), (0, 100))))
    image_stats([np.zeros((8, 8, 3), np.uint8)])
    frame_signature(np.zeros((8, 8, 3), np.uint8))


if __name__ == "__main__":
    # Ctrl-C in a terminal reaches the whole group; the process that asked ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
