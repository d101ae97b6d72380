"""Peers side by side with conclad: images a second, memory, and what each notices of a live feed.

    python -m bench.peers --data eurosat.parquet --features eurosat.npz [--images 256] [--seeds 8]

On the same images: a plain torch loop, a plain pipeline of Ray Data, anomalib's DFM (fit on a half,
predict the other), and `conclad score`, each in a process of its own, on the embedded backbone in
float32. On the same features, the feeds of `conclad evaluate --live`: anomalib's DFM, the online
MMD test of alibi-detect, and conclad. Peers that are not installed beside us are installed into
environments below ``--environments``, which see our packages behind their own; where that fails a
sentence says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monitor.evaluation.labelled_features import load_features
from monitor.evaluation.live_feed import LiveFeed
from monitor.evaluation.live_plan import LivePlan

CHILD = Path(__file__).with_name("peer_ways.py")
SECONDS = 1800
#: What has to be installed for a way, where it is not one of ours.
PACKAGES = {"dfm": "anomalib", "notice-dfm": "anomalib", "notice-mmd": "alibi-detect"}
TITLES = {
    "torch": "plain torch loop, batches of 32",
    "ray-data": "plain Ray Data pipeline, its start included",
    "dfm": "anomalib DFM, fit and predict",
    "conclad": "conclad score",
    "notice-dfm": "anomalib DFM with a count of images above a threshold",
    "notice-mmd": "alibi-detect online MMD, window of 50",
}


class PeerMissing(Exception):
    """A peer could not be installed, or did not run."""


def python_for(way: str, environments: Path) -> str:
    """An interpreter that has the package of a way."""
    package = PACKAGES.get(way)
    if package is None:
        return sys.executable
    home = environments / package
    python = home / "bin" / "python"
    if (home / "installed").exists():
        return str(python)
    _call([sys.executable, "-m", "venv", str(home)])
    site = _call([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    Path(site.strip(), "zz_beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _call([str(python), "-m", "pip", "install", "--quiet", package])
    (home / "installed").touch()
    return str(python)


def _call(command: Sequence[str]) -> str:
    # Peers print what they like on the way: the last line is the answer.
    ours = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, env=ours, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"took longer than {SECONDS} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise PeerMissing((lines or ["it ended without a word"])[-1][:200])
    return done.stdout


def ask(way: str, environments: Path, *arguments: str) -> dict[str, Any] | None:
    try:
        said = _call([python_for(way, environments), str(CHILD), way, *arguments])
    except PeerMissing as problem:
        print(f"{TITLES[way]}: could not be run here: {problem}", flush=True)
        return None
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return found


def compare_speed(data: Path, images: int, environments: Path) -> None:
    print(f"{images} images, one thread, embedded backbone at 224 px in float32")
    for way in ("torch", "ray-data", "dfm", "conclad"):
        found = ask(way, environments, "--data", str(data), "--images", str(images))
        if found is not None:
            # Of Ray only the driver's processor time can be seen from here.
            shown = "" if way == "ray-data" else f" ({images / found['processor']:.1f} of a core)"
            print(
                f"{TITLES[way]:>55}: {images / found['seconds']:6.1f} images/s{shown}, "
                f"{found['megabytes']:,.0f} MB",
                flush=True,
            )


def compare_noticing(features: Path, plan: LivePlan, environments: Path) -> None:
    """Pools in which something was noticed: the clean ones, and the first with news."""
    data = load_features(features)
    (share,) = plan.shares
    print(
        f"\n{len(plan.seeds)} feeds, {plan.known} known classes, {plan.labelled} labelled images "
        f"each, pools of {plan.pool}: {plan.clean} clean, then {plan.pools} with {share:.0%} new"
    )
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        feeds = Path(folder, "feeds.npz")
        np.savez(feeds, **_arrays(data, plan, share))
        for way in ("notice-dfm", "notice-mmd"):
            found = ask(way, environments, "--feeds", str(feeds))
            if found is not None:
                _tell(TITLES[way], np.array(found["told"]), plan, found)
        _tell_ours(features, plan, Path(folder))


def _arrays(data: Any, plan: LivePlan, share: float) -> dict[str, Any]:
    arrays: dict[str, Any] = {"feeds": len(plan.seeds), "pools": plan.clean + plan.pools}
    for number, seed in enumerate(plan.seeds):
        feed = LiveFeed.of(data, plan, seed, share)
        arrays[f"labelled-{number}"] = feed.features[feed.labelled]
        for k, pool in enumerate(feed.pools()):
            arrays[f"pool-{number}-{k}"] = pool.features
            arrays[f"new-{number}-{k}"] = np.isin(pool.labels, feed.new)
    return arrays


def _tell(title: str, told: np.ndarray, plan: LivePlan, found: dict[str, Any]) -> None:
    clean, first = told[:, : plan.clean], told[:, plan.clean]
    images = told.size * plan.pool
    print(
        f"{title:>55}: first pool with news {first.mean():.0%}, within {plan.pools} "
        f"{told[:, plan.clean :].any(axis=1).mean():.0%}; alarms in {clean.sum()} of {clean.size} "
        f"clean pools; {images / found['processor']:,.0f} images/s of a core with its fits, "
        f"{found['megabytes']:,.0f} MB",
        flush=True,
    )


def _tell_ours(features: Path, plan: LivePlan, folder: Path) -> None:
    """`conclad evaluate --live` on the same feeds: the trigger alone, and with its questions."""
    command = [sys.executable, "-m", "monitor.cli", "evaluate", "--live"]
    options = {
        "features": features,
        "known": plan.known,
        "new": plan.new,
        "labelled": plan.labelled,
        "pool": plan.pool,
        "pools": plan.pools,
        "clean": plan.clean,
        "share": plan.shares[0],
        "seeds": ",".join(map(str, plan.seeds)),
    }
    for title, trickle in (("conclad, its trigger alone", 0), ("conclad, with its questions", 21)):
        out = folder / f"trickle-{trickle}"
        given = {**options, "trickle": trickle, "out": out}
        _call([*command, *(part for k, v in given.items() for part in (f"--{k}", str(v)))])
        records = json.loads((out / "live.json").read_text())["records"]
        noticed = [record["noticed_in"] for record in records]
        print(
            f"{title:>55}: first pool with news {np.mean([n == 1 for n in noticed]):.0%}, within "
            f"{plan.pools} {np.mean([n is not None for n in noticed]):.0%}; needless rounds in "
            f"{sum(r['needless_rounds'] for r in records)} of "
            f"{sum(r['clean_pools'] for r in records)} clean pools",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="labelled images as Parquet")
    parser.add_argument("--features", type=Path, help="features X and labels y as .npz")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--pool", type=int, default=400)
    parser.add_argument("--clean", type=int, default=3)
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "conclad-peers")
    parser.add_argument("--environments", type=Path, default=home)
    given = parser.parse_args()
    if given.data is None and given.features is None:
        parser.error("nothing to compare: name images with --data, features with --features")
    if given.data is not None:
        compare_speed(given.data, given.images, given.environments)
    if given.features is not None:
        plan = LivePlan(
            known=4,
            new=1,
            pool=given.pool,
            pools=2,
            clean=given.clean,
            shares=(given.share,),
            seeds=tuple(range(given.seeds)),
        )
        compare_noticing(given.features, plan, given.environments)


if __name__ == "__main__":
    main()
