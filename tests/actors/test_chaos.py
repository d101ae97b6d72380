"""A short rage against the monitor; ``python -m bench.chaos`` is the long one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.actors.chaos import check, make_feed, rage
from tests.actors.crashing import at, drain
from tests.actors.engines import slow
from tests.actors.nodes import nodes
from tests.actors.story import outcome

IMAGES = 600
#: A driver that was killed starts anew, which takes minutes where many share two cores.
pytestmark = pytest.mark.timeout(1800)


def test_random_deaths_cost_time_only(tmp_path: Path) -> None:
    config = make_feed(
        tmp_path, IMAGES, "pools.size=200", "labels.budget=0.05", "feed.batch_rows=32"
    )
    calm = at(config, tmp_path / "calm")
    shutil.copytree(config.state.dir, calm.state.dir)
    run = config.run.model_copy(update={"address": "none"})
    assert drain(calm.model_copy(update={"run": run})) == 0
    with nodes(cpus=1) as cluster:
        wild = config.model_copy(
            update={
                "run": config.run.model_copy(
                    update={
                        "address": cluster.address,
                        "embedders": 2,
                        "embedder_cpus": 0.0,
                        "embedder_resources": {"site": 1.0},
                    }
                )
            }
        )
        toll = rage(wild, cluster, pause=(0.5, 1.5), seed=3, engine=slow, lose_node_at=IMAGES // 2)
    found = check(wild, IMAGES)
    assert "sand" in found["classes"]
    assert toll.nodes == 1
    assert toll.actors.total() + toll.drivers >= 3
    # Not only complete: the same verdicts, questions, versions and events as in calm weather.
    assert outcome(Path(wild.state.dir)) == outcome(Path(calm.state.dir))
