"""Kill actors and drivers for as long as a feed lasts: python -m bench.chaos [--images 20000].

A real Ray of three nodes on this machine, one of which is lost half way. Afterwards every image
must have exactly one verdict, nobody may have been asked twice, and the budgets must be exact.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.deaths import check, make_feed, rage
from tests.actors.nodes import nodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--pause", type=float, nargs=2, default=(2.0, 6.0), metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, nodes(cpus=1) as cluster:
        config = make_feed(
            Path(folder),
            given.images,
            f"run.address={cluster.address}",
            "run.embedders=2",
            "run.embedder_cpus=0",
            "run.embedder_resources={site: 1}",
            "pools.size=1000",
            "labels.budget=0.02",
        )
        toll = rage(
            config,
            cluster,
            pause=(given.pause[0], given.pause[1]),
            seed=given.seed,
            lose_node_at=given.images // 2,
            say=lambda text: print(text, flush=True),
        )
        found = check(config, given.images)
    actors = ", ".join(f"{n} {role}" for role, n in sorted(toll.actors.items()))
    print(f"killed: {actors}, {toll.drivers} drivers, {toll.nodes} node in {toll.seconds:.0f} s")
    print(
        f"{found['images']} images have one verdict each, {found['labels']} labels asked once "
        f"each, classes: {', '.join(found['classes'])}"
    )


if __name__ == "__main__":
    main()
