"""Writes the files that are made from code; ``scripts/dashboards`` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from monitor.telemetry.dashboards import BOARDS, to_json
from monitor.telemetry.metrics_page import with_table


def generated(root: Path) -> Iterator[tuple[Path, str]]:
    """Each file and what should be in it."""
    for board in BOARDS:
        yield root / "deploy" / "grafana" / "dashboards" / f"{board.uid}.json", to_json(board)
    page = root / "docs" / "metrics.md"
    yield page, with_table(page.read_text())


def main() -> None:
    for path, text in generated(Path.cwd()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        click.echo(path.relative_to(Path.cwd()))


if __name__ == "__main__":
    main()
