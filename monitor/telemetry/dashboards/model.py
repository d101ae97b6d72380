"""Just enough of Grafana's dashboard model to say what a page shows, and in which order.

Laid out conservatively: panels of plain types on a grid of 24 columns, placed from left to right
and from top to bottom. Nothing that only a certain release of Grafana understands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

WIDTH = 24

#: Written for Grafana 10 and later; later ones bring older layouts forward by themselves.
SCHEMA_VERSION = 39

#: Every query goes to the data source that is chosen at the top of the page.
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

#: The sources that are chosen at the top of the page.
SOURCE = 'source=~"$source"'

#: The groups that are; put into every selector of ours when a page is written, so that none is
#: forgotten.
GROUP = 'group=~"$group"'
_SELECTOR = re.compile(r"\b(conclad_\w+)(\{([^}]*)\})?")

PanelType = Literal["stat", "timeseries", "table", "heatmap", "bargauge", "row"]


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and how its series are called."""

    expr: str
    legend: str = ""
    instant: bool = False
    format: Literal["time_series", "table", "heatmap"] = "time_series"


@dataclass(frozen=True, slots=True)
class Panel:
    """A box of so many columns and rows. Every one says what it shows and how to read it.

    ``steps`` are the colours from each value on; ``words`` name single values.
    """

    title: str
    kind: PanelType
    description: str
    queries: Sequence[Query] = ()
    width: int = 12
    height: int = 8
    unit: str = "short"
    decimals: int | None = None
    steps: Sequence[tuple[float | None, str]] = ((None, "text"),)
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    nothing: str | None = None
    stacked: bool = False
    least: float | None = 0.0
    overrides: Sequence[Mapping[str, Any]] = ()
    transformations: Sequence[Mapping[str, Any]] = ()
    link: tuple[str, str] | None = None


def scoped(expr: str) -> str:
    """With the chosen groups in every selector.

    >>> scoped('sum(conclad_a{x="y"}) / conclad_b')
    'sum(conclad_a{group=~"$group",x="y"}) / conclad_b{group=~"$group"}'
    """

    def within(match: re.Match[str]) -> str:
        inner = f",{match[3]}" if match[3] else ""
        return f"{match[1]}{{{GROUP}{inner}}}"

    return _SELECTOR.sub(within, expr)


def row(title: str) -> Panel:
    """A line between groups of panels."""
    return Panel(title, "row", title, width=WIDTH, height=1)


@dataclass(frozen=True, slots=True)
class Board:
    """One page.

    >>> panel = Panel("Lag", "stat", "How far behind.", [Query("conclad_input_lag_seconds")])
    >>> Board("x", "X", "A page.", (panel,)).to_dict()["panels"][0]["gridPos"]
    {'h': 8, 'w': 12, 'x': 0, 'y': 0}
    """

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]
    period: str = "now-24h"

    def expressions(self) -> Iterator[str]:
        """Everything that the page asks Prometheus, its annotations included."""
        for panel in self.panels:
            yield from (scoped(query.expr) for query in panel.queries)
        yield from (annotation["expr"] for annotation in _annotations())

    def to_dict(self) -> dict[str, Any]:
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["conclad"],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "graphTooltip": 1,  # one crosshair for all panels: what else happened just then?
            "timezone": "browser",
            "refresh": "30s",
            "time": {"from": self.period, "to": "now"},
            "templating": {"list": _variables()},
            "annotations": {"list": _annotations()},
            "links": [_LINKS],
            "panels": list(_placed(self.panels)),
        }


def to_json(board: Board) -> str:
    return json.dumps(board.to_dict(), indent=2, ensure_ascii=False) + "\n"


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Give each panel its place: left to right, a new line where it does not fit any more."""
    x = y = line = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y, line = 0, y + line, 0
        place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
        yield {"id": number, "gridPos": place, **_panel(panel)}
        x, line = x + panel.width, max(line, panel.height)


def _panel(panel: Panel) -> dict[str, Any]:
    if panel.kind == "row":
        return {"type": "row", "title": panel.title, "collapsed": False, "panels": []}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": [_target(query, chr(ord("A") + i)) for i, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _field(panel), "overrides": list(panel.overrides)},
        "options": _OPTIONS[panel.kind],
        "transformations": list(panel.transformations),
    }


def _target(query: Query, ref: str) -> dict[str, Any]:
    return {
        "refId": ref,
        "datasource": DATASOURCE,
        "expr": scoped(query.expr),
        "legendFormat": query.legend or "__auto",
        "instant": query.instant,
        "range": not query.instant,
        "format": query.format,
    }


def _field(panel: Panel) -> dict[str, Any]:
    field: dict[str, Any] = {
        "unit": panel.unit,
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "thresholds": {
            "mode": "absolute",
            "steps": [{"color": color, "value": value} for value, color in panel.steps],
        },
        "mappings": [
            {"type": "value", "options": {value: {"text": text, "color": color}}}
            for value, (text, color) in panel.words.items()
        ],
        "custom": _custom(panel),
    }
    if panel.least is not None and panel.kind == "timeseries":
        field["min"] = panel.least
    if panel.decimals is not None:
        field["decimals"] = panel.decimals
    if panel.nothing is not None:
        field["noValue"] = panel.nothing
    if panel.link is not None:
        title, url = panel.link
        field["links"] = [{"title": title, "url": url, "targetBlank": False}]
    return field


def _custom(panel: Panel) -> dict[str, Any]:
    if panel.kind != "timeseries":
        return {}
    return {
        "lineWidth": 1,
        "fillOpacity": 60 if panel.stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if len(panel.steps) == 1 else "dashed"},
    }


def at_width(name: str, width: int) -> dict[str, Any]:
    """A column of a table with a width of its own."""
    return by_name(name, {"custom.width": width})


def by_name(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """An exception for one column or one series."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


