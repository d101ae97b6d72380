"""Kill actors and drivers for as long as a feed lasts: python -m bench.chaos [--images 20000].

A real Ray of three nodes on this machine, one of which is lost half way. Afterwards every image
must have exactly one verdict, nobody may have been asked twice, and the budgets must be exact. And
not only that: verdicts, questions, classes, versions by their hashes, counters and events must be
those of a run over the same feed that nobody disturbed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from bench.deaths import check, make_feed, rage
from monitor.config import Config
from tests.actors.crashing import at, drain
from tests.actors.engines import slow
from tests.actors.nodes import nodes
from tests.actors.story import outcome

#: A calm run takes a minute; a crowded machine may take ten.
CALM_SECONDS = 3600


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
        calm = Path(folder) / "calm"
        shutil.copytree(config.state.dir, calm)
        toll = rage(
            config,
            cluster,
            pause=(given.pause[0], given.pause[1]),
            seed=given.seed,
            # A second for each batch: the feed lasts long enough for many to die.
            engine=slow,
            lose_node_at=given.images // 2,
            say=lambda text: print(text, flush=True),
        )
        actors = ", ".join(f"{n} {role}" for role, n in sorted(toll.actors.items()))
        print(
            f"killed: {actors}, {toll.drivers} drivers, {toll.nodes} node in {toll.seconds:.0f} s",
            flush=True,
        )
        found = check(config, given.images)
        differing = compare(config, calm)
    print(
        f"{found['images']} images have one verdict each, {found['labels']} labels asked once "
        f"each, classes: {', '.join(found['classes'])}"
    )
    print(f"as in calm weather: {'everything' if not differing else f'not {differing}'}")


def compare(config: Config, state: Path) -> str:
    """What differs from a run in one process that nobody disturbs."""
    run = config.run.model_copy(update={"address": "none"})
    undisturbed = at(config.model_copy(update={"run": run}), state)
    assert drain(undisturbed, timeout=CALM_SECONDS) == 0
    wild, calm = outcome(Path(config.state.dir)), outcome(state)
    return ", ".join(name for name in calm if wild[name] != calm[name])


if __name__ == "__main__":
    main()
