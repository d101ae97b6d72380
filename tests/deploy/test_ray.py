"""The cluster file is one that Ray's launcher takes, and the service restarts what resumes."""

from __future__ import annotations

import copy
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from monitor.config import Config
from tests.deploy.manifests import DEPLOY
from tests.system import require_system

FILE = DEPLOY / "ray" / "cluster.yaml"
SERVICE, CLUSTER = DEPLOY / "ray" / "conclad.service", DEPLOY / "ray" / "conclad-cluster.conf"


def test_the_launcher_takes_the_file() -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    loaded = yaml.safe_load(FILE.read_text())
    util.validate_config(util.prepare_config(copy.deepcopy(loaded)))
    loaded["provider"]["head"] = loaded["provider"].pop("head_ip")
    with pytest.raises(Exception, match=r"head_ip|Additional|required|head"):
        util.validate_config(util.prepare_config(loaded))


def test_the_head_takes_no_work_and_every_node_wants_the_token() -> None:
    loaded = yaml.safe_load(FILE.read_text())
    [_, head] = loaded["head_start_ray_commands"]
    [_, worker] = loaded["worker_start_ray_commands"]
    assert "--num-cpus=0" in head
    # The launcher sets RAY_HEAD_IP for workers; on the head it is empty, and Ray refuses that.
    assert "RAY_HEAD_IP" not in head
    assert f"--node-ip-address={loaded['provider']['head_ip']} " in head
    assert "--address=$RAY_HEAD_IP:6379 " in worker
    assert "--dashboard-host=127.0.0.1" in head
    for command in (head, worker):
        assert "RAY_AUTH_MODE=token" in command
        assert "RAY_AUTH_TOKEN=" not in command, "a token on a command line is seen by everybody"
    assert loaded["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}


def test_what_ray_exec_runs_has_the_token_mode_and_our_commands(tmp_path: Path) -> None:
    """In the shell that Ray's launcher opens over SSH, after its own set-up, done twice."""
    runner = pytest.importorskip("ray.autoscaler._private.command_runner")
    (tmp_path / ".ray").mkdir()
    token = tmp_path / ".ray" / "auth_token"
    token.write_text("secret")
    # As Debian's: it ends early for shells that nobody sits at.
    (tmp_path / ".bashrc").write_text("case $- in *i*) ;; *) return;; esac\n")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}

    def shell(command: str) -> str:
        line = " ".join(runner._with_interactive(command))
        done = subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert shell('echo "$RAY_AUTH_MODE"') == "\n"
    setup = yaml.safe_load(FILE.read_text())["setup_commands"]
    for command in [*setup, *setup]:
        shell(command)
    assert shell('echo "$RAY_AUTH_MODE $PATH"').startswith("token /opt/conclad/bin:")
    assert (tmp_path / ".bashrc").read_text().count("RAY_AUTH_MODE") == 1
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


def unit(*files: Path) -> dict[str, list[str]]:
    """The settings of a service as systemd reads them: lists, which an empty value clears."""
    found: dict[str, list[str]] = {}
    for file in files:
        for line in file.read_text().splitlines():
            if "=" in line and not line.startswith("#"):
                key, _, value = line.partition("=")
                found[key] = [*found.get(key, ()), value] if value else []
    return found


def test_systemd_takes_the_unit_and_its_addition(tmp_path: Path) -> None:
    analyze = require_system("systemd-analyze", "systemd")
    text = SERVICE.read_text()
    # Neither our program nor our user need be on this machine.
    text = text.replace("/opt/conclad/bin/conclad", "/bin/true").replace(
        "User=conclad", "User=root"
    )
    addition = CLUSTER.read_text().replace("/opt/conclad/bin/conclad", "/bin/true")
    (tmp_path / "conclad.service").write_text(text)
    folder = tmp_path / "conclad.service.d"
    folder.mkdir()

    def verify() -> str:
        done = subprocess.run(
            [analyze, "verify", "--man=no", str(tmp_path / "conclad.service")],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return "".join(line for line in done.stderr.splitlines(True) if "conclad" in line)

    assert verify() == ""
    (folder / "cluster.conf").write_text(addition)
    assert verify() == ""
    (folder / "cluster.conf").write_text("[Service]\nRestrat=always\n")
    assert "Restrat" in verify(), "a mistake would be found"


def test_after_a_reboot_the_service_needs_nothing_but_itself() -> None:
    service = unit(SERVICE)
    [command] = service["ExecStart"]
    assert "--address" not in command, "a Ray of its own, unless the configuration says otherwise"
    assert Config().run.address == "local"
    assert not any("AUTH_TOKEN" in value for value in service["Environment"])
    # It runs where homes are hidden, and Ray and the weights want a place to write to.
    assert service["ProtectHome"] == ["true"]
    home = "/var/lib/conclad"
    assert f"HOME={home}" in service["Environment"]
    assert service["StateDirectory"] == ["conclad"]
    assert any(v.startswith(f"CONCLAD_CACHE={home}/") for v in service["Environment"])
    assert service["WantedBy"] == ["multi-user.target"]


def test_the_addition_joins_the_cluster_with_its_token() -> None:
    service = unit(SERVICE, CLUSTER)
    [command] = service["ExecStart"]
    assert command.endswith("--address auto")
    assert "RAY_AUTH_MODE=token" in service["Environment"]
    assert service["PrivateTmp"][-1] == "false"


def test_the_service_starts_again_and_waits_for_batches() -> None:
    service = unit(SERVICE)
    assert service["Restart"] == ["always"]
    assert service["StartLimitIntervalSec"] == ["0"], "also after the sixth time"
    assert int(service["TimeoutStopSec"][0]) > Config().run.grace_seconds
    assert service["User"] != ["root"]
