"""What the Prometheus operator takes, as far as we use it: its published fields, written down.

As with KubeRay, a misspelt field of a custom resource is dropped without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SELECTOR = {"matchLabels": dict, "matchExpressions": list}
_RELABELING = [
    {
        "sourceLabels": list,
        "separator": str,
        "targetLabel": str,
        "regex": str,
        "modulus": int,
        "replacement": str,
        "action": str,
    }
]
_ENDPOINT = [
    {
        "port": str,
        "path": str,
        "scheme": str,
        "interval": str,
        "scrapeTimeout": str,
        "honorLabels": bool,
        "relabelings": _RELABELING,
        "metricRelabelings": _RELABELING,
    }
]
KINDS: dict[str, Any] = {
    "ServiceMonitor": {
        "jobLabel": str,
        "selector": _SELECTOR,
        "namespaceSelector": {"any": bool, "matchNames": list},
        "targetLabels": list,
        "podTargetLabels": list,
        "endpoints": _ENDPOINT,
        "sampleLimit": int,
    },
    "PodMonitor": {
        "jobLabel": str,
        "selector": _SELECTOR,
        "namespaceSelector": {"any": bool, "matchNames": list},
        "podTargetLabels": list,
        "podMetricsEndpoints": _ENDPOINT,
        "sampleLimit": int,
    },
    "PrometheusRule": {
        "groups": [
            {
                "name": str,
                "interval": str,
                "limit": int,
                "labels": dict,
                "rules": [
                    {
                        "alert": str,
                        "record": str,
                        "expr": str,
                        "for": str,
                        "keep_firing_for": str,
                        "labels": dict,
                        "annotations": dict,
                    }
                ],
            }
        ]
    },
}


def problems(resource: Mapping[str, Any]) -> list[str]:
    """Everything in a resource of the operator that it does not know."""
    return list(_compare(resource["spec"], KINDS[resource["kind"]], resource["kind"]))


def _compare(value: Any, kind: Any, where: str) -> Iterator[str]:
    if isinstance(kind, list):
        if not isinstance(value, list):
            yield f"{where}: not a list"
            return
        for item in value:
            yield from _compare(item, kind[0], f"{where}[]")
    elif isinstance(kind, dict):
        for name, inner in value.items():
            if name not in kind:
                yield f"{where}: no field {name}"
            else:
                yield from _compare(inner, kind[name], f"{where}.{name}")
    elif not isinstance(value, kind):
        yield f"{where}: {value!r} is not {kind.__name__}"
