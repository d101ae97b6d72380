"""What we ship for Grafana, Prometheus and the Alertmanager is whole and up to date."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor.config.telemetry_section import MetricsSection
from monitor.store import Store
from monitor.telemetry.dashboards import BOARDS
from monitor.telemetry.dashboards.model import WIDTH
from monitor.telemetry.dashboards.overview_dashboard import ALERTS as SHOWN
from monitor.telemetry.exporter import Exporter
from monitor.telemetry.metric_catalog import SILENT_NAMED
from monitor.telemetry.metrics_page import every_family
from monitor.telemetry.write_dashboards import generated
from tests.system import require_system
from tests.telemetry import feeding
from tests.telemetry.pods import with_replaced_pods
from tests.telemetry.scraping import Page

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
SUITES = sorted((PROMETHEUS / "tests").glob("*.yml"))

#: The names that other people's routes and silences are written with.
ALERTS = {
    "NovelClassDetected",
    "NoveltySuspected",
    "KnownClassDrift",
    "FeedSilent",
    "InputLagHigh",
    "LabelQueueStale",
    "LabelBudgetExhausted",
    "RejectedImagesHigh",
    "DetectorUpdateFailing",
    "DetectorUpdateHeld",
    "MonitorDown",
    "ManySourcesSilent",
    "SourcesCapped",
    "FilesQuarantined",
    "EmbeddersNotStarting",
    "RestartStorm",
    "DiskNearlyFull",
    "Outage",
    "ImagesUnaccounted",
}


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((PROMETHEUS / "rules" / "alert_rules.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -- metrics ---------------------------------------------------------------------------------


def test_every_metric_is_on_its_page(store: Store) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    feeding.whole_life(store)
    exporter = Exporter(store, MetricsSection())
    exporter.observe_stage("embed", 1.0)
    for metric in exporter.registry.collect():
        # The client library leaves the ending of counters to the writer of the page.
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        if not name.startswith("process_"):
            assert f"| `{name}` |" in page, f"{name}: run scripts/dashboards"


def test_every_metric_has_a_help_and_a_conventional_name() -> None:
    for family in every_family():
        assert family.help.endswith("."), family.name
        assert re.fullmatch(r"conclad_[a-z]+(_[a-z]+)*", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert not {"le", "quantile"} & set(family.labels)


# -- what is generated -----------------------------------------------------------------------


def test_generated_is_committed() -> None:
    for path, text in generated(ROOT):
        assert path.read_text() == text, f"{path.name}: run scripts/dashboards"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_board_is_complete(board: Any) -> None:
    page = board.to_dict()
    assert {v["name"] for v in page["templating"]["list"]} == {
        "datasource",
        "group",
        "source",
    }
    assert {a["name"] for a in page["annotations"]["list"]} == {"New classes", "Detector versions"}
    taken: set[tuple[int, int]] = set()
    for panel in page["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} covers another panel"
        assert all(x < WIDTH for x, _ in cells)
        taken |= cells
        if panel["type"] != "row":
            assert len(panel["description"]) > 20, panel["title"]
            assert panel["targets"]
            assert all(
                target["datasource"]["uid"] == "${datasource}" for target in panel["targets"]
            )


def test_every_figure_of_ours_is_of_the_chosen_groups() -> None:
    for board in BOARDS:
        text = json.dumps(board.to_dict()).replace('\\"', '"')
        selectors = re.findall(r"conclad_\w+(?:\{[^}]*\})?", text)
        # The variable 'group' itself is asked of all.
        loose = [s for s in selectors if 'group=~"$group"' not in s]
        assert loose == ["conclad_build_info"], board.uid


def test_every_row_leads_to_its_source_and_to_the_desk_of_its_group() -> None:
    tables = [p for board in BOARDS for p in board.panels if p.kind == "table"]
    assert len(tables) == 4
    for panel in tables:
        columns = {
            one["matcher"]["options"]: {p["id"]: p["value"] for p in one["properties"]}
            for one in panel.overrides
        }
        urls = [link["url"] for column in columns.values() for link in column.get("links", ())]
        assert any(url.startswith("/d/conclad-source?") for url in urls), panel.title
        assert any(url.startswith("${__data.fields.desk}/") for url in urls), panel.title
        assert columns["desk"] == {"custom.hidden": True}, "hidden, or links would not find it"
        [names] = [t["options"] for t in panel.transformations if t["id"] == "organize"]
        assert "desk" not in names["excludeByName"]
        for named in re.findall(r"__data\.fields\.(\w+)", " ".join(urls)):
            assert named in {"desk", *names["renameByName"].values()}, panel.title
        assert any("group_left (desk)" in query.expr for query in panel.queries), panel.title


def test_rays_figures_have_the_names_that_ray_gives_them() -> None:
    # Read, not imported: these parts of Ray want packages that the monitor does not.
    ray = Path(pytest.importorskip("ray").__file__).parent
    reporter = (ray / "dashboard" / "modules" / "reporter" / "reporter_agent.py").read_text()
    scaler = (ray / "autoscaler" / "_private" / "prom_metrics.py").read_text()
    used = {n for board in BOARDS for e in board.expressions() for n in _theirs(e)}
    assert {name.partition("_")[0] for name in used} == {"ray", "autoscaler"}
    for name in used:
        if name.startswith("ray_"):
            assert f'"{name.removeprefix("ray_")}": Gauge(' in reporter, name
        else:
            assert f'"{name.removeprefix("autoscaler_")}"' in scaler, name
    assert '"NodeType"' in scaler


def _theirs(expr: str) -> list[str]:
    return re.findall(r"\b(?:ray|autoscaler)_\w+", expr)


def test_dashboards_and_rules_only_name_metrics_that_exist() -> None:
    known = {family.name for family in every_family()}
    histograms = {family.name for family in every_family() if family.kind == "histogram"}
    known |= {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    texts = [expr for board in BOARDS for expr in board.expressions()]
    texts += [rule["expr"] for rule in rules()]
    texts += [text for rule in rules() for text in rule["annotations"].values()]
    texts += list(grafana_expressions())
    for text in texts:
        assert set(re.findall(r"\bconclad_[a-z_]+", text)) <= known, text


def grafana_expressions() -> list[str]:
    document = yaml.safe_load(
        (GRAFANA / "provisioning" / "alerting" / "grafana_alerts.yml").read_text()
    )
    return [
        part["model"]["expr"]
        for group in document["groups"]
        for rule in group["rules"]
        for part in rule["data"]
        if part["datasourceUid"] == "prometheus"
    ]


# -- Grafana ---------------------------------------------------------------------------------


def test_grafana_finds_what_it_is_told_to_read() -> None:
    provisioning = GRAFANA / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "conclad.yml").read_text())
    uids = {source["uid"] for source in sources["datasources"]}
    alerting = yaml.safe_load((provisioning / "alerting" / "grafana_alerts.yml").read_text())
    boards = {json.loads(p.read_text())["uid"] for p in (GRAFANA / "dashboards").glob("*.json")}
    assert boards == {board.uid for board in BOARDS}
    for rule in (rule for group in alerting["groups"] for rule in group["rules"]):
        assert rule["title"] in ALERTS
        assert rule["annotations"]["__dashboardUid__"] in boards
        refs = {part["refId"] for part in rule["data"]}
        assert rule["condition"] in refs
        for part in rule["data"]:
            assert part["datasourceUid"] in uids | {"__expr__"}
            assert part["refId"] == part["model"]["refId"]


# -- alerts ----------------------------------------------------------------------------------


def test_every_alert_is_complete() -> None:
    assert {rule["alert"] for rule in rules()} == ALERTS == set(SHOWN)
    boards = {board.uid for board in BOARDS}
    for rule in rules():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert "for" in rule
        notes = rule["annotations"]
        assert set(notes) == {"summary", "description", "runbook_url", "dashboard_url", "desk_url"}
        assert notes["runbook_url"].endswith(f"/{rule['alert']}.md")
        [board] = re.findall(r"/d/([a-z-]+)", notes["dashboard_url"])
        assert board in boards


def test_every_alert_has_a_runbook_and_stands_on_the_page_of_alerts() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    for name in ALERTS:
        runbook = (ROOT / "docs" / "runbooks" / f"{name}.md").read_text()
        assert runbook.startswith(f"# {name}\n")
        for heading in ("## What it means", "## What to do", "## When it is wrong"):
            assert heading in runbook, name
        assert f"(runbooks/{name}.md)" in page
    assert {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")} == ALERTS


def test_promtool_accepts_rules_and_configuration() -> None:
    promtool = require_system("promtool", "prometheus")
    assert "SUCCESS" in run(promtool, "check", "rules", PROMETHEUS / "rules" / "alert_rules.yml")
    assert "SUCCESS" in run(promtool, "check", "config", PROMETHEUS / "prometheus.yml")


def test_every_alert_fires_and_is_silent_in_its_unit_tests() -> None:
    promtool = require_system("promtool", "prometheus")
    run(promtool, "test", "rules", *SUITES)
    checks = [
        check
        for suite in SUITES
        for group in yaml.safe_load(suite.read_text())["tests"]
        for check in group["alert_rule_test"]
    ]
    fires = {check["alertname"] for check in checks if check.get("exp_alerts")}
    silent = {check["alertname"] for check in checks if not check.get("exp_alerts")}
    assert fires == silent == ALERTS


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.stem)
def test_every_alert_outlives_its_pod(suite: Path, tmp_path: Path) -> None:
    promtool = require_system("promtool", "prometheus")
    again = with_replaced_pods(suite)
    assert len(again["tests"]) >= len(yaml.safe_load(suite.read_text())["tests"])
    file = tmp_path / "replaced.yml"
    file.write_text(yaml.safe_dump(again))
    run(promtool, "test", "rules", file)


def test_no_rule_knows_a_pod_and_every_one_knows_its_group() -> None:
    """Labels of a target change when it is replaced; what fires must not change with them."""
    for rule in rules():
        kept = re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
        labels = {label.strip() for part in kept for label in part.split(",")} - {""}
        # Who never answered has no group yet, only an address.
        allowed = {"instance"} if rule["alert"] == "MonitorDown" else set()
        assert not {"pod", "instance", "job", "namespace"} & labels - allowed, rule["alert"]
        assert "group" in labels, rule["alert"]
        assert "without" not in rule["expr"]
        assert "offset" not in rule["expr"], "a series has no past before its pod"
        for text in rule["annotations"].values():
            queries = re.findall(r"conclad_\w+", text)
            assert len(queries) == text.count("group=%q"), f"{rule['alert']}: of all groups"


def test_as_many_silent_sources_are_named_as_the_rules_say() -> None:
    [many] = [rule for rule in rules() if rule["alert"] == "ManySourcesSilent"]
    assert many["expr"].endswith(f"> {SILENT_NAMED}")


def test_promtool_notices_a_page_that_breaks_the_conventions(store: Store) -> None:
    """``promtool check metrics`` reads our page, and finds nothing to say about our names."""
    promtool = require_system("promtool", "prometheus")
    feeding.whole_life(store)
    with Exporter(store, MetricsSection(port=0)) as exporter:
        assert exporter.url is not None
        page = Page(exporter.url).text
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("conclad_")]
    assert said == []


def test_amtool_accepts_the_example_and_routes_discoveries_by_class() -> None:
    amtool = require_system("amtool", "prometheus-alertmanager")
    config = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
    assert "SUCCESS" in run(amtool, "check-config", config)
    routed = run(amtool, "config", "routes", "test", f"--config.file={config}", "alertname=X")
    assert routed.strip() == "operators"
