"""The desk as a server: by itself, or as a child of the monitor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, cast

import uvicorn
from anyio import to_thread

from monitor.config import Config
from monitor.desk.app import build
from monitor.desk.connections import OpenConnections
from monitor.desk.errors import CannotStart
from monitor.desk.picture_cleanup import housekeeping
from monitor.desk.proxy_sign_in import is_proxy
from monitor.jobs.from_config import open_store

THREADS = 12
"""Handlers at work at once. The store has one writer anyway, and its pool lends 15 connections."""

SWITCH_SECONDS = 0.0005
"""How long a thread that computes keeps others waiting, each time that they come back from the
database or a socket. A request does so some fifty times, so Python's 5 ms would be a quarter of a
second beside a large import."""

START_SECONDS = 300.0
"""A crowded machine imports slowly; longer than this means that something hangs. The monitor does
not wait for it."""

STOP_SECONDS = 10.0
"""Requests in progress take milliseconds; what is still there after this is ended by force."""


def serve(config: Config, *, ready: Callable[[str], None], stop: threading.Event) -> None:
    """Serve until ``stop`` is set or the process is told to end; ``ready`` is given the address."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with open_store(config) as store:
        app = build(store, config.desk, config)
        listening = listen(config.desk.host, config.desk.port)
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        connections = OpenConnections(is_shared=lambda one: is_proxy(one, config.desk))
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=cast(Any, connections.protocol),
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="off",
                timeout_keep_alive=20,
                timeout_graceful_shutdown=int(STOP_SECONDS),
                h11_max_incomplete_event_size=16 * 1024,
                ws="none",
                # Whoever connects is who connects: desk.proxy decides which proxies are believed.
                proxy_headers=False,
            )
        )

        async def main() -> None:
            to_thread.current_default_thread_limiter().total_tokens = THREADS
            serving = asyncio.create_task(server.serve([listening]))
            keeping = asyncio.create_task(housekeeping(store, config.desk))
            while not server.started and not serving.done():
                await asyncio.sleep(0.01)
            ready(f"http://{shown}:{port}")
            while not stop.is_set() and not serving.done():
                await asyncio.sleep(0.1)
            server.should_exit = True
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            await serving

        with listening:
            asyncio.run(main())


def listen(host: str, port: int) -> socket.socket:
    """A socket there, or an error that says what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)  # whoever comes before we accept waits, and is not turned away
    except OSError as error:
        listening.close()
        raise CannotStart(
            f"{host}:{port}: cannot listen there ({error.strerror}); "
            "choose another with --set desk.port=PORT"
        ) from error
    return listening


@dataclass(frozen=True, slots=True)
class Handle:
    """A desk that runs beside us."""

    url: str
    process: subprocess.Popen[str]

    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """End it; harmless when it has gone already."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS + 5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def start(config: Config) -> Handle:
    """Start the desk as a process of its own, which ends when we do.

    Its standard input stays open for as long as we live: when we are gone, however that came
    about, it reads the end of it and leaves.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "monitor.desk"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Keys that end the parent (Ctrl-C) reach the group; the parent decides when we end.
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(config.model_dump_json() + "\n")
    process.stdin.flush()
    said = _first_line(process.stdout)
    if "url" not in said:
        Handle("", process).stop()
        raise CannotStart(said.get("error", f"the desk did not start in {START_SECONDS:.0f} s"))
    return Handle(said["url"], process)


def _first_line(stream: IO[str]) -> dict[str, str]:
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(START_SECONDS)
    try:
        said: dict[str, str] = json.loads(found[0])
    except (IndexError, ValueError):
        return {}
    return said


def run_child() -> int:
    """The other end of :func:`start`."""
    from monitor.errors import ConcladError

    logging.basicConfig(level=logging.WARNING)
    config = Config.model_validate_json(sys.stdin.readline())
    stop = threading.Event()

    def wait_for_parent() -> None:
        sys.stdin.read()
        stop.set()

    def say(word: str, text: str) -> None:
        try:
            sys.stdout.write(json.dumps({word: text}) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:  # whoever started us was killed while we did
            stop.set()

    threading.Thread(target=wait_for_parent, daemon=True).start()
    try:
        serve(config, ready=lambda url: say("url", url), stop=stop)
    except ConcladError as error:
        say("error", str(error))
        return 2
    return 0
