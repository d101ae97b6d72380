"""Peers side by side with conclad: images a second, memory, and what each notices of a live feed.

    python -m bench.peers --data eurosat.parquet --features eurosat.npz [--images 256] [--seeds 8]
        [--minutes 15] [--only torch ray-data dfm conclad notice-dfm notice-mmd notice-conclad]

On the same images: a plain torch loop, a plain pipeline of Ray Data, anomalib's DFM (fit on a half,
predict the other), and `conclad score`, each in a process of its own, on the embedded backbone in
float32. On the same features, the feeds of `conclad evaluate --live`: anomalib's DFM, the online
MMD test of alibi-detect, and conclad. Peers that are not installed beside us are installed into
environments below ``--environments``, which see our packages behind their own; where that fails a
sentence says so. A peer may take ``--minutes``; of one that takes longer, the feeds that it has
finished count. Each result is printed as it comes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monitor.evaluation.labelled_features import load_features
from monitor.evaluation.live_feed import LiveFeed
from monitor.evaluation.live_plan import LivePlan

CHILD = Path(__file__).with_name("peer_ways.py")
#: What has to be installed for a way, where it is not one of ours.
PACKAGES = {
    "ray-data": "pandas",
    "dfm": "anomalib",
    "notice-dfm": "anomalib",
    "notice-mmd": "alibi-detect",
}
TITLES = {
    "torch": "plain torch loop, batches of 32",
    "ray-data": "plain Ray Data pipeline, its start included",
    "dfm": "anomalib DFM, fit and predict",
    "conclad": "conclad score",
    "notice-dfm": "anomalib DFM with a count of images above a threshold",
    "notice-mmd": "alibi-detect online MMD, window of 50",
    "notice-conclad": "conclad",
}
SPEED = ("torch", "ray-data", "dfm", "conclad")


class PeerMissing(Exception):
    """A peer could not be installed, or did not run."""


def python_for(way: str, environments: Path, seconds: float) -> str:
    """An interpreter that has the package of a way."""
    package = PACKAGES.get(way)
    if package is None:
        return sys.executable
    home = environments / package
    python = home / "bin" / "python"
    if (home / "installed").exists():
        return str(python)
    lines_of([sys.executable, "-m", "venv", str(home)], seconds)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    (site,) = lines_of([str(python), "-c", where], seconds)
    Path(site, "zz_beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    lines_of([str(python), "-m", "pip", "install", "--quiet", package], seconds)
    (home / "installed").touch()
    return str(python)


def lines_of(command: Sequence[str], seconds: float, *, partly: bool = False) -> list[str]:
    """What a command prints; with ``partly`` also if it is stopped because it takes too long."""
    ours = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    # Where it is set every process compiles what it imports, for some of which Ray waits 15 s.
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ours
    )
    stopping = threading.Timer(seconds, child.kill)
    stopping.start()
    try:
        told, complaint = child.communicate()
    finally:
        in_time = stopping.is_alive()
        stopping.cancel()
    lines = told.splitlines()
    if not in_time and not (partly and lines):
        raise PeerMissing(f"took longer than {seconds / 60:g} minutes")
    if in_time and child.returncode:
        said = [line for line in complaint.splitlines() if line.strip()]
        raise PeerMissing((said or ["it ended without a word"])[-1][:200])
    return lines


def ask(way: str, environments: Path, seconds: float, *arguments: str) -> list[dict[str, Any]]:
    """The results of a way: one of its speed, or one for each feed. Nothing if it did not run."""
    try:
        python = python_for(way, environments, seconds)
        said = lines_of([python, str(CHILD), way, *arguments], seconds, partly=True)
    except PeerMissing as problem:
        print(f"{TITLES[way]}: could not be run here: {problem}", flush=True)
        return []
    # Peers print what they like on the way.
    return [json.loads(line) for line in said if line.startswith("{")]


def compare_speed(
    ways: Sequence[str], data: Path, images: int, environments: Path, seconds: float
) -> None:
    print(f"{images} images, one thread, embedded backbone at 224 px in float32", flush=True)
    for way in ways:
        for found in ask(way, environments, seconds, "--data", str(data), "--images", str(images)):
            print(
                f"{TITLES[way]:>55}: {images / found['seconds']:6.1f} images/s "
                f"({images / found['processor']:.1f} of a core), {found['megabytes']:,.0f} MB",
                flush=True,
            )


def compare_noticing(
    ways: Sequence[str], features: Path, plan: LivePlan, environments: Path, seconds: float
) -> None:
    """Pools in which something was noticed: the clean ones, and the first with a new class."""
    data = load_features(features)
    (share,) = plan.shares
    print(
        f"\n{len(plan.seeds)} feeds, {plan.known} known classes, {plan.labelled} labelled images "
        f"each, pools of {plan.pool}: {plan.clean} clean, then {plan.pools} with {share:.0%} new",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        feeds = Path(folder, "feeds.npz")
        np.savez(feeds, **_arrays(data, plan, share))
        for way in ways:
            if way == "notice-conclad":
                _tell_ours(features, plan, Path(folder), seconds)
            elif found := ask(way, environments, seconds, "--feeds", str(feeds)):
                _tell(TITLES[way], plan, found)


def _arrays(data: Any, plan: LivePlan, share: float) -> dict[str, Any]:
    arrays: dict[str, Any] = {"feeds": len(plan.seeds), "pools": plan.clean + plan.pools}
    for number, seed in enumerate(plan.seeds):
        feed = LiveFeed.of(data, plan, seed, share)
        arrays[f"labelled-{number}"] = feed.features[feed.labelled]
        for k, pool in enumerate(feed.pools()):
            arrays[f"pool-{number}-{k}"] = pool.features
            arrays[f"new-{number}-{k}"] = np.isin(pool.labels, feed.new)
    return arrays


def _tell(title: str, plan: LivePlan, found: Sequence[dict[str, Any]]) -> None:
    told = np.array([feed["told"] for feed in found])
    clean, first = told[:, : plan.clean], told[:, plan.clean]
    images = told.size * plan.pool
    print(
        f"{title:>55}: {len(told)} feeds; first pool with a new class {first.mean():.0%}, within "
        f"{plan.pools} "
        f"{told[:, plan.clean :].any(axis=1).mean():.0%}; alarms in {clean.sum()} of {clean.size} "
        f"clean pools; {images / found[-1]['processor']:,.0f} images/s of a core with its fits, "
        f"{found[-1]['megabytes']:,.0f} MB",
        flush=True,
    )


def _tell_ours(features: Path, plan: LivePlan, folder: Path, seconds: float) -> None:
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
        spoken = [part for key, value in given.items() for part in (f"--{key}", str(value))]
        try:
            lines_of([*command, *spoken], seconds)
        except PeerMissing as problem:
            print(f"{title}: {problem}", flush=True)
            continue
        records = json.loads((out / "live.json").read_text())["records"]
        noticed = [record["noticed_in"] for record in records]
        print(
            f"{title:>55}: first pool with a new class "
            f"{np.mean([n == 1 for n in noticed]):.0%}, within {plan.pools} "
            f"{np.mean([n is not None for n in noticed]):.0%}; needless rounds in "
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
    parser.add_argument("--minutes", type=float, default=15.0, help="that each peer may take")
    parser.add_argument("--only", nargs="+", choices=tuple(TITLES), default=tuple(TITLES))
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "conclad-peers")
    parser.add_argument("--environments", type=Path, default=home)
    given = parser.parse_args()
    if given.data is None and given.features is None:
        parser.error("nothing to compare: name images with --data, features with --features")
    seconds = 60 * given.minutes
    speed = [way for way in given.only if way in SPEED]
    noticing = [way for way in given.only if way not in SPEED]
    if given.data is not None and speed:
        compare_speed(speed, given.data, given.images, given.environments, seconds)
    if given.features is not None and noticing:
        plan = LivePlan(
            known=4,
            new=1,
            pool=given.pool,
            pools=2,
            clean=given.clean,
            shares=(given.share,),
            seeds=tuple(range(given.seeds)),
        )
        compare_noticing(noticing, given.features, plan, given.environments, seconds)


if __name__ == "__main__":
    main()
