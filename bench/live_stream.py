"""The whole way on real images: fit, then run over a stream in which two classes are new.

``python -m bench.live_stream --data F.parquet`` draws streams from labelled images: some known
classes with a hundred labelled images each, then pools of which, from the second on, a tenth and
a twentieth are of two classes that nobody has labelled. ``conclad run --once --address none`` goes
over each, answered by the label column; what is found is counted in its state, and
``conclad verdicts`` says what a reader learns about each image.
"""

from __future__ import annotations

import argparse
import datetime as dt
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from monitor.store import Store

_SHARES = (0.10, 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="labelled images as Parquet")
    parser.add_argument("--known", type=int, default=5)
    parser.add_argument("--labelled", type=int, default=100)
    parser.add_argument("--pool", type=int, default=250)
    parser.add_argument("--pools", type=int, default=4, help="the first of them is clean")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    options = parser.parse_args()
    images = pq.read_table(options.data, columns=["image_id", "image", "label"])
    found = present = 0
    outcomes = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            new, got, asked, outcome = _stream(images, Path(folder), seed, options)
        found, present = found + len(got), present + len(new)
        outcomes.append(outcome)
        print(f"seed {seed}: {len(got)} of {len(new)} new classes found, {asked} questions")
        print(outcome.told(), flush=True)
    print(f"{found} of {present} new classes found; on average")
    print(Outcome.mean(outcomes).told())


@dataclass(frozen=True, slots=True)
class Outcome:
    """Shares that a reader of ``conclad verdicts`` feels."""

    before: tuple[float, float]
    at_once: tuple[float, float]
    settled: tuple[float, float]
    right: tuple[float, float]
    unsettled: float

    @classmethod
    def mean(cls, outcomes: Sequence[Outcome]) -> Outcome:
        values = {
            f.name: np.nanmean([getattr(o, f.name) for o in outcomes], axis=0) for f in fields(cls)
        }
        return cls(**values)

    def told(self) -> str:
        return (
            f"  before learning {self.before[0]:.0%} of new images called novel, "
            f"{self.before[1]:.1%} of known ones\n"
            f"  verdicts at once: recall {self.at_once[0]:.0%}, precision {self.at_once[1]:.0%}\n"
            f"  settled as new: recall {self.settled[0]:.1%}, precision {self.settled[1]:.1%}; "
            f"right class {self.right[0]:.1%} of new, {self.right[1]:.1%} of known; "
            f"{self.unsettled:.0%} not settled"
        )


def _stream(
    images: pa.Table, folder: Path, seed: int, options: argparse.Namespace
) -> tuple[list[str], list[str], int, Outcome]:
    rng = np.random.default_rng(seed)
    labels = np.asarray(images.column("label").to_pylist())
    classes = rng.permutation(np.unique(labels))
    known, new = classes[: options.known], classes[options.known : options.known + len(_SHARES)]
    rows = {c: rng.permutation(np.flatnonzero(labels == c)) for c in (*known, *new)}
    fitted = np.concatenate([rows[c][: options.labelled] for c in known])
    rest = {c: list(rows[c][options.labelled if c in known else 0 :]) for c in rows}
    _write(images.take(pa.array(fitted)), folder / "labelled.parquet", 0)
    (folder / "feed").mkdir()
    for number in range(options.pools):
        counts = [round(share * options.pool) * (number > 0) for share in _SHARES]
        of_known = rng.integers(options.known, size=options.pool - sum(counts))
        chosen = [known[i] for i in of_known]
        chosen += [c for c, n in zip(new, counts, strict=True) for _ in range(n)]
        taken = np.array([rest[c].pop() for c in chosen])[rng.permutation(len(chosen))]
        _write(images.take(pa.array(taken)), folder / "feed" / f"{number:03d}.parquet", number)
    settings = [f"state.dir={folder / 'state'}", f"feed.path={folder / 'feed'}"]
    settings += [f"pools.size={options.pool}", *options.settings]
    flags = [flag for setting in settings for flag in ("--set", setting)]
    command = [sys.executable, "-m", "monitor.cli"]
    fit = [*command, "fit", "--data", str(folder / "labelled.parquet"), *flags]
    subprocess.run(fit, check=True, capture_output=True)
    run = [*command, "run", "--once", "--address", "none", "--oracle-column", "label", *flags]
    subprocess.run(run, check=True, capture_output=True)
    out = folder / "verdicts.parquet"
    read = [*command, "verdicts", "--format", "parquet", "--out", str(out), *flags]
    subprocess.run(read, check=True, capture_output=True)
    names = [*map(str, new)]
    with Store.open(folder / "state") as store, store.reading() as tx:
        got = sorted({row.name for row in tx.classes.all()}.intersection(names))
        asked = tx.counts.questions_since(dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
    return names, got, asked, _outcome(pq.read_table(out), names, images)


def _write(images: pa.Table, path: Path, number: int) -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=number)
    times = pa.array([start] * len(images), pa.timestamp("us", tz="UTC"))
    table = images.append_column("captured_at", times)
    pq.write_table(table.append_column("source_id", pa.array(["camera"] * len(images))), path)


def _outcome(verdicts: pa.Table, new: list[str], images: pa.Table) -> Outcome:
    """What a reader of the verdicts learns about the new images, at once and once settled."""
    label = dict(
        zip(images.column("image_id").to_pylist(), images.column("label").to_pylist(), strict=True)
    )
    truth = np.array([label[i] for i in verdicts.column("image_id").to_pylist()])
    said = np.array(verdicts.column("class_name").to_pylist(), dtype=object)
    settled = np.array(verdicts.column("settled_verdict").to_pylist(), dtype=object)
    novel = np.array(verdicts.column("verdict_immediate").to_pylist()) == "novel"
    first = verdicts.column("detector_version").to_numpy() == 1
    is_new = np.isin(truth, new)
    # A class that has been learnt is known in later pools: its name says that it was new.
    told = (settled == "new") | np.isin(said, new)
    return Outcome(
        before=(_share(novel[is_new & first]), _share(novel[~is_new & first])),
        at_once=(_share(novel[is_new]), _share(is_new[novel])),
        settled=(_share(told[is_new]), _share(is_new[told])),
        right=(_share((said == truth)[is_new]), _share((said == truth)[~is_new])),
        unsettled=_share(settled == np.array(None)),
    )


def _share(of: np.ndarray) -> float:
    return float(of.mean()) if len(of) else float("nan")


if __name__ == "__main__":
    main()
