"""Writes down when the monitor noticed something new, what it asked, and what its verdicts say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.figure import Figure

from monitor.evaluation.live_baselines import NAIVE
from monitor.evaluation.live_draws import draw_by_draw
from monitor.evaluation.live_record import Record
from monitor.evaluation.report_figures import ReportFigure
from monitor.evaluation.report_tables import Table
from monitor.evaluation.results_store import write_bytes
from monitor.evaluation.summary import percent
from monitor.novelty.trigger.trigger_settings import TriggerSettings

_NOTHING = "–"
_OURS, _TRIGGER = "conclad", "its trigger alone"
# Okabe and Ito's colours; a marker of its own for each line says the same without colour.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "P", "s", "^", "D", "v")

_HOW_TO_READ = (
    "Feeds of one pool a day: {clean} clean pools, then {pools} pools of {pool} images with the "
    "given share of {new} new class(es); {known} known classes of {labelled} labelled images "
    "each, {sources} source(s). Noticed means that a person was asked and named something new. "
    "Questions are answered at once and rightly. The promise is {false_rounds:g} needless rounds "
    "a month, the allowance {trickle} questions a week. Immediate verdicts judge single images, "
    "closed ones the images of a whole pool together, both before anybody was asked; settled ones "
    "follow the answers. The naive alternatives judge each pool by itself, at a level of one false "
    "alarm in {run:.0f} pools, but for the paper's rule, which has none; conclad has the "
    "questions of its allowance in addition to its trigger."
)


def write_live_report(records: Sequence[Record], meta: Mapping[str, Any], out: Path) -> list[Table]:
    """Write ``live.md`` and ``plots/*.png`` beside ``live.json``; returns the tables."""
    tables = live_tables(records, meta)
    plots = list(live_plots(records, meta))
    settings = meta["plan"]["live"]
    run = 30 / settings["false_rounds"]
    page = ["# When the monitor notices", _HOW_TO_READ.format(**settings, run=run)]
    if any(record["reused"] for record in records):
        page.append(
            "Some feeds are longer than the data: there images were shown more than once "
            "(`reused` in `live.json`)."
        )
    page += [f"![{plot.description}](plots/{plot.name}.png)" for plot in plots]
    page += [f"## {table.title}\n\n{table.markdown()}" for table in tables]
    folder = out / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        write_bytes(folder / f"{plot.name}.png", plot.png)
    write_bytes(out / "live.md", ("\n\n".join(page) + "\n").encode())
    return tables


def live_tables(records: Sequence[Record], meta: Mapping[str, Any]) -> list[Table]:
    with_new = [r for r in records if r["present"]]
    tables = []
    if with_new:
        tables = [
            _noticed(with_new),
            _verdicts(with_new),
            _every_label(with_new),
            _learnt(with_new),
            *_pools(with_new),
            *draw_by_draw(with_new),
            _naive(with_new),
        ]
    return [*tables, _clean(records, meta)]


def _noticed(records: Sequence[Record]) -> Table:
    return Table(
        "Noticed, by share",
        (
            "data, share",
            "feeds",
            "in the first pool",
            "there by the trigger alone",
            "within ten",
            "median pool",
            "classes found",
            "questions until noticed",
            "questions in all",
        ),
        tuple(
            (
                name,
                str(len(rows)),
                _points(_within(rows, 1)),
                _points(_within(rows, 1, _noticed_by(_TRIGGER))),
                _points(_within(rows, 10)),
                _median([r["noticed_in"] for r in rows]),
                f"{sum(r['found'] for r in rows)} of {sum(r['present'] for r in rows)}",
                _mean(rows, "questions_until_noticed"),
                _mean(rows, "questions"),
            )
            for name, rows in _by_share(records)
        ),
    )


def _verdicts(records: Sequence[Record]) -> Table:
    """AUROC / recall / false novel, in percent, at each time."""
    whens = ("immediate", "closed", "settled")
    return Table(
        "Verdicts: AUROC / new called novel / known called novel (%)",
        ("data, share", *whens),
        tuple(
            (
                name,
                *(
                    " / ".join(
                        _mean(rows, f"{what}_{w}", 100) for what in ("auroc", "recall", "false")
                    )
                    for w in whens
                ),
            )
            for name, rows in _by_share(records)
        ),
    )


def _every_label(records: Sequence[Record]) -> Table:
    """What the settled verdicts reach of what the features allow."""
    pairs = (
        ("AUROC", "auroc_settled", "auroc_every_label"),
        ("new at 3% of known called new", "recall_at_3_settled", "recall_at_3_every_label"),
        ("right class", "right_settled", "right_every_label"),
        ("right class of new images", "right_new_settled", "right_new_every_label"),
    )
    return Table(
        "Settled / by a linear discriminant given every label of the pool but the image's own (%)",
        ("data, share", *(title for title, _, _ in pairs)),
        tuple(
            (
                name,
                *(f"{_mean(rows, a, 100)} / {_mean(rows, b, 100)}" for _, a, b in pairs),
            )
            for name, rows in _by_share(records)
        ),
    )


def _learnt(records: Sequence[Record]) -> Table:
    """Verdicts on single images in the pools after something was learnt."""
    return Table(
        "After learning: called novel, and given the right class (%)",
        (
            "data, share",
            "learnt classes",
            "those that are confirmed",
            "fitted classes",
            "right class of learnt ones",
            "unconfirmed after the first pool",
            "after the second",
        ),
        tuple(
            (
                name,
                *(
                    _mean(rows, f"{what}_after", 100)
                    for what in ("novel", "novel_confirmed", "novel_fitted", "right")
                ),
                *(
                    f"{_sum(rows, f'unconfirmed_{when}')} of {_sum(rows, 'found')}"
                    for when in ("first", "second")
                ),
            )
            for name, rows in _by_share(records)
        ),
    )


def _pools(records: Sequence[Record]) -> Iterator[Table]:
    """The right class of new images, pool by pool, beside a discriminant with every label."""
    most = max(len(record["by_pool"]) for record in records)
    if most < 2:
        return
    yield Table(
        "New images given their right class, pool by pool (%): settled / at once / by a linear "
        "discriminant given every label of the pools before",
        ("data, share", *(f"pool {number + 1}" for number in range(most))),
        tuple(
            (
                name,
                *(
                    " / ".join(
                        _mean([r["by_pool"][number] for r in rows], f"right_new_{w}", 100)
                        for w in ("settled", "immediate", "discriminant")
                    )
                    for number in range(most)
                ),
            )
            for name, rows in _by_share(records)
        ),
    )


def _naive(records: Sequence[Record]) -> Table:
    return Table(
        "Noticed in the first pool / within ten (%), beside naive alternatives",
        ("data, share", _OURS, *NAIVE),
        tuple(
            (name, *(_first_and_ten(rows, _noticed_by(w)) for w in (_OURS, *NAIVE)))
            for name, rows in _by_share(records)
        ),
    )


def _clean(records: Sequence[Record], meta: Mapping[str, Any]) -> Table:
    promise = meta["plan"]["live"]["false_rounds"] / 30
    datasets = list(dict.fromkeys((r["dataset"], r["backbone"]) for r in records))
    groups = [
        (f"{d}, {b}", [r for r in records if (r["dataset"], r["backbone"]) == (d, b)])
        for d, b in datasets
    ]
    if len(groups) > 1:
        groups.append(("all", list(records)))
    return Table(
        "Nothing new: rounds and alarms on clean pools",
        (
            "data",
            "clean pools",
            "needless rounds",
            "promised at most",
            "with the credit at the start",
            "of the allowance: clean pools asked about",
            "its questions, all pools",
            *(f"alarms: {name}" for name in NAIVE),
            "pools after learning",
            "rounds there",
        ),
        tuple(
            (
                name,
                str(_sum(rows, "clean_pools")),
                str(_sum(rows, "needless_rounds")),
                f"{promise * _sum(rows, 'clean_pools'):.1f}",
                f"{promise * _sum(rows, 'clean_pools') + _credit(rows):.1f}",
                str(_sum(rows, "clean_probes")),
                str(_sum(rows, "trickle_questions")),
                *(str(sum(r["naive"][n]["false_alarms"] for r in rows)) for n in NAIVE),
                str(_sum(rows, "learnt_pools")),
                str(_sum(rows, "needless_learnt")),
            )
            for name, rows in groups
        ),
    )


def live_plots(records: Sequence[Record], meta: Mapping[str, Any]) -> Iterator[ReportFigure]:
    """Noticed in the first pool and within ten, by share: a figure for each dataset."""
    for dataset, backbone in dict.fromkeys((r["dataset"], r["backbone"]) for r in records):
        rows = [
            r
            for r in records
            if (r["dataset"], r["backbone"]) == (dataset, backbone) and r["present"]
        ]
        if rows:
            yield _curve(f"{dataset} · {backbone}", rows, meta)


def _curve(title: str, records: Sequence[Record], meta: Mapping[str, Any]) -> ReportFigure:
    shares = sorted({r["share"] for r in records})
    by_share = [[r for r in records if r["share"] == share] for share in shares]
    # Evenly spaced: 2% and 33% are both worth reading.
    places = list(range(len(shares)))
    figure = Figure(figsize=(9.8, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, pools, what in zip(
        panels, (1, 10), ("in the first pool", "within ten pools"), strict=True
    ):
        for place, name in enumerate((_OURS, _TRIGGER, *NAIVE)):
            if name == _TRIGGER and pools > 1:
                # What the allowance found first cannot show when the trigger would have.
                continue
            axes.plot(
                places,
                [100 * _within(rows, pools, _noticed_by(name)) for rows in by_share],
                label=_legend(name, records),
                color=_COLOURS[place],
                marker=_MARKERS[place],
                markersize=5,
                linestyle="--" if name == _TRIGGER else "-",
                linewidth=2.4 if name == _OURS else 1.2,
                zorder=3 if name == _OURS else 2,
            )
        axes.set_xticks(places, [percent(share) for share in shares])
        axes.set_xlabel("new images in a pool")
        axes.set_ylim(-3, 103)
        axes.set_title(f"noticed {what}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
    panels[0].set_ylabel("feeds (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    settings = meta["plan"]["live"]
    figure.suptitle(
        f"{title}: {settings['known']} known classes of {settings['labelled']} labelled images, "
        f"pools of {settings['pool']}",
        fontsize=10,
    )
    read = "; ".join(
        f"at {percent(share)} {100 * _within(rows, 1):.0f} and {100 * _within(rows, 10):.0f}"
        for share, rows in zip(shares, by_share, strict=True)
    )
    slug = "".join(c if c.isalnum() or c in "._-" else "_" for c in title.replace(" · ", "-"))
    return ReportFigure(
        f"noticed-by-share-{slug}",
        f"Noticed by share of new images: {title}",
        f"Feeds of {title} in which something new was noticed in the first pool and within ten, "
        f"in percent: {read}. The alternatives are in the table.",
        _png(figure),
    )


def _legend(name: str, records: Sequence[Record]) -> str:
    """A line that is always up is worth nothing if it is up on clean pools too."""
    clean = _sum(records, "clean_pools")
    if not clean:
        return name
    if name == _OURS:
        asked = _sum(records, "clean_probes") + _sum(records, "needless_rounds")
        return f"{name}\n(asks about {100 * asked / clean:.0f}% of clean pools)"
    false = (
        _sum(records, "needless_rounds")
        if name == _TRIGGER
        else sum(r["naive"][name]["false_alarms"] for r in records)
    )
    return f"{name}\n(on {100 * false / clean:.0f}% of clean pools too)"


Noticed = Callable[[Record], int | None]


def _noticed_by(name: str) -> Noticed:
    if name == _OURS:
        return lambda record: record["noticed_in"]
    if name == _TRIGGER:
        return lambda record: record["noticed_in"] if record["noticed_by"] == "round" else None
    return lambda record: record["naive"][name]["noticed_in"]


def _within(
    rows: Sequence[Record], pools: int, noticed: Noticed = lambda record: record["noticed_in"]
) -> float:
    """The share of feeds that were noticed within so many pools."""
    return float(np.mean([(n := noticed(row)) is not None and n <= pools for row in rows]))


def _first_and_ten(rows: Sequence[Record], noticed: Noticed) -> str:
    return f"{100 * _within(rows, 1, noticed):.0f} / {100 * _within(rows, 10, noticed):.0f}"


def _by_share(records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        name = f"{record['dataset']}, {record['backbone']}, {percent(record['share'])}"
        if record["budget"] is not None:
            name += f", {percent(record['budget'])} asked"
        groups.setdefault(name, []).append(record)
    return list(groups.items())


def _median(pools: Sequence[int | None]) -> str:
    """The median over all feeds; one that never noticed is later than any that did.

    >>> _median([1, 1, None]), _median([1, None, None])
    ('1', 'never')
    """
    middle = float(np.median([np.inf if number is None else number for number in pools]))
    return "never" if np.isinf(middle) else f"{middle:g}"


def _credit(rows: Sequence[Record]) -> float:
    """What the trigger may also spend at the start of its detectors, over their clean looks."""
    looks: list[int] = [row["clean_pools"] for row in rows]
    return sum(TriggerSettings().start_credit * n / (n + 1) for n in looks)


def _sum(rows: Sequence[Record], name: str) -> int:
    return sum(row[name] for row in rows)


def _mean(rows: Sequence[Record], name: str, scale: float = 1.0) -> str:
    values = [scale * row[name] for row in rows if row[name] is not None]
    return f"{np.mean(values):.1f}" if values else _NOTHING


def _points(share: float) -> str:
    return f"{100 * share:.0f}%"


def _png(figure: Figure) -> bytes:
    buffer = BytesIO()
    # No software tag: the same records give the same bytes.
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()
