"""Debian's Prometheus and Alertmanager on free loopback ports, with the files that we ship."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.system import require_system
from tests.telemetry.receiving import PATIENCE

ROOT = Path(__file__).parents[2]

#: Quick enough that a test need not wait; what we ship says fifteen.
SCRAPE = "1s"


class Prometheus:
    """Asks a running server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.moment: float | None = None
        """As of when it is asked, in POSIX seconds; None for now."""

    def query(self, expr: str) -> list[dict[str, Any]]:
        asked = {"query": expr, "time": self.moment or time.time()}
        found = _get(f"{self.url}/api/v1/query?{urllib.parse.urlencode(asked)}")
        return list(found["data"]["result"])

    def query_range(self, expr: str, *, seconds: float, step: float) -> list[dict[str, Any]]:
        """The last seconds of a query, as a panel with a time axis asks for them."""
        now = self.moment or time.time()
        asked = {"query": expr, "start": now - seconds, "end": now, "step": step}
        found = _get(f"{self.url}/api/v1/query_range?{urllib.parse.urlencode(asked)}")
        return list(found["data"]["result"])

    def value(self, expr: str) -> float | None:
        found = self.query(expr)
        return float(found[0]["value"][1]) if found else None

    def alerts(self) -> list[dict[str, Any]]:
        return list(_get(f"{self.url}/api/v1/alerts")["data"]["alerts"])

    def rules(self) -> list[dict[str, Any]]:
        groups = _get(f"{self.url}/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@contextmanager
def prometheus(folder: Path, *, monitor: str, alertmanager: str | None) -> Iterator[Prometheus]:
    """Our configuration with other addresses and a shorter interval; our rules as they are."""
    binary = require_system("prometheus", "prometheus")
    source = ROOT / "deploy" / "prometheus"
    config = yaml.safe_load((source / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE}
    config["rule_files"] = [str(source / name) for name in config["rule_files"]]
    [conclad] = [job for job in config["scrape_configs"] if job["job_name"] == "conclad"]
    conclad["static_configs"] = [{"targets": [urllib.parse.urlsplit(monitor).netloc]}]
    config["scrape_configs"] = [conclad]
    targets = [urllib.parse.urlsplit(alertmanager).netloc] if alertmanager else []
    config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": targets}]}]}
    folder.mkdir()
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        binary,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with _running(command, folder, f"http://127.0.0.1:{port}") as url:
        yield Prometheus(url)


@contextmanager
def alertmanager(folder: Path, *, receiver: str) -> Iterator[str]:
    """Our example with another receiver and no patience; its routes and inhibitions as they are."""
    example = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
    config = yaml.safe_load(example.read_text())
    for route in (config["route"], *config["route"]["routes"]):
        route["group_wait"] = "1s"
    # The others read secrets from files that are not here.
    [ours] = [one for one in config["receivers"] if one["name"] == "operators"]
    config["receivers"] = [ours]
    [hook] = ours["webhook_configs"]
    hook["url"] = receiver
    with running_alertmanager(folder, config) as url:
        yield url


@contextmanager
def running_alertmanager(folder: Path, config: dict[str, Any]) -> Iterator[str]:
    """An Alertmanager with this configuration; its address."""
    binary = require_system("prometheus-alertmanager", "prometheus-alertmanager")
    folder.mkdir()
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        binary,
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with _running(command, folder, f"http://127.0.0.1:{port}") as url:
        yield url


@contextmanager
def _running(command: list[str], folder: Path, url: str) -> Iterator[str]:
    log = folder / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, cwd=folder)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _ready(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _get(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        # Prometheus says in the body what it did not like.
        raise AssertionError(f"{url}: {error.read().decode()}") from error
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
