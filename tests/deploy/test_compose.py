"""One file that starts everything, with nothing secret in it and nothing left open."""

from __future__ import annotations

import copy
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor import __version__
from monitor.config import Config, load
from monitor.desk.app import build
from monitor.errors import ConcladError
from monitor.store import Store
from monitor.telemetry import alert_log
from tests.deploy import compose
from tests.deploy.compose import REFERENCE, filled, problems, required
from tests.deploy.manifests import DEPLOY, ROOT, walk

FILE, CUDA = DEPLOY / "compose.yaml", DEPLOY / "compose.cuda.yaml"
COMPOSE: dict[str, Any] = compose.load(FILE)
SERVICES: dict[str, Any] = COMPOSE["services"]
#: Those of our own image.
OURS = ("monitor", "fit", "desk", "alert-log")


@pytest.mark.parametrize("files", [(FILE,), (FILE, CUDA)], ids=["cpu", "cuda"])
def test_compose_takes_it(files: tuple[Path, ...]) -> None:
    assert list(problems(compose.load(*files))) == []


def test_mistakes_would_be_found() -> None:
    """Among them those that were shipped once."""
    broken: Any = copy.deepcopy(COMPOSE)
    broken["secrets"]["postgres_password"] = {"environment": "PASSWORD"}
    broken["services"]["desk"]["networks"] = ["inside"]
    broken["services"]["monitor"]["depends_on"] = {"alert-log": {"condition": "service_healthy"}}
    broken["services"]["grafana"]["readonly"] = True
    broken["services"]["fit"]["restart"] = False
    assert sorted(problems(broken)) == [
        "desk: publishes a port, but all its networks are internal",
        "desk: secret postgres_password: only 'file' works where the root is read-only",
        "fit: restart: False (is 'no' quoted?)",
        "fit: secret postgres_password: only 'file' works where the root is read-only",
        "grafana: no field readonly",
        "monitor: secret postgres_password: only 'file' works where the root is read-only",
        "monitor: waits for alert-log to be healthy, which nobody checks",
    ]


def configuration(service: str) -> Config:
    """The configuration that a service's variables make."""
    environment = {k: filled(str(v)) for k, v in SERVICES[service]["environment"].items()}
    return load(environ=environment).config


def test_everything_that_was_promised_is_there() -> None:
    promised = {"monitor", "desk", "postgres", "prometheus", "alertmanager", "grafana"}
    assert set(SERVICES) == promised | {"fit", "alert-log"}
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["fit"]


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    image = filled(SERVICES[name]["image"])
    tag = image.rpartition(":")[2]
    assert re.search(r"\d+\.\d+", tag), image
    if image.startswith("conclad:"):
        assert tag == f"{__version__}-cpu"


def test_no_secret_is_written_here() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for secret in COMPOSE["secrets"].values():
        assert secret["file"].startswith("./secrets/")
    assert "/deploy/secrets/" in ignored
    assert "/deploy/.env" in ignored
    text = FILE.read_text()
    assert not re.search(r"://[^/\s:$]+:[^@\s/$]+@", text), "a password in an address"
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name or "TOKEN" in name:
                assert name.endswith("_FILE"), f"{name} would be visible to docker inspect"
                assert value.startswith("/run/secrets/")


