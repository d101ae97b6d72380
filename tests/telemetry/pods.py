"""The unit tests of the alerts once more, with the monitor's pod replaced in the middle.

Each series ends under one pod and goes on under another after a gap of one sample or two; what
fires must fire all the same, and nothing else may.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules" / "alert_rules.yml"

#: How long no pod is there, and how long before somebody looks: within a 'for' and within [10m].
GAP_SECONDS, BEFORE_SECONDS = 120, 240

#: Of the target, not of the monitor: Prometheus itself writes it.
NOT_OURS = ("up{",)

Test = dict[str, Any]


def with_replaced_pods(suite: Path) -> dict[str, Any]:
    """A suite with a pod that is replaced shortly before each look, and halfway to it."""
    whole = yaml.safe_load(suite.read_text())
    return {**whole, "rule_files": [str(RULES)], "tests": list(_replaced(whole["tests"]))}


def _replaced(tests: list[Test]) -> Iterator[Test]:
    for test in tests:
        if "pod=" in str(test["input_series"]):
            continue  # tells of pods itself
        for check in test["alert_rule_test"]:
            at = seconds(check["eval_time"])
            for moment in sorted({at // 2, max(at - BEFORE_SECONDS, 0)}):
                yield _replaced_at(test, check, moment)


def _replaced_at(test: Test, check: Test, moment: int) -> Test:
    step = seconds(test["interval"])
    first = moment // step
    gap = max(1, GAP_SECONDS // step)
    series = [part for one in test["input_series"] for part in _two_pods(one, first, gap)]
    expected = [
        {"labels": _alert(check["alertname"], one["exp_labels"]), "value": 1}
        for one in check.get("exp_alerts", ())
    ]
    return {
        "name": f"{test['name']}; {check['alertname']} at {check['eval_time']}, "
        f"the pod replaced after {moment // 60}m",
        "interval": test["interval"],
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{check["alertname"]}", alertstate="firing"}}',
                "eval_time": check["eval_time"],
                "exp_samples": expected,
            }
        ],
    }


def _alert(name: str, labels: dict[str, str]) -> str:
    all_ = {"alertname": name, "alertstate": "firing", **labels}
    return "ALERTS{" + ", ".join(f'{k}="{v}"' for k, v in sorted(all_.items())) + "}"


def _two_pods(series: Test, first: int, gap: int) -> Iterator[Test]:
    name = series["series"]
    if name.startswith(NOT_OURS):
        yield series
        return
    values = expanded(series["values"])
    before, after = values[:first], values[first + gap :]
    for pod, part in ((1, [*before, "stale"]), (2, ["_"] * (first + gap) + after)):
        yield {
            "series": re.sub(
                r'instance="[^"]*"', f'instance="10.0.0.{pod}:9464", pod="monitor-{pod}"', name
            ),
            "values": " ".join(compressed(part)) or "_",
        }


def expanded(values: str) -> list[str]:
    """promtool's notation, a sample at a time.

    >>> expanded("1+2x2 _x2 stale 7x1 5-1x1")
    ['1', '3', '5', '_', '_', 'stale', '7', '7', '5', '4']
    """
    found: list[str] = []
    for item in str(values).split():
        if match := re.fullmatch(r"_x(\d+)", item):
            found += ["_"] * int(match[1])
        elif match := re.fullmatch(r"(-?[\d.]+)(?:([+-][\d.]+))?x(\d+)", item):
            start, step = float(match[1]), float(match[2] or 0)
            found += [
                f"{start + step * n:g}" if step else match[1] for n in range(int(match[3]) + 1)
            ]
        else:
            found.append(item)
    return found


def compressed(values: list[str]) -> Iterator[str]:
    """Runs of one value written as such.

    >>> list(compressed(["_", "_", "3", "3", "3", "stale", "4"]))
    ['_x2', '3x2', 'stale', '4']
    """
    start = 0
    while start < len(values):
        value, end = values[start], start
        while end < len(values) and values[end] == value:
            end += 1
        count = end - start
        repeated = f"_x{count}" if value == "_" else f"{value}x{count - 1}"
        yield repeated if count > 1 and value != "stale" else value
        start = end


def seconds(duration: str) -> int:
    """
    >>> seconds("90m"), seconds("2h")
    (5400, 7200)
    """
    match = re.fullmatch(r"(\d+)([smhd])", duration)
    assert match is not None, duration
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
