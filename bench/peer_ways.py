"""The child of bench.peers: one way, in a process (and perhaps an environment) of its own.

    python bench/peer_ways.py torch|ray-data|dfm|conclad --data FILE.parquet --images 256
    python bench/peer_ways.py notice-dfm|notice-mmd --feeds FILE.npz

Prints one line of JSON: seconds by the clock and of the processor and the most memory; or a line
for each feed as it is finished, with what was noticed of it and the same figures up to there.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.process_tree import memory, processor_seconds

BATCH = 32
#: Images that conclad is fitted on before it scores.
FITTED = 64
#: A false alarm in so many pools: one a month where a pool is a day.
POOLS_PER_ALARM = 30
#: Each labelled image is scored by a fit without its fold.
FOLDS = 10
#: Seconds that Ray may take to start.
RAY_STARTS_WITHIN = 300.0
#: Images that the online test of alibi-detect compares with the reference.
WINDOW = 50


def images_of(data: Path, count: int) -> list[bytes]:
    import pyarrow.parquet as pq

    batch = next(pq.ParquetFile(data).iter_batches(count, columns=["image"]))
    return list(batch.column(0).to_pylist())


def network_and_transform(backbone: str = "embedded") -> tuple[Any, Callable[[bytes], Any]]:
    """A backbone as a torch module, and timm's transform for it."""
    from PIL import Image
    from timm.data.transforms_factory import create_transform

    from monitor.backbones.backbone import load_backbone
    from monitor.backbones.backbone_spec import BackboneSpec

    loaded = load_backbone(BackboneSpec.parse(backbone))
    recipe = loaded.preprocessing
    transform = create_transform(
        input_size=(3, recipe.size, recipe.size),
        interpolation=recipe.interpolation,
        mean=recipe.mean,
        std=recipe.std,
        crop_pct=recipe.size / recipe.edge,
    )
    return loaded.network, lambda data: transform(Image.open(io.BytesIO(data)).convert("RGB"))


def torch_loop(data: Path, images: int) -> Iterator[None]:
    """PIL, timm's transform, the network, in batches."""
    import torch

    network, transform = network_and_transform()
    encoded = images_of(data, images)
    yield
    with torch.inference_mode():
        for first in range(0, images, BATCH):
            network(torch.stack([transform(one) for one in encoded[first : first + BATCH]]))


class Embedding:
    """The same loop as a stage of Ray Data."""

    def __init__(self) -> None:
        self._network, self._transform = network_and_transform()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        import torch

        with torch.inference_mode():
            pixels = torch.stack([self._transform(bytes(one)) for one in batch["image"]])
            return {"features": self._network(pixels).numpy()}


def ray_data(data: Path, images: int) -> Iterator[None]:
    """Read, embed in one actor, count: a plain pipeline of Ray Data."""
    import ray

    _wait_longer_for_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory() as folder:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"image": images_of(data, images)}), f"{folder}/images.parquet")
        yield
        found = ray.data.read_parquet(folder).map_batches(
            Embedding, batch_size=BATCH, concurrency=1, num_cpus=1
        )
        assert sum(len(batch["features"]) for batch in found.iter_batches()) == images
        yield  # its start belongs to it, its end does not
        ray.shutdown()


def _wait_longer_for_ray() -> None:
    """By a number in its code Ray gives its node half a minute, which a crowded machine exceeds."""
    from ray._private import services

    ask: Any = services.get_node

    def get_node(*args: Any, **settings: Any) -> Any:
        until = time.monotonic() + RAY_STARTS_WITHIN
        while True:
            try:
                return ask(*args, **settings)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    services.get_node = get_node


