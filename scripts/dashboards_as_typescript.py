"""The dashboards as TypeScript literals with Grafana's types, for the compiler to judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path("deploy/grafana/dashboards")
TYPES = "@grafana/schema/dist/esm/raw/composable"

# Panel kind: its folder and file in Grafana's types, and what they call its field settings.
KINDS = {
    "stat": ("stat/panelcfg/x/StatPanelCfg_types.gen", "never"),
    "timeseries": ("timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen", "common.GraphFieldConfig"),
    "table": ("table/panelcfg/x/TablePanelCfg_types.gen", "common.TableFieldOptions"),
    "bargauge": ("bargauge/panelcfg/x/BarGaugePanelCfg_types.gen", "never"),
    "heatmap": ("heatmap/panelcfg/x/HeatmapPanelCfg_types.gen", "never"),
}

PRELUDE = """\
import type * as common from '@grafana/schema';
import type {
  Dashboard,
  FieldConfig,
} from '@grafana/schema/dist/esm/raw/dashboard/x/Dashboard_types.gen';

// JSON spells an enum by its value; the template type gives the values of an enum of words.
type Plain<T> = T extends string
  ? `${T}`
  : T extends readonly (infer U)[]
    ? Plain<U>[]
    : T extends object
      ? { [K in keyof T]: Plain<T[K]> }
      : T;

// What the types leave open (query fields of a data source, and the like) stays open.
type Target = {
  refId: string;
  datasource: { type: string; uid: string };
  expr: string;
  legendFormat: string;
  instant: boolean;
  range: boolean;
  format: 'time_series' | 'table' | 'heatmap';
};

// The Prometheus plugin keeps its own settings of an annotation beside Grafana's.
type Mark = { expr: string; titleFormat: string; textFormat: string; useValueForTime: boolean };
"""

MARK = ("expr", "titleFormat", "textFormat", "useValueForTime")


def main() -> None:
    lines = [PRELUDE]
    for kind, (module, _) in KINDS.items():
        lines.append(f"import type {{ Options as {kind}Options }} from '{TYPES}/{module}';")
    number = 0
    for path in sorted(FOLDER.glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            if panel["type"] == "row":
                continue
            number += 1
            lines.append(_panel(panel, number))
        number += 1
        marks = [{key: mark.pop(key) for key in MARK} for mark in board["annotations"]["list"]]
        lines.append(f"export const marks{number}: Mark[] = {_literal(marks)};")
        lines.append(f"export const board{number}: Plain<Partial<Dashboard>> = {_literal(board)};")
    print("\n".join(lines))


def _panel(panel: dict[str, Any], number: int) -> str:
    """Options, field settings and queries once more, with the types of their kind of panel."""
    kind = panel["type"]
    defaults = dict(panel["fieldConfig"]["defaults"])
    custom = defaults.pop("custom")
    name = f"panel{number}"
    return "\n".join(
        [
            f"// {panel['title']}",
            f"export const {name}Options: Plain<Partial<{kind}Options>> = "
            f"{_literal(panel['options'])};",
            f"export const {name}Field: Plain<FieldConfig> = {_literal(defaults)};",
            f"export const {name}Custom: Plain<Partial<{_custom(kind)}>> = {_literal(custom)};",
            f"export const {name}Targets: Target[] = {_literal(panel['targets'])};",
        ]
    )


def _custom(kind: str) -> str:
    found = KINDS[kind][1]
    return "Record<string, never>" if found == "never" else found


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main()
