"""Does the live monitor find what the evaluation finds? python -m bench.quality [DATA ...].

For each labelled file the stream of the evaluation's protocol becomes a feed, one pool for each
task; a stand-in engine gives every image the features that the backbone computed once. The same
method runs through the same stream as in ``conclad evaluate``. Classes found and labels spent
must be the same.

``--clean N`` then lets N images of the initial classes pass, drawn from those that the detector
was not fitted on: nothing is new, so hardly anything may be asked and no class may be added.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from actors.run_monitor import run
from bench.standins import Table, configuration, put_into_use, table_engine, write_numbered
from monitor.config import Config
from monitor.evaluation.embedded_images import load_images
from monitor.evaluation.labelled_features import LabelledFeatures, labelled_features, load_features
from monitor.evaluation.methods.conclad import conclad_method
from monitor.evaluation.oracle import Oracle
from monitor.evaluation.protocol import Stream, StreamSettings, build_stream, labels_for
from monitor.novelty.detector import Detector
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.store import Store

#: Known classes at first, and new ones in each task, by dataset.
PLANS = {"eurosat": (4, 2), "cifar100": (5, 5)}
BUDGET = 0.0125
#: As in the evaluation: smaller classes than users are allowed.
SETTINGS = RobustSettings(least=4)

Found = list[tuple[frozenset[str], int]]
"""Of each task: the classes that were found, and the labels that it took."""


def some_of(data: LabelledFeatures, count: int) -> LabelledFeatures:
    """The first so many images of each class."""
    names = np.asarray(data.labels)
    kept = np.sort(np.concatenate([np.flatnonzero(names == n)[:count] for n in set(data.labels)]))
    return labelled_features(data.dataset, data.backbone, data.features[kept], names[kept].tolist())


def evaluated(data: LabelledFeatures, stream: Stream) -> Found:
    """What ``conclad evaluate`` finds with method 'robust'."""
    names = np.asarray(data.labels)
    method = conclad_method("robust")
    method.start(data.features[stream.initial], names[stream.initial].tolist(), stream.seed)
    found: Found = []
    for task in stream.tasks:
        budget = labels_for(BUDGET, len(task.pool))
        oracle = Oracle(names[task.pool].tolist(), budget)
        seen = method.observe(data.features[task.pool], oracle.ask, budget)
        method.update()
        found.append((frozenset(seen.found), oracle.used))
    return found


def lived(data: LabelledFeatures, stream: Stream, folder: Path, *overrides: str) -> Found:
    """What the monitor finds when each task's pool is one pool of its feed."""
    names = np.asarray(data.labels)
    config = _fitted(data, stream, folder, f"run.seed={stream.seed}", *overrides)
    found: Found = []
    first = 0
    for task in stream.tasks:
        write_numbered(
            folder / "feed" / f"{task.number:03d}.parquet",
            task.pool.tolist(),
            first_id=first,
            labels=names[task.pool].tolist(),
        )
        first += len(task.pool)
        before = _known(config)
        spent = _asked(config)
        # Its pool closes with the end of what there is.
        run(config, once=True, open_engine=partial(table_engine, folder / "features.npy"))
        found.append((frozenset(_known(config) - before), _asked(config) - spent))
    return found


def clean(
    data: LabelledFeatures, stream: Stream, images: int, folder: Path, *overrides: str
) -> None:
    """Let known images pass, and print what people were asked about them."""
    names = np.asarray(data.labels)
    fitted = set(stream.initial.tolist())
    others = [
        i
        for i in np.flatnonzero(np.isin(names, stream.initial_classes)).tolist()
        if i not in fitted
    ]
    drawn = np.random.default_rng(stream.seed).choice(others, images)
    config = _fitted(data, stream, folder, "pools.size=2000", *overrides)
    for start in range(0, images, 5000):
        part = drawn[start : start + 5000]
        write_numbered(
            folder / "feed" / f"{start:09d}.parquet",
            part.tolist(),
            first_id=start,
            labels=names[part].tolist(),
        )
    run(config, once=True, open_engine=partial(table_engine, folder / "features.npy"))
    with Store.open(config.state.dir) as store, store.reading() as tx:
        pools = {str(state): n for state, n in tx.counts.pools_by_state().items()}
        version = tx.versions.current()
        above = sum(c.value for c in tx.counters.all("above"))
        expected = sum(c.value for c in tx.counters.all("expected_above"))
    assert version is not None
    print(
        f"{data.dataset}, clean: {images} images, {above:.0f} above T_inner (calibration expects "
        f"{expected:.0f}), pools {pools}, {_asked(config)} labels asked, detector version "
        f"{version.number}",
        flush=True,
    )


def _fitted(data: LabelledFeatures, stream: Stream, folder: Path, *overrides: str) -> Config:
    np.save(folder / "features.npy", data.features)
    detector = Detector.fit(
        data.features[stream.initial],
        [data.labels[i] for i in stream.initial],
        fingerprint=Table(folder / "features.npy").fingerprint,
        settings=SETTINGS,
        seed=stream.seed,
    )
    config = configuration(
        folder,
        "pools.size=1000000",
        f"labels.budget={BUDGET}",
        "labels.oracle_column=label",
        "labels.per_week=100000",
        "feed.batch_rows=256",
        *overrides,
    )
    put_into_use(Path(config.state.dir), detector)
    return config


def _known(config: Config) -> set[str]:
    with Store.open(config.state.dir) as store, store.reading() as tx:
        return {row.name for row in tx.classes.living() if row.created_in is not None}


def _asked(config: Config) -> int:
    with Store.open(config.state.dir) as store, store.reading() as tx:
        return int(tx.counters.value("labels_spent"))


def compare(data: LabelledFeatures, seeds: Sequence[int], *overrides: str) -> None:
    initial, increment = PLANS.get(data.dataset, (4, 2))
    for seed in seeds:
        stream = build_stream(data.labels, StreamSettings(initial, increment), seed)
        there = evaluated(data, stream)
        with tempfile.TemporaryDirectory() as folder:
            here = lived(data, stream, Path(folder), *overrides)
        for task, (theirs, theirs_spent), (ours, ours_spent) in zip(
            stream.tasks, there, here, strict=True
        ):
            print(
                f"{data.dataset}, seed {seed}, task {task.number}: evaluate found {len(theirs)} of "
                f"{increment} with {theirs_spent} labels, the monitor {len(ours)} with "
                f"{ours_spent}: {'the same' if theirs == ours else f'{theirs ^ ours} differ'}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="*", help="labelled Parquet, or .npz with X and y")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0], help="none: no comparison")
    parser.add_argument("--clean", type=int, default=0, metavar="IMAGES")
    parser.add_argument("--take", type=int, help="images of each class at most, for a quick look")
    parser.add_argument("--address", default="none")
    given = parser.parse_args()
    found = given.data or sorted(Path("../shared/data").glob("*.parquet"))
    if missing := [str(path) for path in found if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    if not found:
        parser.error("name labelled images, such as those that python -m bench.drawn FILE draws")
    for path in found:
        is_table = path.suffix == ".npz"
        data = load_features(path) if is_table else load_images(path)
        data = some_of(data, given.take) if given.take else data
        address = f"run.address={given.address}"
        compare(data, given.seeds, address)
        if given.clean:
            initial, increment = PLANS.get(data.dataset, (4, 2))
            seed = given.seeds[0] if given.seeds else 0
            stream = build_stream(data.labels, StreamSettings(initial, increment), seed)
            with tempfile.TemporaryDirectory() as folder:
                clean(data, stream, given.clean, Path(folder), address)


if __name__ == "__main__":
    main()
