"""The whole way on real images: fit, then run over a stream in which two classes are new.

``python -m bench.live_stream --data F.parquet`` draws streams from labelled images: some known
classes with a hundred labelled images each, then pools of which, from the second on, a tenth and
a twentieth are of two classes that nobody has labelled. ``conclad run --once --address none`` goes
over each, answered by the label column; what is found is counted in its state.
"""

from __future__ import annotations

import argparse
import datetime as dt
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from monitor.store import Store
from monitor.store.output_files import current, read_table

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
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            new, got, said = _stream(images, Path(folder), seed, options)
        found, present = found + len(got), present + len(new)
        print(f"seed {seed}: {len(got)} of {len(new)} new classes found; {said}", flush=True)
    print(f"{found} of {present} new classes found")


def _stream(
    images: pa.Table, folder: Path, seed: int, options: argparse.Namespace
) -> tuple[list[str], list[str], str]:
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
    return [*map(str, new)], *_outcome(folder / "state", [*map(str, new)], images)


def _write(images: pa.Table, path: Path, number: int) -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=number)
    times = pa.array([start] * len(images), pa.timestamp("us", tz="UTC"))
    table = images.append_column("captured_at", times)
    pq.write_table(table.append_column("source_id", pa.array(["camera"] * len(images))), path)


def _outcome(state: Path, new: list[str], images: pa.Table) -> tuple[list[str], str]:
    """The new classes that have a name now, and what it took."""
    with Store.open(state) as store, store.reading() as tx:
        names = {row.name for row in tx.classes.all()}
        asked = tx.questions.count_opened(dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
        verdicts = pa.concat_tables(
            [read_table(store.folder, name) for name in current(store.folder, "verdicts")]
        )
    label = dict(
        zip(images.column("image_id").to_pylist(), images.column("label").to_pylist(), strict=True)
    )
    is_new = np.array([label[i] in new for i in verdicts.column("image_id").to_pylist()])
    novel = pc.equal(verdicts.column("verdict"), "novel").to_numpy()
    first = verdicts.column("detector_version").to_numpy() == 1
    recall, false = novel[is_new & first].mean(), novel[~is_new & first].mean()
    said = f"{asked} questions; before learning {recall:.0%} of new images called novel, "
    return sorted(names.intersection(new)), said + f"{false:.1%} of known ones"


if __name__ == "__main__":
    main()
