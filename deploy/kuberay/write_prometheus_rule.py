"""Writes the alerts of deploy/prometheus/rules as the one resource the Prometheus operator reads.

    python deploy/kuberay/write_prometheus_rule.py

A test fails while the written file and the rules differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RULES = HERE.parent / "prometheus" / "rules"
TARGET = HERE / "components" / "monitoring" / "prometheus-rule.yaml"


def resource() -> dict[str, Any]:
    """All groups of all rule files, in the order of their names."""
    groups = [
        group
        for file in sorted(RULES.glob("*.yml"))
        for group in yaml.safe_load(file.read_text())["groups"]
    ]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        # Selected by the Prometheus of kube-prometheus-stack, see scraping.yaml.
        "metadata": {"name": "conclad", "labels": {"release": "kube-prometheus-stack"}},
        "spec": {"groups": groups},
    }


def text() -> str:
    shown = yaml.safe_dump(resource(), sort_keys=False, width=100, allow_unicode=True)
    by = "deploy/kuberay/write_prometheus_rule.py"
    return f"# Written by {by} from deploy/prometheus/rules; do not edit.\n{shown}"


if __name__ == "__main__":
    TARGET.write_text(text())
