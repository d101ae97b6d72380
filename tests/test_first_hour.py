"""A new user's first hour, by the commands of the README, on a small folder of JPEGs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path


def test_from_pictures_to_a_learnt_class(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "scripts/first_hour.py", tmp_path, "--small", "--port", str(port)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), "CONCLAD_CACHE": str(tmp_path / "cache")},
        timeout=290,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is learnt after" in done.stdout.splitlines()[-1]
    # What is said on the way: events as they happen, and what to do when a run has ended.
    assert "new class 'snow'" in done.stderr
    assert "questions wait: conclad desk shows them" in done.stdout
