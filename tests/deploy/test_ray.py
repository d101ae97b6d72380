"""The cluster file is one that Ray's launcher takes, and the service restarts what resumes."""

from __future__ import annotations

import configparser
import copy

import pytest
import yaml

from monitor.config import Config
from tests.deploy.manifests import DEPLOY

FILE = DEPLOY / "ray" / "cluster.yaml"


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
    assert "--dashboard-host=127.0.0.1" in head
    for command in (head, worker):
        assert "RAY_AUTH_MODE=token" in command
        assert "RAY_AUTH_TOKEN=" not in command, "a token on a command line is seen by everybody"
    assert loaded["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}


def test_the_service_starts_again_and_waits_for_batches() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "ray" / "conclad.service")
    service = parser["Service"]
    assert service["Restart"] == "always"
    assert int(service["TimeoutStopSec"]) > Config().run.grace_seconds
    assert service["User"] != "root"
