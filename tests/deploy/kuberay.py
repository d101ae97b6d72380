"""What KubeRay 1.7 takes in a RayCluster, field by field, as its published types say.

No cluster can be had where the tests run, and kubernetes-validate knows no custom resources; a
misspelt field of a custom resource is dropped by the API server without a word. So the fields we
may use are written down here, and the pods inside are validated as the plain pods they become.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: The type of a field: a Python type, a set of allowed words, or the fields of an object. POD and
#: FREE are pods (checked elsewhere) and maps of text to text.
POD, FREE = "pod", "free"

SPEC: dict[str, Any] = {
    "upgradeStrategy": {"type": {"Recreate", "None"}},
    "authOptions": {"mode": {"token", "disabled"}, "secretName": str, "enableK8sTokenAuth": bool},
    "suspend": bool,
    "managedBy": {"ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"},
    "autoscalerOptions": {
        "resources": object,
        "image": str,
        "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
        "securityContext": object,
        "idleTimeoutSeconds": int,
        "upscalingMode": {"Default", "Aggressive", "Conservative"},
        "version": {"v1", "v2"},
        "env": list,
        "envFrom": list,
        "volumeMounts": list,
        "command": list,
        "args": list,
    },
    "headServiceAnnotations": FREE,
    "enableInTreeAutoscaling": bool,
    "gcsFaultToleranceOptions": object,
    "historyServerOptions": object,
    "networkPolicy": object,
    "tlsOptions": {"enabled": bool},
    "rayVersion": str,
    "headGroupSpec": {
        "template": POD,
        "headService": object,
        "enableIngress": bool,
        "ingressOptions": object,
        "resources": FREE,
        "labels": FREE,
        "rayStartParams": FREE,
        "serviceType": {"ClusterIP", "NodePort", "LoadBalancer"},
    },
    "workerGroupSpecs": [
        {
            "suspend": bool,
            "groupName": str,
            "replicas": int,
            "minReplicas": int,
            "maxReplicas": int,
            "idleTimeoutSeconds": int,
            "priority": int,
            "resources": FREE,
            "labels": FREE,
            "rayStartParams": FREE,
            "template": POD,
            "scaleStrategy": {"workersToDelete": list},
            "numOfHosts": int,
        }
    ],
}

REQUIRED: dict[str, tuple[str, ...]] = {
    "spec": ("headGroupSpec",),
    "spec.headGroupSpec": ("template", "rayStartParams"),
    "spec.workerGroupSpecs[]": (
        "groupName", "minReplicas", "maxReplicas", "rayStartParams", "template",
    ),
}  # fmt: skip

#: Words of 'ray start' that may stand in rayStartParams here, of Ray 2.60.
START_PARAMETERS = {
    "num-cpus", "num-gpus", "dashboard-host", "disable-usage-stats", "object-store-memory",
    "metrics-export-port", "resources", "labels",
}  # fmt: skip


def problems(cluster: Mapping[str, Any]) -> list[str]:
    """Everything in a RayCluster that KubeRay would refuse or silently drop."""
    return [*_compare(cluster["spec"], SPEC, "spec"), *_refused(cluster["spec"])]


def _refused(spec: Mapping[str, Any]) -> Iterator[str]:
    """What KubeRay's own validation says beyond the fields, up to 1.7."""
    groups = spec["workerGroupSpecs"]
    is_v2 = spec.get("autoscalerOptions", {}).get("version") == "v2"
    for name, part in [("head", spec["headGroupSpec"])] + [(g.get("groupName"), g) for g in groups]:
        policy = part["template"]["spec"].get("restartPolicy")
        if spec.get("enableInTreeAutoscaling") and is_v2 and policy not in (None, "Never"):
            yield f"{name}: restartPolicy must be Never or unset with autoscaler v2"
        if "labels" in part and "labels" in part["rayStartParams"]:
            yield f"{name}: labels are given twice"
        if not part.get("minReplicas", 0) <= part.get("replicas", 0) <= part.get("maxReplicas", 0):
            yield f"{name}: replicas are not between minReplicas and maxReplicas"
    if len({group.get("groupName") for group in groups}) < len(groups):
        yield "two groups of one name"


def _compare(value: Any, kind: Any, where: str) -> Iterator[str]:
    if isinstance(kind, list):
        if not isinstance(value, list):
            yield f"{where}: not a list"
            return
        for item in value:
            yield from _compare(item, kind[0], f"{where}[]")
    elif isinstance(kind, dict):
        if not isinstance(value, dict):
            yield f"{where}: not an object"
            return
        for name in REQUIRED.get(where, ()):
            if name not in value:
                yield f"{where}: lacks {name}"
        for name, inner in value.items():
            if name not in kind:
                yield f"{where}: no field {name}"
            else:
                yield from _compare(inner, kind[name], f"{where}.{name}")
    elif isinstance(kind, set):
        if value not in kind:
            yield f"{where}: {value!r} is none of {sorted(kind)}"
    elif kind == FREE:
        bad = {key: item for key, item in value.items() if not isinstance(item, str)}
        if bad:
            yield f"{where}: values must be text, not {bad}"
        if where.endswith("rayStartParams") and set(value) - START_PARAMETERS:
            yield f"{where}: ray start does not know {sorted(set(value) - START_PARAMETERS)}"
    elif kind == POD:
        if not isinstance(value, dict) or "spec" not in value:
            yield f"{where}: not a pod template"
    elif kind is not object and (
        not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    ):
        yield f"{where}: {value!r} is not {kind.__name__}"
