"""Every number of the method as Markdown: where it is set, its default, its range, its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any

from monitor.novelty.common_settings import GraphSettings, MethodSettings
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.settings_group import SettingsGroup
from monitor.novelty.trigger.trigger_settings import (
    PoolNoveltySettings,
    SensitivitySettings,
    TriggerSettings,
)

_METHOD = {one.name for one in fields(MethodSettings)}
# Title, what is said under it, the group, and what a name is preceded by in the configuration.
_SECTIONS: tuple[tuple[str, str, type[SettingsGroup], str], ...] = (
    ("Both presets", "Under `novelty.settings`.", MethodSettings, ""),
    ("The preset paper", "Under `novelty.settings`, with `preset: paper`.", PaperSettings, ""),
    ("The preset robust", "Under `novelty.settings`, with `preset: robust`.", RobustSettings, ""),
    ("The graph", "Under `novelty.settings.graph`.", GraphSettings, "graph."),
    ("The novelty of a pool", "Under `novelty.settings.pool`.", PoolNoveltySettings, "pool."),
    (
        "The trigger",
        "`pools.false_rounds_per_month`, `labels.trickle_per_week` and `labels.probe` are keys of "
        "the configuration; the others are set in Python.",
        TriggerSettings,
        "",
    ),
    ("What could be noticed", "Set in Python.", SensitivitySettings, ""),
    (
        "Drift",
        "The first seven are keys under `drift`; the others are set in Python.",
        DriftSettings,
        "",
    ),
)


def settings_tables() -> str:
    """A section with a table for each group of settings.

    >>> "| `graph.neighbours` | 10 | at least 1 |" in settings_tables()
    True
    """
    parts = []
    for title, where, group, prefix in _SECTIONS:
        rows = [
            f"| `{prefix}{one.name}` | {_shown(one.default)} | {_range(one)} "
            f"| {one.metadata['why']} |"
            for one in _own(group)
        ]
        table = ["| setting | default | may be | why |", "| --- | --- | --- | --- |", *rows]
        parts.append("\n".join([f"## {title}", "", where, "", *table]))
    return "\n\n".join(parts) + "\n"


def _own(group: type[SettingsGroup]) -> Iterator[Field[Any]]:
    """The numbers of a group, without those that a preset has in common with the other."""
    for one in fields(group):
        inherited = issubclass(group, MethodSettings) and group is not MethodSettings
        if "why" not in one.metadata or (inherited and one.name in _METHOD and _same(one)):
            continue
        yield one


def _same(one: Field[Any]) -> bool:
    shared = {f.name: f for f in fields(MethodSettings)}
    return bool(one.default == shared[one.name].default)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(_shown(one) for one in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _range(one: Field[Any]) -> str:
    rules = one.metadata
    if rules["among"]:
        return ", ".join(rules["among"])
    if rules["low"] is None:
        return "yes, no" if isinstance(one.default, bool) else ""
    if rules["high"] is None:
        return f"at least {rules['low']:g}"
    return f"{rules['low']:g} to {rules['high']:g}"
