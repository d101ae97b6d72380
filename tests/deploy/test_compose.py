"""One file that starts everything, with nothing secret in it and nothing left open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor import __version__
from monitor.config import Config, load
from monitor.desk.app import build
from monitor.errors import ConcladError
from monitor.store import Store
from tests.deploy.manifests import DEPLOY, walk

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]

#: What a value of the environment stands for: ${NAME:-default} or ${NAME:?message}.
_REFERENCE = re.compile(r"\$\{(\w+)(?::-([^}]*))?(?::\?[^}]*)?\}")


def filled(text: str) -> str:
    return _REFERENCE.sub(lambda match: match[2] or "", text)


def configuration(service: str) -> Config:
    """The configuration that a service's variables make."""
    environment = {k: filled(str(v)) for k, v in SERVICES[service]["environment"].items()}
    return load(environ=environment).config


def test_everything_that_was_promised_is_there() -> None:
    promised = {"monitor", "desk", "postgres", "prometheus", "alertmanager", "grafana"}
    assert set(SERVICES) == promised


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    image = filled(SERVICES[name]["image"])
    tag = image.rpartition(":")[2]
    assert re.search(r"\d+\.\d+", tag), image
    if image.startswith("conclad:"):
        assert tag == f"{__version__}-cpu"


def test_no_secret_is_written_here() -> None:
    assert all(set(secret) == {"environment"} for secret in COMPOSE["secrets"].values())
    text = (DEPLOY / "compose.yaml").read_text()
    assert not re.search(r"://[^/\s:$]+:[^@\s/$]+@", text), "a password in an address"
    example = (DEPLOY / ".env.example").read_text()
    for secret in COMPOSE["secrets"].values():
        assert re.search(rf"^{secret['environment']}=$", example, re.MULTILINE), "shown, but empty"
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name:
                assert name.endswith("_FILE"), f"{name} would be visible to docker inspect"
                assert value.startswith("/run/secrets/")


def test_every_variable_is_explained() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    used = {match[1] for match in _REFERENCE.finditer(text)}
    used |= {secret["environment"] for secret in COMPOSE["secrets"].values()}
    explained = set(re.findall(r"^(\w+)=", (DEPLOY / ".env.example").read_text(), re.MULTILINE))
    assert used == explained


def test_nothing_listens_beyond_the_machine() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
    assert COMPOSE["networks"]["inside"] == {"internal": True}


def test_what_is_mounted_exists() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source = filled(volume).partition(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), f"{name}: {source}"
            elif source:
                assert source in COMPOSE["volumes"], f"{name}: {source}"


def test_monitor_and_desk_share_one_state() -> None:
    monitor, desk = configuration("monitor"), configuration("desk")
    assert monitor.state == desk.state
    assert str(monitor.state.url).startswith("postgresql://conclad@postgres")
    assert not monitor.desk.enabled
    assert SERVICES["desk"]["ports"] == [f"127.0.0.1:{desk.desk.port}:{desk.desk.port}"]
    assert desk.desk.address == monitor.metrics.desk_url


def test_the_desk_starts_as_it_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = configuration("desk").desk
    assert "CONCLAD_DESK_TOKEN_FILE" in SERVICES["desk"]["environment"]
    with Store.open(tmp_path) as store:
        with pytest.raises(ConcladError, match="token"):
            build(store, shipped)
        # What conclad-node makes of the secret's file.
        monkeypatch.setenv("CONCLAD_DESK_TOKEN", "x" * 64)
        build(store, shipped)


def test_prometheus_finds_the_monitor() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    targets = {t for part in walk(scraped) if isinstance(part, str) for t in [part] if ":" in t}
    assert f"monitor:{configuration('monitor').metrics.port}" in targets
    assert "alertmanager:9093" in targets


def test_our_containers_are_hardened_and_stop_in_time() -> None:
    for name in ("monitor", "desk"):
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    grace = int(SERVICES["monitor"]["stop_grace_period"].removesuffix("s"))
    assert grace > Config().run.grace_seconds


def test_secrets_reach_whoever_names_them() -> None:
    for name, service in SERVICES.items():
        named = {
            Path(value).name
            for value in service.get("environment", {}).values()
            if str(value).startswith("/run/secrets/")
        }
        assert named == set(service.get("secrets", ())), name
