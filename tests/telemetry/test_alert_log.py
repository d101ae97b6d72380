"""A real Alertmanager writes to the log, and nobody else can stop it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.telemetry.receiving import PATIENCE
from tests.telemetry.servers import alertmanager, free_port

ALERT = {
    "labels": {"alertname": "FeedSilent", "severity": "warning", "source": "cam-1"},
    "annotations": {"summary": "cam-1 has sent\nnothing", "runbook_url": "/r/FeedSilent.md"},
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    port = free_port()
    written = tmp_path / "log"
    with written.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "monitor.telemetry.alert_log", "--port", str(port)], stdout=sink
        )
    url = f"http://127.0.0.1:{port}/"
    try:
        deadline = time.monotonic() + PATIENCE
        while post(url, b"x") is None:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield url, written
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def post(url: str, body: bytes) -> int | None:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:
        return None


def test_an_alert_becomes_a_line(log: tuple[str, Path], tmp_path: Path) -> None:
    url, written = log
    with alertmanager(tmp_path / "alertmanager", receiver=url) as told:
        request = urllib.request.Request(
            f"{told}/api/v2/alerts",
            json.dumps([ALERT]).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=PATIENCE).close()
        deadline = time.monotonic() + PATIENCE
        while not written.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert written.read_text() == (
        "firing warning FeedSilent: cam-1 has sent nothing /r/FeedSilent.md\n"
    )


def test_what_is_no_message_is_refused(log: tuple[str, Path]) -> None:
    url, written = log
    for body in (b"", b"[]", b'{"alerts": 3}', b'{"alerts": [{"status": "firing"}]}', b"\xff"):
        assert post(url, body) == 400, body
    assert post(url, json.dumps({"alerts": [{**ALERT, "status": "resolved"}]}).encode()) == 204
    assert written.read_text().startswith("resolved warning FeedSilent")
