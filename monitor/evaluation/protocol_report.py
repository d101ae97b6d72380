"""Writes what an evaluation found: a Markdown page, PNG figures, and one HTML file with it all."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from monitor.evaluation.report_figures import ReportFigure, all_plots
from monitor.evaluation.report_tables import Table, all_tables
from monitor.evaluation.results_store import write_bytes
from monitor.evaluation.summary import REFERENCE, Records

_HOW_TO_READ = (
    "AUROC is in percent on the test set of each task, averaged over the tasks of a seed; "
    "± is the standard deviation over seeds. Wins and losses count the seeds in which {reference} "
    "was better or worse than the method of the row. To ceiling is how many points are missing "
    "to the same score given every label of the pool. False novel is the share of old test "
    "samples above T_inner, pseudo-labels right the share of labels given without asking that "
    "are true (for methods that cannot name classes: that are truly new); both are averaged over "
    "tasks and seeds."
)


def write_report(
    records: Records, meta: Mapping[str, Any], out: Path, reference: str = REFERENCE
) -> list[Path]:
    """Write ``report.md``, ``report.html`` and ``plots/*.png``; returns what was written."""
    tables = list(all_tables(records, reference))
    plots = list(all_plots(records))
    folder = out / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        out / "report.md": markdown_page(tables, plots, meta, reference).encode(),
        out / "report.html": html_page(tables, plots, meta, reference).encode(),
        **{folder / f"{plot.name}.png": plot.png for plot in plots},
    }
    for path, content in pages.items():
        write_bytes(path, content)
    return list(pages)


def reference_among(records: Records, wanted: str = REFERENCE) -> str:
    """Whom the others are measured against: without the one wanted, the first that was run.

    >>> reference_among([{"method": "er"}, {"method": "dfm"}])
    'er'
    """
    present = list(dict.fromkeys(record["method"] for record in records))
    return wanted if wanted in present or not present else present[0]


def markdown_page(
    tables: Sequence[Table], plots: Sequence[ReportFigure], meta: Mapping[str, Any], reference: str
) -> str:
    """Readable as it is, and on any host that renders Markdown beside the ``plots`` folder."""
    parts = ["# Evaluation", _HOW_TO_READ.format(reference=reference), *_notes(meta)]
    for table in tables:
        parts += [f"## {table.title}", table.markdown()]
    if plots:
        parts.append("## Figures")
    parts += [f"![{plot.description}](plots/{plot.name}.png)" for plot in plots]
    return "\n\n".join(parts) + "\n"


def html_page(
    tables: Sequence[Table], plots: Sequence[ReportFigure], meta: Mapping[str, Any], reference: str
) -> str:
    """One file that needs nothing else: no scripts, no fonts, no images from elsewhere."""
    notes = "".join(f"<p>{escape(note)}</p>" for note in _notes(meta))
    sections = "".join(_html_table(number, table) for number, table in enumerate(tables))
    figures = "".join(_html_figure(plot) for plot in plots)
    drawn = f"<section><h2>Figures</h2>{figures}</section>" if plots else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>conclad evaluation</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>Evaluation</h1>\n<p>{escape(_HOW_TO_READ.format(reference=reference))}</p>\n"
        f"{notes}{sections}{drawn}\n</main>\n</body>\n</html>\n"
    )


def _notes(meta: Mapping[str, Any]) -> list[str]:
    failures = meta.get("failures") or {}
    notes = []
    versions = meta.get("versions") or {}
    if versions:
        listed = ", ".join(f"{name} {number}" for name, number in versions.items())
        notes.append(f"Computed with {listed}.")
    if failures:
        listed = "; ".join(f"{key} ({reason})" for key, reason in failures.items())
        notes.append(f"Incomplete: {len(failures)} cells failed and are missing below: {listed}.")
    return notes


def _html_table(number: int, table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    # A scrolling region must be reachable by keyboard, hence the tabindex and its name.
    return (
        f'<section><h2 id="table-{number}">{escape(table.title)}</h2>'
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="table-{number}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>\n"
    )


def _html_figure(plot: ReportFigure) -> str:
    data = base64.b64encode(plot.png).decode()
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{escape(plot.description)}">'
        f"<figcaption>{escape(plot.title)}</figcaption></figure>\n"
    )


_STYLE = """
:root { color-scheme: light dark; --line: #d0d4da; --soft: #f4f6f8; --ink: #1d2329; --page: #fff }
@media (prefers-color-scheme: dark) {
  :root { --line: #3a424b; --soft: #1f262d; --ink: #e6e9ec; --page: #14181c }
}
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif }
main { max-width: 72rem; margin: 0 auto; padding: 2rem 1.25rem 4rem }
h1 { font-size: 1.9rem; margin: 0 0 .5rem }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem }
p { max-width: 46rem }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px }
.scroll:focus-visible { outline: 3px solid #0072b2; outline-offset: 2px }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: .92rem }
th, td { padding: .45rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line) }
thead th { background: var(--soft); vertical-align: bottom; white-space: normal }
th:first-child { text-align: left }
tbody th { font-weight: 600 }
tbody tr:last-child > * { border-bottom: 0 }
tbody tr:hover > * { background: var(--soft) }
figure { margin: 1.2rem 0; padding: .8rem; background: #fff; border: 1px solid var(--line);
  border-radius: 8px; display: inline-block; max-width: 100%; box-sizing: border-box }
img { max-width: 100%; height: auto; display: block }
figcaption { color: #444; font-size: .85rem; margin-top: .4rem }
"""
