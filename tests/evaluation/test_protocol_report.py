"""Summaries add up, and reports stand on their own."""

from __future__ import annotations

import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from monitor.evaluation.protocol_report import write_report
from monitor.evaluation.report_figures import all_plots
from monitor.evaluation.report_tables import all_tables
from monitor.evaluation.summary import Setting, ablation_rows, settings_of, summarise


def record(method: str, seed: int, task: int, auroc: float, **changes: Any) -> dict[str, Any]:
    return {
        "dataset": "set", "backbone": "net", "method": method, "increment": 2, "budget": 0.01,
        "seed": seed, "task": task, "auroc": auroc, "classes_present": 2, "classes_found": 1,
        "pseudo_purity": None, "false_novel_rate": 0.05, "labels_used": 10, "seconds": 1.0,
        **changes,
    }  # fmt: skip


RECORDS = [
    record("robust", 0, 1, 0.90),
    record("robust", 0, 2, 0.80),
    record("robust", 1, 1, 0.96, pseudo_purity=0.9),
    record("robust", 1, 2, 0.94, classes_found=2),
    record("dfm", 0, 1, 0.95, labels_used=0, classes_found=0),
    record("dfm", 0, 2, 0.85, labels_used=0, classes_found=0),
    record("dfm", 1, 1, 0.50, labels_used=0, classes_found=0),
    record("dfm", 1, 2, 0.60, labels_used=0, classes_found=0),
    record("ceiling", 0, 1, 1.0),
    record("ceiling", 0, 2, 1.0),
    record("ceiling", 1, 1, 1.0),
    record("ceiling", 1, 2, 1.0),
]
SETTING = Setting("set", "net", 2, 0.01)


def test_seeds_are_averaged_over_tasks_first() -> None:
    robust, dfm, ceiling = summarise(RECORDS, SETTING)
    assert robust.by_seed == pytest.approx({0: 0.85, 1: 0.95})
    assert (robust.auroc.mean, robust.auroc.std) == pytest.approx((0.90, 0.0707107), abs=1e-6)
    assert robust.by_task[2].mean == pytest.approx(0.87)
    assert robust.last_under_first == pytest.approx(0.93 - 0.87)
    assert robust.to_ceiling == pytest.approx(0.10)
    assert ceiling.to_ceiling is None
    assert (robust.classes_found, robust.classes_present) == (5, 8)
    assert robust.labels_per_class == pytest.approx(40 / 5)
    assert robust.purity is not None
    assert robust.purity.mean == 0.9
    assert dfm.purity is None
    assert dfm.labels_per_class is None


def test_wins_and_losses_are_per_seed_and_of_the_reference() -> None:
    robust, dfm, ceiling = summarise(RECORDS, SETTING)
    assert robust.wins is None
    assert (dfm.wins, dfm.ties, dfm.losses) == (1, 0, 1)
    assert (ceiling.wins, ceiling.ties, ceiling.losses) == (0, 0, 2)


def test_ablations_are_shown_against_their_default() -> None:
    records = [record("paper", 0, 1, 0.9), record("paper-no-iters", 0, 1, 0.7)]
    rows = summarise(records, SETTING)
    assert [title for title, _ in ablation_rows(rows, "paper")] == ["default", "No-Iters"]
    assert ablation_rows(rows, "robust") == []
    tables = {table.title.split(":")[0]: table for table in all_tables(records, "paper")}
    assert tables["Ablations of paper"].rows[1] == ("No-Iters", "70.0", "-20.0")


def test_figures_by_budget_and_increment_need_several_of_them() -> None:
    def kinds(records: list[dict[str, Any]]) -> set[str]:
        return {"-".join(plot.name.split("-")[:3]) for plot in all_plots(records)}

    assert kinds(RECORDS) == {"auroc-by-task", "distance-to-ceiling", "labels-per-class"}
    more = [{**r, "budget": 0.05} for r in RECORDS] + [{**r, "increment": 3} for r in RECORDS]
    assert kinds(RECORDS + more) >= {"auroc-by-budget", "auroc-by-increment"}
    assert len(settings_of(RECORDS + more)) == 3


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_html_report_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    meta = {"versions": {"numpy": "2"}, "failures": {"a/b": "ValueError: <script>x</script>"}}
    write_report(RECORDS, meta, tmp_path)
    text = (tmp_path / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert not page.all("script")
    assert not page.all("link")
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert page.all("html") == [{"lang": "en"}]
    pictures = page.all("img")
    assert len(pictures) == 3
    for picture in pictures:
        assert (picture["src"] or "").startswith("data:image/png;base64,")
        assert len(picture["alt"] or "") > 20
    assert {cell["scope"] for cell in page.all("th")} == {"col", "row"}
    assert "1 cells failed" in text


def test_the_markdown_report_links_to_figures_that_are_there(tmp_path: Path) -> None:
    written = write_report(RECORDS, {}, tmp_path)
    text = (tmp_path / "report.md").read_text()
    figures = [path for path in written if path.suffix == ".png"]
    assert figures
    for figure in figures:
        assert f"(plots/{figure.name})" in text
        content = figure.read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", content[16:24])
        assert width > 600
        assert height > 200
    assert "| robust | 90.0 ± 7.1 | 10.0 |" in text


def test_the_same_records_give_the_same_figures() -> None:
    first, second = ([plot.png for plot in all_plots(RECORDS)] for _ in range(2))
    assert first == second
