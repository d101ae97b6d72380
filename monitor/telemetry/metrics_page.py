"""The list of all metrics, as ``docs/metrics.md`` shows it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from monitor.config.telemetry_section import MetricsSection
from monitor.telemetry.metric_catalog import STAGES, families, page_families
from monitor.telemetry.metric_series import Family
from monitor.telemetry.store_summary import StoreSummary

BEGIN = "<!-- metrics: written by scripts/dashboards -->\n"
END = "<!-- end of metrics -->\n"


def every_family() -> Iterator[Family]:
    """All of them, without a store and thus without values."""
    yield from page_families(MetricsSection(), store_up=True, seconds=0.0)
    yield STAGES
    yield from families(StoreSummary(at=datetime.now(UTC), where=""), [])


def reference_table() -> str:
    """A line for each metric: name, type, labels, meaning."""
    lines = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in sorted(every_family(), key=lambda family: family.name):
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """The page with its table as it should be.

    >>> "| `conclad_t_inner` | gauge |" in with_table("before" + BEGIN + "old" + END + "after")
    True
    """
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + reference_table() + END + rest.partition(END)[2]
