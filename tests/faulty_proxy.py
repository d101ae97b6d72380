"""A server before an object store that fails in the ways in which object stores do."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Mode = Literal["sound", "500", "expired", "slow", "half", "refused"]

_EXPIRED = (
    b'<?xml version="1.0"?><Error><Code>ExpiredToken</Code><Message>The provided token has '
    b"expired.</Message></Error>"
)


@dataclass
class Proxy:
    """Where it listens, and how it behaves just now."""

    port: int
    mode: Mode = "sound"
    failed: int = 0

    def fail(self, mode: Mode, seconds: float) -> None:
        """Behave badly for a while."""
        self.mode = mode
        threading.Timer(seconds, self._recover).start()

    def _recover(self) -> None:
        self.mode = "sound"


@contextmanager
def proxy(host: str, port: int) -> Iterator[Proxy]:
    """Everything goes to the server behind, unless it is told to fail."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length)
            mode = found.mode
            if mode != "sound":
                found.failed += 1
            if mode == "refused":
                self.close_connection = True
                self.connection.close()
                return
            if mode == "500":
                self._send(500, {}, b"<Error><Code>InternalError</Code></Error>")
                return
            if mode == "expired":
                self._send(403, {"content-type": "application/xml"}, _EXPIRED)
                return
            if mode == "slow":
                time.sleep(1.0)
            behind = http.client.HTTPConnection(host, port, timeout=30)
            # By the name that the server behind knows itself by, whatever name led here.
            sent = {**dict(self.headers.items()), "Host": f"{host}:{port}"}
            behind.request(self.command, self.path, body, sent)
            reply = behind.getresponse()
            data = reply.read()
            headers = {k: v for k, v in reply.getheaders() if k.lower() not in _HOPS}
            behind.close()
            if mode == "half" and self.command == "GET" and len(data) > 8:
                self._send(reply.status, headers, data[: len(data) // 2], claimed=len(data))
                self.close_connection = True
                return
            self._send(reply.status, headers, data, claimed=_length(reply, data))

        def _send(
            self, status: int, headers: dict[str, str], data: bytes, claimed: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data) if claimed is None else claimed))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

        def log_message(self, format: str, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Proxy(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_HOPS = frozenset({"content-length", "transfer-encoding", "connection", "server", "date"})


def _length(reply: http.client.HTTPResponse, data: bytes) -> int:
    """A HEAD names the length of what it does not send."""
    named = reply.getheader("content-length")
    return int(named) if named is not None and not data else len(data)
