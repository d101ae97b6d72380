"""The tables of a report, as plain rows of text; Markdown and HTML only dress them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monitor.evaluation.summary import (
    REFERENCE,
    MethodSummary,
    Records,
    Setting,
    Spread,
    ablation_rows,
    settings_of,
    summarise,
)

_NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table whose first column names the rows.

    >>> print(Table("T", ("method", "AUROC"), (("robust", "98.9"),)).markdown())
    | method | AUROC |
    | --- | ---: |
    | robust | 98.9 |
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        rule = " | ".join(["---", *["---:"] * (len(self.head) - 1)])
        lines = [" | ".join(self.head), rule, *(" | ".join(map(_escaped, r)) for r in self.rows)]
        return "\n".join(f"| {line} |" for line in lines)


def comparisons(records: Records, reference: str = REFERENCE) -> Iterator[Table]:
    """The first table of every setting: all that a terminal has room for."""
    for setting in settings_of(records):
        yield _comparison(setting, summarise(records, setting, reference), reference)


def all_tables(records: Records, reference: str = REFERENCE) -> Iterator[Table]:
    """Per setting: how well, what an operator feels, by task, and the ablations if any."""
    for setting in settings_of(records):
        rows = summarise(records, setting, reference)
        yield _comparison(setting, rows, reference)
        yield _by_task(setting, rows)
        for preset in ("paper", "robust"):
            ablations = ablation_rows(rows, preset)
            if ablations:
                yield _ablations(setting, preset, ablations)


def _comparison(setting: Setting, rows: Sequence[MethodSummary], reference: str) -> Table:
    return Table(
        title=str(setting),
        head=(
            "method",
            "AUROC",
            "to ceiling",
            f"{reference} wins / ties / losses",
            "classes found",
            "pseudo-labels right",
            "false novel",
            "labels per task",
            "labels per class found",
            "seconds per task",
        ),
        rows=tuple(
            (
                row.method,
                _points(row.auroc),
                _NOTHING if row.to_ceiling is None else f"{100 * row.to_ceiling:.1f}",
                _NOTHING if row.wins is None else f"{row.wins} / {row.ties} / {row.losses}",
                # Who asks nothing learns no names.
                f"{row.classes_found} of {row.classes_present}" if row.labels_used else _NOTHING,
                _points(row.purity),
                _points(row.false_novel),
                f"{row.labels_used:.0f}",
                _NOTHING if row.labels_per_class is None else f"{row.labels_per_class:.1f}",
                f"{row.seconds:.1f}",
            )
            for row in rows
        ),
    )


def _by_task(setting: Setting, rows: Sequence[MethodSummary]) -> Table:
    tasks = sorted({task for row in rows for task in row.by_task})
    return Table(
        title=f"AUROC by task: {setting}",
        head=("method", *(f"task {task}" for task in tasks), "last under first"),
        rows=tuple(
            (
                row.method,
                *(_points(row.by_task.get(task)) for task in tasks),
                f"{100 * row.last_under_first:.1f}",
            )
            for row in rows
        ),
    )


def _ablations(setting: Setting, preset: str, rows: Sequence[tuple[str, Spread]]) -> Table:
    default = rows[0][1].mean
    return Table(
        title=f"Ablations of {preset}: {setting}",
        head=("variation", "AUROC", "against default"),
        rows=tuple(
            (title, _points(spread), f"{100 * (spread.mean - default):+.1f}")
            for title, spread in rows
        ),
    )


def _points(spread: Spread | None) -> str:
    if spread is None:
        return _NOTHING
    text = f"{100 * spread.mean:.1f}"
    return text if spread.count == 1 else f"{text} ± {100 * spread.std:.1f}"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