def dfm(data: Path, images: int) -> Iterator[None]:
    """anomalib's DFM on the same network: fit on a half, predict the other."""
    import torch
    from anomalib.models.image.dfm.torch_model import DFMModel

    network, transform = network_and_transform()

    class Extractor(torch.nn.Module):
        def forward(self, pixels: Any) -> dict[str, Any]:
            return {"last": network(pixels)[:, :, None, None]}

    model = DFMModel("resnet18", "layer1", pre_trained=False, pooling_kernel_size=1)
    model.feature_extractor, model.layer = Extractor(), "last"
    encoded = images_of(data, images)
    yield
    for is_fit in (True, False):
        model.train(is_fit)
        model.feature_extractor.eval()
        part = encoded[: images // 2] if is_fit else encoded[images // 2 :]
        with torch.inference_mode():
            for first in range(0, len(part), BATCH):
                model(torch.stack([transform(one) for one in part[first : first + BATCH]]))
            if is_fit:
                model.fit()


def conclad(data: Path, images: int) -> Iterator[None]:
    """`conclad score`: decode in processes of their own, embed, judge, write verdicts."""
    from bench.engine import write_feed
    from monitor.config import load
    from monitor.jobs.fit_detector import fit
    from monitor.jobs.score_files import score

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        # Fitted on others: features of images that were seen before are not computed again.
        encoded = images_of(data, images + FITTED)
        feed = write_feed(folder / "feed.parquet", encoded[:images], ["x"] * images)
        labels = ["a" if number % 2 else "b" for number in range(FITTED)]
        labelled = write_feed(folder / "labelled.parquet", encoded[images:], labels)
        settings = (f"state.dir={folder / 'state'}", "backbone.precision=float32")
        config = load(overrides=[*settings, "backbone.size=224"], environ={}).config
        fit(config, [labelled])
        yield
        score(config, [feed], str(folder / "out"))


WAYS: dict[str, Callable[[Path, int], Iterator[None]]] = {
    "torch": torch_loop,
    "ray-data": ray_data,
    "dfm": dfm,
    "conclad": conclad,
}


def measured(way: str, data: Path, images: int) -> dict[str, float]:
    steps = WAYS[way](data, images)
    next(steps)
    clock, before = time.perf_counter(), processor_seconds()
    next(steps, None)
    seconds, used = time.perf_counter() - clock, processor_seconds() - before
    # Of Ray's processes, which live until its end, there is no most: what they have now.
    held = memory() / 2**20
    for _ in steps:
        pass
    return {"seconds": seconds, "processor": used, "megabytes": max(held, _memory())}


def _processor() -> float:
    """Of this process and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _memory() -> float:
    """The most that this process had at once, and the largest of its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_maxrss for one in used) / 1024


# -- what is noticed ------------------------------------------------------------------------------


def feeds_of(path: Path) -> Iterator[tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]]:
    """Labelled features, then pools with what is new in them, for each feed."""
    kept = np.load(path)
    for number in range(int(kept["feeds"])):
        pools = int(kept["pools"])
        yield (
            kept[f"labelled-{number}"],
            [(kept[f"pool-{number}-{k}"], kept[f"new-{number}-{k}"]) for k in range(pools)],
        )


def notice_dfm(path: Path) -> Iterator[list[bool]]:
    """A pool is noticed that has more images above a threshold than chance explains.

    DFM itself scores images and decides nothing about pools. The threshold is what one in twenty
    labelled images exceeds that the fit has not seen.
    """
    import torch
    from anomalib.models.image.dfm.torch_model import DFMModel
    from scipy.stats import binom

    def fitted(features: np.ndarray) -> Any:
        model = DFMModel("resnet18", "layer1", pre_trained=False, pooling_kernel_size=1)
        model.memory_bank = [torch.from_numpy(features)]
        model.fit()
        return model

    def scores(model: Any, features: np.ndarray) -> np.ndarray:
        shape = (len(features), features.shape[1], 1, 1)
        return np.asarray(model.score(torch.from_numpy(features), shape)[0])

    for labelled, pools in feeds_of(path):
        folds = np.array_split(np.random.default_rng(0).permutation(len(labelled)), FOLDS)
        held = np.concatenate(
            [scores(fitted(np.delete(labelled, fold, axis=0)), labelled[fold]) for fold in folds]
        )
        threshold, model = np.quantile(held, 0.95), fitted(labelled)
        yield [
            bool(
                binom.sf((scores(model, pool) > threshold).sum() - 1, len(pool), 0.05)
                < 1 / POOLS_PER_ALARM
            )
            for pool, _ in pools
        ]


def notice_mmd(path: Path) -> Iterator[list[bool]]:
    """A pool is noticed in which the online test raises an alarm; it starts again after each."""
    from alibi_detect.cd import MMDDriftOnline

    for labelled, pools in feeds_of(path):
        every = POOLS_PER_ALARM * len(pools[0][0])
        # It refuses to estimate the rate of one in so many from fewer draws.
        test = MMDDriftOnline(
            labelled,
            ert=every,
            window_size=WINDOW,
            backend="pytorch",
            n_bootstraps=every + 500,
            verbose=False,
        )
        heard = []
        for pool, _ in pools:
            alarms = [bool(test.predict(row)["data"]["is_drift"]) for row in pool]
            heard.append(any(alarms))
            if heard[-1]:
                test.reset_state()
        yield heard


NOTICING = {"notice-dfm": notice_dfm, "notice-mmd": notice_mmd}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=[*WAYS, *NOTICING])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--feeds", type=Path)
    given = parser.parse_args()
    if given.way in WAYS:
        _say(measured(given.way, given.data, given.images))
    else:
        began, before = time.perf_counter(), _processor()
        for told in NOTICING[given.way](given.feeds):
            used = {"seconds": time.perf_counter() - began, "processor": _processor() - before}
            _say({"told": told, **used, "megabytes": _memory()})
    # Some libraries' threads do not end by themselves.
    os._exit(0)


def _say(answer: dict[str, Any]) -> None:
    assert all(math.isfinite(v) for v in answer.values() if isinstance(v, float))
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