#: Brings the address of the desk into each row, which is another one for each group.
DESK = "on (group) group_left (desk) (0 * max by (group, desk) (conclad_links_info))"


def linked(column: str, *links: tuple[str, str]) -> dict[str, Any]:
    """A column whose cells lead on; ``${__data.fields.NAME}`` is another cell of the row."""
    return by_name(
        column,
        {"links": [{"title": title, "url": url, "targetBlank": False} for title, url in links]},
    )


def source_links() -> tuple[tuple[str, str], ...]:
    """From a row with the columns Source, Group and desk."""
    chosen = "var-group=${__data.fields.Group}&var-source=${__data.fields.Source}"
    return (
        ("This source in detail", f"/d/conclad-source?{chosen}&${{__url_time_range}}"),
        ("Questions at the desk", "${__data.fields.desk}/"),
    )


def out_of_sight(column: str) -> dict[str, Any]:
    """Not shown, but there for links."""
    return by_name(column, {"custom.hidden": True})


def renamed(names: Mapping[str, str], *, hidden: Sequence[str] = ()) -> dict[str, Any]:
    """Column names for people, in this order, without what nobody reads."""
    return {
        "id": "organize",
        "options": {
            "renameByName": dict(names),
            "indexByName": {name: place for place, name in enumerate(names)},
            "excludeByName": dict.fromkeys(
                ("Time", "__name__", "instance", "job", "pod", "namespace", *hidden), True
            ),
        },
    }


_REDUCED = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_LEGEND = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "stat": {
        "reduceOptions": _REDUCED,
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "textMode": "auto",
        "orientation": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    },
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "table": {"showHeader": True, "cellHeight": "sm", "frameIndex": 0},
    "bargauge": {
        "reduceOptions": _REDUCED,
        "displayMode": "basic",
        "orientation": "horizontal",
        "valueMode": "color",
        "showUnfilled": True,
        "namePlacement": "auto",
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 300,
        "legend": {**_LEGEND, "showLegend": False},
    },
    "heatmap": {
        "calculate": False,  # Prometheus has counted the buckets already
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "steps": 64,
            "exponent": 0.5,
            "fill": "dark-orange",
            "scale": "exponential",
            "reverse": False,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
        "yAxis": {"axisPlacement": "left", "unit": "short", "reverse": False},
    },
}

_LINKS = {
    "type": "dashboards",
    "title": "conclad",
    "tags": ["conclad"],
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
    "icon": "external link",
    "targetBlank": False,
    "tooltip": "",
    "url": "",
}


def _variables() -> list[dict[str, Any]]:
    return [
        {
            "name": "datasource",
            "type": "datasource",
            "label": "Prometheus",
            "query": "prometheus",
            "refresh": 1,
            "hide": 0,
            "includeAll": False,
            "multi": False,
            "options": [],
            "regex": "",
            "skipUrlSync": False,
        },
        _choice("group", "Group", "label_values(conclad_build_info, group)"),
        _choice("source", "Source", f"label_values({scoped('conclad_images_total')}, source)"),
    ]


def _choice(name: str, label: str, query: str) -> dict[str, Any]:
    """One, several or all of what a label may be; all includes what has no such label."""
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": f"{name}s"},
        "refresh": 2,  # with the time range: they come and go
        "sort": 1,
        "hide": 0,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "options": [],
        "regex": "",
        "skipUrlSync": False,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _annotations() -> list[dict[str, Any]]:
    """Marks in every panel; the moments are values, so a mark stands where it happened."""
    return [
        _mark(
            "New classes",
            f"conclad_class_discovered_timestamp_seconds{{{SOURCE}}} * 1000",
            "red",
            "New class",
            "{{class_name}} at {{source}}",
        ),
        _mark(
            "Detector versions",
            "conclad_detector_updated_timestamp_seconds * 1000",
            "blue",
            "New detector version",
            "put into use",
        ),
    ]


def _mark(name: str, expr: str, color: str, title: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "datasource": DATASOURCE,
        "expr": scoped(expr),
        "titleFormat": title,
        "textFormat": text,
        "useValueForTime": True,
    }
