"""One metric with all its series, before it is written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from monitor.telemetry.store_summary import StoreSummary

Kind = Literal["counter", "gauge", "histogram"]
Values = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series.

    >>> counter("images_total", "Images.", ("source",), {("cam-1",): 3}).name
    'conclad_images_total'
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    values: Values
    buckets: Mapping[tuple[str, ...], Sequence[tuple[str, float]]] | None = None


def gauge(name: str, help: str, labels: tuple[str, ...], values: Values) -> Family:
    return Family(f"conclad_{name}", "gauge", help, labels, values)


def counter(name: str, help: str, labels: tuple[str, ...], values: Values) -> Family:
    return Family(f"conclad_{name}", "counter", help, labels, values)


def labelled(truth: StoreSummary, name: str) -> dict[tuple[str, ...], float]:
    return {(label,): value for label, value in truth.by_label(name).items()}


def moment(at: datetime | None) -> dict[tuple[str, ...], float]:
    return {} if at is None else {(): at.timestamp()}
