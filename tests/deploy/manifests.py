"""Built manifests, and the pods inside them."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.system import require_system

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERAY = DEPLOY / "kuberay"
OVERLAYS = tuple(sorted(path.name for path in (KUBERAY / "overlays").iterdir()))

Manifest = dict[str, Any]


@functools.cache
def build(overlay: str) -> tuple[Manifest, ...]:
    """What `kubectl apply -k` would send for an overlay."""
    kubectl = require_system("kubectl", "kubectl")
    done = subprocess.run(
        [kubectl, "kustomize", str(KUBERAY / "overlays" / overlay)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "kustomize has something to say"
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(overlay: str, kind: str) -> list[Manifest]:
    return [manifest for manifest in build(overlay) if manifest["kind"] == kind]


def ray_cluster(overlay: str) -> Manifest:
    [cluster] = of_kind(overlay, "RayCluster")
    return cluster


def templates(overlay: str) -> Iterator[tuple[str, Manifest]]:
    """Every pod template, by the name of the part it belongs to."""
    spec = ray_cluster(overlay)["spec"]
    yield "head", spec["headGroupSpec"]["template"]
    for group in spec["workerGroupSpecs"]:
        yield group["groupName"], group["template"]
    for manifest in of_kind(overlay, "Deployment"):
        yield manifest["metadata"]["name"], manifest["spec"]["template"]


def containers(overlay: str) -> Iterator[tuple[str, Manifest]]:
    for name, template in templates(overlay):
        for container in template["spec"]["containers"]:
            yield f"{name}/{container['name']}", container


def walk(value: Any) -> Iterator[Any]:
    """A value and everything inside it."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        yield from walk(item)
