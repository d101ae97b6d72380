"""A real web server on loopback that keeps what it is sent."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

#: Long enough for a crowded machine; what has not come by then does not come.
PATIENCE = 60.0


@dataclass(frozen=True)
class Message:
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Receiver:
    """Answers every POST with what ``answer`` says: by default 200."""

    def __init__(self, answer: Callable[[Message], int] = lambda _: 200) -> None:
        self.messages: queue.Queue[Message] = queue.Queue()
        self.answer = answer
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                message = Message(dict(self.headers), self.rfile.read(length))
                receiver.messages.put(message)
                self.send_response(receiver.answer(message))
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def next(self) -> Message:
        return self.messages.get(timeout=PATIENCE)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
