"""A real PostgreSQL server of our own, on a free loopback port, gone after the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.system import require_system

#: A crowded two-core machine has needed five seconds; a minute means that it will not come.
START_SECONDS = 60


@contextmanager
def server() -> Iterator[str]:
    """Yields a URL without a database name."""
    initdb = require_system("initdb", "postgresql")
    postgres = require_system("postgres", "postgresql")
    # Not below pytest's folder: that one is closed to the user the server runs as.
    home = Path(tempfile.mkdtemp(prefix="conclad-pg-", dir=_fast_folder()))
    account = _account(home)
    data, log = home / "data", home / "log"
    try:
        subprocess.run(
            [initdb, "-D", data, "-U", "conclad", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=home,
            **account,
        )
        port = _free_port()
        with log.open("wb") as sink:
            process = subprocess.Popen(
                # Our own kills never hit the server, so its fsync only costs time here.
                [postgres, "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", home, "-F"],
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=home,
                **account,
            )
        try:
            url = f"postgresql://conclad@127.0.0.1:{port}"
            _wait(url, process, log)
            yield url
        finally:
            # At once, without a last checkpoint: the data is thrown away anyway.
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout=START_SECONDS)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _fast_folder() -> str | None:
    """Memory, where there is plenty: the tests make thousands of small tables."""
    memory = "/dev/shm"
    plenty = 2 << 30
    usable = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > plenty
    return memory if usable else None


def _account(home: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root; root lends it the account its package made."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam("postgres")
    os.chown(home, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(f"{url}/postgres").close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text()}") from None
            time.sleep(0.05)
        else:
            return