def test_the_secrets_are_made_once_and_can_be_read_by_every_container(tmp_path: Path) -> None:
    """Compose mounts the files as they are, and containers run as users of their own."""
    shutil.copy(DEPLOY / "make-secrets", tmp_path)
    run = [str(tmp_path / "make-secrets")]
    subprocess.run(run, check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert {f"./secrets/{name}" for name in made} == {
        s["file"] for s in COMPOSE["secrets"].values()
    }
    assert len(set(made.values())) == len(made)
    for name, value in made.items():
        assert re.fullmatch(r"[0-9a-f]{64}", value), name
        assert stat.S_IMODE((tmp_path / "secrets" / name).stat().st_mode) == 0o444
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    (tmp_path / "secrets" / "desk_token").unlink()
    again = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    assert (again.count(": kept\n"), again.count(": made\n")) == (2, 1)
    kept = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert {name for name in made if kept[name] != made[name]} == {"desk_token"}


def test_make_knows_the_secrets() -> None:
    # The tests themselves may run under make, which then says where it enters.
    command = ["make", "--no-print-directory", "-n", "secrets"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert shown.stdout == "deploy/make-secrets\n"


def test_every_variable_is_explained() -> None:
    text = FILE.read_text() + CUDA.read_text()
    used = {match[1] for match in REFERENCE.finditer(text)}
    explained = set(re.findall(r"^(\w+)=", (DEPLOY / ".env.example").read_text(), re.MULTILINE))
    assert used == explained
    assert required(text) == {"CONCLAD_FEED"}


def test_what_is_learnt_from_lies_outside_the_feed() -> None:
    targets = {
        name: [volume.split(":")[-2] for volume in SERVICES[name]["volumes"]]
        for name in ("fit", "monitor")
    }
    assert "/data/labelled" in targets["fit"]
    assert "/data/labelled" not in targets["monitor"]
    feed = configuration("monitor").feed.path
    [data] = [word for word in SERVICES["fit"]["command"] if "*" in word]
    assert not data.startswith(f"{feed}/")
    assert configuration("fit").state == configuration("monitor").state


def test_the_cuda_variant_reserves_gpus_for_whoever_embeds() -> None:
    services = compose.load(FILE, CUDA)["services"]
    for name in OURS:
        assert services[name]["image"] == f"conclad:{__version__}-cuda"
        args = services[name]["build"]["args"]
        assert (args["VARIANT"], args["TORCH_INDEX"]) == ("cuda", "")
        assert services[name]["build"]["context"] == ".."
        assert ("deploy" in services[name]) == (name in ("monitor", "fit")), name
    assert not any("deploy" in service for service in SERVICES.values())


def test_grafana_starts_without_the_internet() -> None:
    grafana = SERVICES["grafana"]["environment"]
    assert grafana["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"
    assert not any("INSTALL_PLUGINS" in name for name in grafana)
    for name, value in grafana.items():
        if "CHECK_FOR" in name or "REPORTING" in name or "NEWS" in name:
            assert value == "false", name


def test_grafana_makes_each_folder_once() -> None:
    """A folder of one title that is named by uid here and by title there comes twice."""
    provisioning = DEPLOY / "grafana" / "provisioning"
    boards = yaml.safe_load((provisioning / "dashboards" / "conclad.yml").read_text())
    alerts = yaml.safe_load((provisioning / "alerting" / "grafana_alerts.yml").read_text())
    shown = {provider["folder"] for provider in boards["providers"]}
    assert not shown & {group["folder"] for group in alerts["groups"]}
    mounted = {v.split(":")[1] for v in SERVICES["grafana"]["volumes"]}
    assert {provider["options"]["path"] for provider in boards["providers"]} <= mounted


def test_alerts_arrive_where_the_alertmanager_reaches() -> None:
    config = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    [used] = [one for one in config["receivers"] if one["name"] == config["route"]["receiver"]]
    urls = [hook["url"] for hook in used["webhook_configs"]]
    [(host, port)] = [re.fullmatch(r"http://([\w-]+):(\d+)/", url).groups() for url in urls]  # type: ignore[union-attr]
    receiver = SERVICES[host]
    assert set(receiver["networks"]) & set(SERVICES["alertmanager"]["networks"])
    assert receiver["command"][:3] == ["python", "-m", alert_log.__name__]
    assert int(port) == 5001
    assert "0.0.0.0" in receiver["command"], "loopback is the container's own"


def test_nothing_listens_beyond_the_machine() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
    assert COMPOSE["networks"]["inside"] == {"internal": True}


def test_what_is_mounted_exists() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            # What a variable names is yours.
            source = volume.rpartition("}")[2].partition(":")[0]
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
    for name in OURS:
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
