"""What Compose takes and refuses, by its own rules, because no daemon runs where we test.

The rules are those of the Compose specification and of Compose 2.36 and newer: fields, references,
merging of files, and what is refused only when a service is created.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Project = dict[str, Any]

#: Fields of a service that we may use; another one is a mistake, or belongs here.
SERVICE = {
    "image", "build", "command", "environment", "volumes", "tmpfs", "shm_size", "secrets",
    "depends_on", "stop_grace_period", "networks", "ports", "healthcheck", "restart", "init",
    "read_only", "cap_drop", "security_opt", "logging", "profiles", "deploy",
}  # fmt: skip
TOP = {"name", "services", "secrets", "volumes", "networks"}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
HEALTHCHECK = {"test", "interval", "timeout", "retries", "start_period", "disable"}
DEVICE = {"driver", "count", "device_ids", "capabilities", "options"}
RESTARTS = {"no", "always", "on-failure", "unless-stopped"}

#: ${NAME}, ${NAME:-default} or ${NAME:?message}.
REFERENCE = re.compile(r"\$\{(\w+)(?::-([^}]*))?(?::\?[^}]*)?\}")

#: Images that have a HEALTHCHECK of their own.
CHECKED_IMAGES = ("conclad:",)


def load(*files: Path) -> Project:
    """The files on top of each other: maps are merged, lists added, everything else replaced."""
    project: Project = {}
    for file in files:
        project = _merged(project, yaml.safe_load(file.read_text()))
    return project


def filled(text: str) -> str:
    return REFERENCE.sub(lambda match: match[2] or "", text)


def required(text: str) -> set[str]:
    """Variables without which Compose does not even read the file."""
    return set(re.findall(r"\$\{(\w+):\?", text))


def problems(project: Project) -> Iterator[str]:
    """Everything that Compose would refuse, or that could not work as it is written."""
    for name in project:
        if name not in TOP and not name.startswith("x-"):
            yield f"no field {name}"
    for name, service in project["services"].items():
        for problem in _service(project, service):
            yield f"{name}: {problem}"
    for name, secret in project.get("secrets", {}).items():
        if len(set(secret) & {"file", "environment", "external"}) != 1:
            yield f"secret {name}: one of file, environment, external"


def _service(project: Project, service: Mapping[str, Any]) -> Iterator[str]:
    for field in set(service) - SERVICE:
        yield f"no field {field}"
    if not {"image", "build"} & set(service):
        yield "neither image nor build"
    if service.get("restart", "no") not in RESTARTS:
        yield f"restart: {service['restart']!r} (is 'no' quoted?)"
    for secret in service.get("secrets", ()):
        source = project.get("secrets", {}).get(secret)
        if source is None:
            yield f"secret {secret} is not defined"
        elif service.get("read_only") and "file" not in source:
            # Such a secret is copied into the container's root after it was made.
            yield f"secret {secret}: only 'file' works where the root is read-only"
    yield from _network(project, service)
    yield from _waits(project, service)
    for volume in service.get("volumes", ()):
        source, target, *_ = filled(volume).split(":")
        if not target.startswith("/"):
            yield f"volume {volume}: not a path in the container"
        is_path = source.startswith(("/", "./", "../"))
        if source and not is_path and source not in project.get("volumes", {}):
            yield f"volume {source} is not defined"
    for option in service.get("tmpfs", ()):
        if not re.fullmatch(
            r"/[\w/]+(:(mode|uid|gid|size)=\w+(,(mode|uid|gid|size)=\w+)*)?", option
        ):
            yield f"tmpfs {option}"
    if "healthcheck" in service and set(service["healthcheck"]) - HEALTHCHECK:
        yield "healthcheck: unknown fields"
    devices = _at(service, "deploy", "resources", "reservations", "devices") or ()
    for device in devices:
        if set(device) - DEVICE or "gpu" not in device.get("capabilities", ()):
            yield "a device needs capabilities, and has fields of its own"
        if ("count" in device) == ("device_ids" in device):
            yield "a device is reserved by count or by device_ids"


def _network(project: Project, service: Mapping[str, Any]) -> Iterator[str]:
    networks = service.get("networks", ("default",))
    for network in networks:
        if network not in project.get("networks", {}):
            yield f"network {network} is not defined"
    outside = [n for n in networks if not (project["networks"].get(n) or {}).get("internal")]
    if service.get("ports") and not outside:
        yield "publishes a port, but all its networks are internal"


def _waits(project: Project, service: Mapping[str, Any]) -> Iterator[str]:
    for other, how in service.get("depends_on", {}).items():
        waited = project["services"].get(other)
        if waited is None:
            yield f"waits for {other}, which is no service"
        elif how["condition"] not in CONDITIONS:
            yield f"no condition {how['condition']}"
        elif how["condition"] == "service_healthy" and not _is_checked(waited):
            yield f"waits for {other} to be healthy, which nobody checks"
        elif waited.get("profiles") and not service.get("profiles"):
            yield f"waits for {other}, which is only there on demand"


def _is_checked(service: Mapping[str, Any]) -> bool:
    check = service.get("healthcheck", {})
    return "test" in check or (
        not check.get("disable") and service["image"].startswith(CHECKED_IMAGES)
    )


def _merged(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        extra = {key: value for key, value in above.items() if key not in below}
        return {key: _merged(below[key], above.get(key, below[key])) for key in below} | extra
    if isinstance(below, list) and isinstance(above, list):
        return below if below == above else [*below, *above]
    return above


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
