"""The paper's figures from our records: AUROC by task, by budget, by classes per task, and more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from monitor.evaluation.summary import (
    CEILING,
    MethodSummary,
    Records,
    Setting,
    percent,
    settings_of,
    summarise,
)

# Okabe and Ito's colours, distinct to every common kind of colour vision; a marker of its own
# for each line says the same without colour.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#555555")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_WIDTH, _HEIGHT, _DPI = 7.2, 4.2, 130


@dataclass(frozen=True, slots=True)
class ReportFigure:
    """A PNG with what a reader who cannot see it should know."""

    name: str
    title: str
    description: str
    png: bytes


def all_plots(records: Records) -> Iterator[ReportFigure]:
    """Every figure that the records have something to say about."""
    order = list(dict.fromkeys(record["method"] for record in records))
    settings = settings_of(records)
    summaries = {setting: summarise(records, setting) for setting in settings}
    for setting in settings:
        yield _by_task(setting, summaries[setting], order)
        if any(s.to_ceiling is not None for s in summaries[setting]):
            yield _to_ceiling(setting, summaries[setting])
        if any(s.labels_per_class is not None for s in summaries[setting]):
            yield _labels_per_class(setting, summaries[setting])
    yield from _against(
        summaries,
        order,
        name="auroc-by-budget",
        axis="labels asked for, share of the pool",
        x=lambda setting: 100 * setting.budget,
        same=lambda s: (s.dataset, s.backbone, f"+{s.increment}"),
        tick=lambda value: percent(value / 100),
        log=True,
    )
    yield from _against(
        summaries,
        order,
        name="auroc-by-increment",
        axis="new classes per task",
        x=lambda setting: setting.increment,
        same=lambda s: (s.dataset, s.backbone, percent(s.budget)),
        tick=lambda value: f"{value:g}",
        log=False,
    )


def _by_task(setting: Setting, rows: Sequence[MethodSummary], order: Sequence[str]) -> ReportFigure:
    figure, axes = _figure("task", "test AUROC (%)", f"AUROC by task\n{setting}")
    for row in rows:
        tasks = sorted(row.by_task)
        _line(
            axes,
            row.method,
            order,
            tasks,
            [row.by_task[t].mean for t in tasks],
            [row.by_task[t].std for t in tasks],
        )
    axes.set_xticks(sorted({task for row in rows for task in row.by_task}))
    _legend(axes)
    ends = "; ".join(
        f"{r.method} {_points(r.by_task[min(r.by_task)].mean)} to "
        f"{_points(r.by_task[max(r.by_task)].mean)}"
        for r in rows
    )
    return ReportFigure(
        f"auroc-by-task-{setting.slug}",
        f"AUROC by task: {setting}",
        f"Lines of test AUROC in percent, first task to last: {ends}.",
        _png(figure),
    )


def _to_ceiling(setting: Setting, rows: Sequence[MethodSummary]) -> ReportFigure:
    gaps = sorted(
        ((r.method, r.to_ceiling) for r in rows if r.to_ceiling is not None), key=lambda g: g[1]
    )
    return _bars(
        f"distance-to-ceiling-{setting.slug}",
        f"Distance to the ceiling: {setting}",
        "points of AUROC under the same score with every label",
        [(method, 100 * gap) for method, gap in gaps],
    )


def _labels_per_class(setting: Setting, rows: Sequence[MethodSummary]) -> ReportFigure:
    spent = [
        (r.method, r.labels_per_class)
        for r in rows
        if r.labels_per_class is not None and r.method != CEILING
    ]
    return _bars(
        f"labels-per-class-{setting.slug}",
        f"Labels spent per class found: {setting}",
        "labels per new class found",
        sorted(spent, key=lambda s: s[1]),
    )


def _against(
    summaries: Mapping[Setting, Sequence[MethodSummary]],
    order: Sequence[str],
    *,
    name: str,
    axis: str,
    x: Callable[[Setting], float],
    same: Callable[[Setting], tuple[str, ...]],
    tick: Callable[[float], str],
    log: bool,
) -> Iterator[ReportFigure]:
    """One figure per group of settings that differ in ``x`` only, if it takes several values."""
    groups: dict[tuple[str, ...], list[Setting]] = {}
    for setting in summaries:
        groups.setdefault(same(setting), []).append(setting)
    for group, members in groups.items():
        places = sorted({x(setting) for setting in members})
        if len(places) < 2:
            continue
        title = " · ".join(group)
        figure, axes = _figure(axis, "test AUROC, all tasks (%)", title)
        for method in order:
            points = sorted(
                (x(setting), row.auroc.mean, row.auroc.std)
                for setting in members
                for row in summaries[setting]
                if row.method == method
            )
            if points:
                _line(axes, method, order, *map(list, zip(*points, strict=True)))
        if log:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(places, [tick(place) for place in places])
        _legend(axes)
        slug = "-".join(
            "".join(c if c.isalnum() else "_" for c in part.replace("+", "k")) for part in group
        )
        yield ReportFigure(
            f"{name}-{slug}",
            f"AUROC by {axis}: {title}",
            f"Lines of test AUROC averaged over tasks and seeds against {axis}: "
            f"{', '.join(tick(place) for place in places)}. The tables have the numbers.",
            _png(figure),
        )


def _bars(name: str, title: str, axis: str, values: Sequence[tuple[str, float]]) -> ReportFigure:
    height = 1.4 + 0.32 * len(values)
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([name for name, _ in values], [v for _, v in values], color=_COLOURS[0])
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(axis)
    axes.set_title(title.replace(": ", "\n", 1), fontsize=10, loc="left")
    _clean(axes)
    listed = "; ".join(f"{method} {value:.1f}" for method, value in values)
    return ReportFigure(name, title, f"Bars, {axis}: {listed}.", _png(figure))


def _line(
    axes: Axes,
    method: str,
    order: Sequence[str],
    x: Sequence[float],
    means: Sequence[float],
    stds: Sequence[float],
) -> None:
    place = order.index(method)
    ceiling = method == CEILING
    axes.errorbar(
        x,
        [100 * mean for mean in means],
        # No seed lies above 100: a bar that did would only show that spread is not symmetric.
        yerr=[
            [100 * std for std in stds],
            [100 * min(std, 1 - mean) for mean, std in zip(means, stds, strict=True)],
        ],
        label=method,
        color="#000000" if ceiling else _COLOURS[place % len(_COLOURS)],
        marker=_MARKERS[place % len(_MARKERS)],
        linestyle="--" if ceiling else "-",
        # The first method is the one being judged; the others stand behind it.
        linewidth=2.4 if place == 0 else 1.3,
        zorder=3 if place == 0 else 2,
        markersize=5,
        capsize=2,
        elinewidth=0.8,
    )


def _figure(x: str, y: str, title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10, loc="left")
    _clean(axes)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def _clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: Axes) -> None:
    axes.set_ylim(top=min(axes.get_ylim()[1], 100.8))
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8)


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def _png(figure: Figure) -> bytes:
    buffer = BytesIO()
    # No software tag: the same records give the same bytes.
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    return buffer.getvalue()
