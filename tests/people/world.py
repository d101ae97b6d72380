"""A small state with everything people meet: classes, a pool with features, questions, versions."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from monitor.novelty.detector import KnownClass
from monitor.store import Store, commit_version
from monitor.store.exemplars import Exemplar, keep_exemplars, put_thumbnail
from monitor.store.pool_transitions import PoolEvent, PoolState
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Occurrence, Question
from monitor.store.verdict_columns import BY_PERSON, BY_PSEUDO_LABEL, DISCOVERIES, table
from monitor.store.version_and_settled_commit import NewClass, VersionUpdate
from tests.store.building import CAPTURED, commit_batch, plan_feed, sample, scored, small_detector

HUES = {"forest": "seagreen", "water": "steelblue", "dune": "goldenrod", "snow": "lavender"}


def picture(kind: str, seed: int, side: int = 240) -> bytes:
    """A JPEG in the colour of its kind with a few shapes, so that people can tell them apart."""
    rng = np.random.default_rng([seed, len(kind)])
    image = Image.new("RGB", (side, side * 3 // 4), HUES.get(kind, "dimgray"))
    draw = ImageDraw.Draw(image, "RGBA")
    for _ in range(14):
        x, y, r = rng.integers(0, side, 3)
        shade = int(rng.integers(0, 255))
        draw.ellipse((x - r / 6, y - r / 6, x + r / 6, y + r / 6), fill=(shade, shade, shade, 60))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80)
    return out.getvalue()


def fit(store: Store) -> None:
    """Version 1 knows forest (c1) and water (c2), each with pictures."""
    detector = small_detector()
    classes = [NewClass(known.id, known.name, ClassOrigin.FIT) for known in detector.classes]
    commit_version(store, VersionUpdate("fit:test", detector, None, classes=classes, who="fit"))
    with store.transaction() as tx:
        for known in detector.classes:
            shown = [
                Exemplar(put_thumbnail(store.folder, picture(known.name, n))) for n in range(4)
            ]
            keep_exemplars(tx, known.id, shown)


def ask(
    store: Store, count: int = 20, *, budget: int | None = None, pool: int = 1
) -> list[Question]:
    """A pool whose questions are half about dunes (new), a quarter water, a quarter unsure."""
    file, rows = f"feed/{pool}.parquet", max(count, 4)
    batches = plan_feed(store, file, rows=rows, size=rows)
    with store.transaction() as tx:
        pool_id = tx.pools.open().id
    # The batch is of cam-1 alone, the questions at odd rows are about images of cam-2.
    images = [f"{file}:{row}" if row % 2 else f"{pool}-{row:04d}" for row in range(rows)]
    commit_batch(store, scored(batches[0], images=images, pool=pool_id, file=file))
    with store.transaction() as tx:
        tx.pools.apply(pool_id, PoolEvent.FILLED)
        tx.pools.begin_asking(pool_id, budget=budget or count + 10, detector_version=1)
        samples = []
        for row in range(count):
            kind = ("dune", "water", "dune", "")[row % 4]
            suggestion = {
                "dune": {"class_id": None, "name": "dune", "new": True},
                "water": {"class_id": "c2", "name": "water", "new": False},
                "": {"class_id": None, "name": None, "new": True},
            }[kind]
            samples.append(
                sample(
                    batches[0].id,
                    row,
                    image_id=f"{pool}-{row:04d}",
                    source_id=f"cam-{row % 2 + 1}",
                    file=file,
                    score_ratio=1.1 + row / 20,
                    nearest_class="c2" if row % 2 else "c1",
                    suggestion=suggestion,
                    thumbnail=put_thumbnail(
                        store.folder, picture(kind or "snow", 100 * pool + row)
                    ),
                )
            )
        found = tx.questions.open(pool_id, 1, samples)
        tx.pools.apply(pool_id, PoolEvent.ROUND_OPENED)
        tx.events.append(
            "questions.opened", {"pool": pool_id, "round": 1, "count": count, "open": count}
        )
    return found


def discover(store: Store, name: str = "dune", count: int = 20, *, pool: int = 1) -> str:
    """Publish a version that found ``name`` in the pool's spooled images; returns the class id.

    A third of the samples was answered by people, the others are pseudo-labels.
    """
    from monitor.store.snapshots import load_snapshot
    from monitor.store.verdict_columns import feature_matrix, read_table

    with store.transaction() as tx:
        current = tx.versions.current()
        assert current is not None
        row = tx.classes.ensure(name, ClassOrigin.PERSON)
        [member] = tx.pools.members(pool)
        if tx.pools.get(pool).state is PoolState.WAITING:
            tx.pools.apply(pool, PoolEvent.ROUND_CLOSED)
        tx.questions.close_round(pool, 1)
    detector = load_snapshot(store.folder, current.snapshot)
    spool = read_table(store.folder, member.name).slice(0, count)
    features = feature_matrix(spool.column("features"))
    human = count // 3
    known = KnownClass.fit(
        row.id,
        name,
        features,
        settings=detector.settings,
        rng=np.random.default_rng(0),
        origin="discovered",
        said=np.arange(count) < human,
    )
    found = table(
        DISCOVERIES,
        {
            "image_id": spool.column("image_id"),
            "source_id": spool.column("source_id"),
            "captured_at": [CAPTURED] * count,
            "class_id": [row.id] * count,
            "class_name": [name] * count,
            "by": [BY_PERSON if i < human else BY_PSEUDO_LABEL for i in range(count)],
            "confidence": [1.0 if i < human else 0.4 + i / (2 * count) for i in range(count)],
            "detector_version": [0] * count,
            "pool": [pool] * count,
            "file": spool.column("file"),
            "row": spool.column("row"),
        },
    )
    update = VersionUpdate(
        f"pool:{pool}:{name}",
        detector.with_classes([known]),
        current.number,
        classes=[NewClass(row.id, name, ClassOrigin.PERSON)],
        discoveries=found,
        pool_id=pool,
        reason=f"found {name}",
        events=[
            Occurrence(
                "class.discovered",
                {
                    "class_id": row.id,
                    "name": name,
                    "pool": pool,
                    "human": human,
                    "pseudo": count - human,
                    "sources": {"cam-1": count},
                },
                "cam-1",
            )
        ],
    )
    commit_version(store, update)
    pseudo = list(
        zip(
            spool.column("source_id").to_pylist(), spool.column("image_id").to_pylist(), strict=True
        )
    )[human:]
    with store.transaction() as tx:
        keep_exemplars(
            tx,
            row.id,
            [
                Exemplar(
                    put_thumbnail(store.folder, picture(name, 900 + n)),
                    BY_PSEUDO_LABEL,
                    source_id,
                    image_id,
                    CAPTURED,
                    0.5,
                )
                for n, (source_id, image_id) in enumerate(pseudo[:6])
            ],
        )
    return row.id


def make(folder: Path, count: int = 20) -> Path:
    """The whole of it in a folder that a command or a server can open."""
    with Store.open(folder) as store:
        fit(store)
        ask(store, count)
    return folder
