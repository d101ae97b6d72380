"""Object stores on loopback for tests: servers that speak S3 and Google's protocol."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

#: A server that has not answered after this time never will.
_PATIENCE_SECONDS = 60.0


@contextmanager
def bucket_at(scheme: str, name: str, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket; yields a template of addresses in it, `{}` standing for the path."""
    with {"s3": _s3, "gs": _gs}[scheme](name, patch) as template:
        yield template


@contextmanager
def _s3(name: str, patch: pytest.MonkeyPatch) -> Iterator[str]:
    patch.setenv("AWS_ACCESS_KEY_ID", "key")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    query = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    made, _ = fs.FileSystem.from_uri(f"s3://{name}?{query}&allow_bucket_creation=true")
    made.create_dir(name)
    try:
        yield f"s3://{{}}?{query}"
    finally:
        server.stop()


@contextmanager
def _gs(name: str, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """A process of its own: pyarrow reads from Google's storage without letting Python run."""
    port = _free_port()
    start = "from gcp_storage_emulator.__main__ import main; main()"
    arguments = ["start", "--host", "127.0.0.1", "--port", str(port), "--in-memory", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-c", start, *arguments, "--default-bucket", name],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await_port(port, process)
        query = f"endpoint_override=127.0.0.1:{port}&scheme=http&retry_limit_seconds=5"
        yield f"gs://anonymous@{{}}?{query}"
    finally:
        process.terminate()
        process.wait(timeout=10)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"no storage server on port {port} (exit code {process.poll()})")
