"""Two groups share one embedder on a cluster of two nodes, as their shares say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.groups import measure
from monitor.store import Store, check
from tests.actors.nodes import nodes

IMAGES = 1536


@pytest.mark.timeout(300)
def test_two_groups_share_one_device_as_configured(tmp_path: Path) -> None:
    shares = {"harbour": 1.0, "forest": 3.0}
    with nodes(cpus=2) as cluster:
        cluster.add(cpus=1, device=1)
        # There is room for one embedder: if each group had its own, one would wait for ever.
        found = measure(tmp_path, shares, images=IMAGES, rate=150, address=cluster.address)
    assert found.images == {"harbour": IMAGES, "forest": IMAGES}
    assert found.rates["forest"] / found.together == pytest.approx(0.75, abs=0.1)
    for group in shares:
        with Store.open(tmp_path / group / "state") as store:
            assert [f for f in check(store) if f.severity == "error"] == []
