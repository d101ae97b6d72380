"""Cameras on loopback that tests can switch off and on again: Motion JPEG over HTTP, and RTSP.

The RTSP camera sends H.264 as FFmpeg packs it into RTP; only the dialogue around it (OPTIONS,
DESCRIBE, SETUP, PLAY over one TCP connection) is written here, as much as a client needs.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import numpy as np
from PIL import Image

SIDE = 64


def numbered(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A frame that says its number in 16 black and white blocks, whatever a codec does to it."""
    bits = [(number >> bit) & 1 for bit in range(16)]
    blocks = np.array(bits, np.uint8).reshape(4, 4) * 200 + 28
    grey = np.kron(blocks, np.ones((SIDE // 4, SIDE // 4), np.uint8))
    return np.stack([grey] * 3, axis=-1)


def number_of(data: bytes) -> int:
    grey = np.asarray(Image.open(io.BytesIO(data)).convert("L"), np.float32)
    blocks = grey.reshape(4, SIDE // 4, 4, SIDE // 4).mean(axis=(1, 3)).ravel()
    return int(sum(1 << bit for bit, level in enumerate(blocks) if level > 128))


class Camera:
    """A server that can be switched off (all connections cut) and on again at the same port."""

    scheme = "http"

    def __init__(self, fps: float = 50) -> None:
        self.fps = fps
        self.numbers = itertools.count()
        self.is_frozen = False
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._listening: socket.socket | None = None
        self._open: list[socket.socket] = []

    @property
    def address(self) -> str:
        return f"{self.scheme}://user:secret@127.0.0.1:{self.port}/live"

    def on(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port), reuse_port=True)
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def off(self) -> None:
        if self._listening is not None:
            # Not only closed: a thread that waits in accept would take one more.
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def __enter__(self) -> Camera:
        self.on()
        return self

    def __exit__(self, *_: object) -> None:
        self.off()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._guarded, args=(connection,), daemon=True).start()

    def _guarded(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.serve(connection)

    def frames(self) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
        while True:
            while self.is_frozen:
                time.sleep(0.02)
            yield numbered(next(self.numbers))
            time.sleep(1 / self.fps)

    def serve(self, connection: socket.socket) -> None:
        """Motion JPEG, as most cameras offer it."""
        connection.recv(4096)
        connection.sendall(
            b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"
        )
        for pixels in self.frames():
            out = io.BytesIO()
            Image.fromarray(pixels).save(out, "JPEG", quality=90)
            data = out.getvalue()
            head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
            connection.sendall(head.encode() + data + b"\r\n")


class RtspCamera(Camera):
    """H.264 over RTP, interleaved with the RTSP dialogue in one TCP connection."""

    scheme = "rtsp"
    skipped = 0
    """Packets that a client misses at first, as if it had joined in the middle of the stream."""

    def serve(self, connection: socket.socket) -> None:
        requests = connection.makefile("rb")
        while True:
            head = list(iter(lambda: requests.readline().strip(), b""))
            if not head:
                return
            method = head[0].split()[0]
            fields = {line.split(b":")[0].lower(): line.split(b":", 1)[1] for line in head[1:]}
            extra, body = b"", b""
            match method:
                case b"OPTIONS":
                    extra = b"Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN\r\n"
                case b"DESCRIBE":
                    extra = b"Content-Type: application/sdp\r\n"
                    body = (
                        b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nc=IN IP4 127.0.0.1\r\n"
                        b"t=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n"
                        b"a=fmtp:96 packetization-mode=1\r\na=control:track1\r\n"
                    )
                case b"SETUP":
                    extra = b"Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n"
            answer = b"RTSP/1.0 200 OK\r\nCSeq:" + fields[b"cseq"] + b"\r\nSession: 1\r\n" + extra
            length = f"Content-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(answer + length + body)
            if method == b"PLAY":
                self._play(connection)
                return

    def _play(self, connection: socket.socket) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets:
            packets.bind(("127.0.0.1", 0))
            packets.settimeout(0.001)
            # RTCP goes to the next port up, where nobody listens and nobody minds.
            where = f"rtp://127.0.0.1:{packets.getsockname()[1]}?pkt_size=1200"
            with av.open(where, "w", format="rtp", options={"payload_type": "96"}) as out:
                stream: Any = out.add_stream("libx264", rate=int(self.fps))
                stream.width = stream.height = SIDE
                stream.pix_fmt = "yuv420p"
                stream.codec_context.time_base = Fraction(1, int(self.fps))
                stream.codec_context.gop_size = 10
                stream.codec_context.options = {
                    "tune": "zerolatency",
                    "preset": "ultrafast",
                    "x264-params": "repeat-headers=1",
                }
                left = self.skipped
                for pts, pixels in enumerate(self.frames()):
                    frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
                    frame.pts = pts
                    out.mux(stream.encode(frame))
                    left = self._relay(packets, connection, left)

    def _relay(self, packets: socket.socket, connection: socket.socket, left: int) -> int:
        while True:
            try:
                packet = packets.recv(2048)
            except TimeoutError:
                return left
            if left > 0:
                left -= 1
                continue
            connection.sendall(b"$\x00" + len(packet).to_bytes(2, "big") + packet)
