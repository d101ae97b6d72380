"""Two groups share one embedder on a cluster of two nodes, as their shares say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bench.groups import GroupRates, measure
from monitor.store import Store, check
from monitor.store.record_states import BatchState
from tests.actors.nodes import nodes


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a cluster with room for one embedder: if each group had its own, one would wait."""
    with nodes(cpus=2) as cluster:
        cluster.add(cpus=1, device=1)
        yield cluster.address


@pytest.mark.timeout(300)
def test_two_groups_share_one_device_as_configured(address: str, tmp_path: Path) -> None:
    shares = {"harbour": 1.0, "forest": 3.0}
    found = measure(tmp_path, shares, images=1536, rate=150, address=address)
    assert_all_judged_once(found, tmp_path, dict.fromkeys(shares, 1536))
    assert found.rates["forest"] / found.together == pytest.approx(0.75, abs=0.1)


@pytest.mark.timeout(300)
def test_groups_lose_nothing_when_the_embedder_that_they_share_dies(
    address: str, tmp_path: Path
) -> None:
    shares = {"harbour": 1.0, "forest": 1.0}
    found = measure(tmp_path, shares, images=512, rate=500, address=address, deaths=1)
    assert_all_judged_once(found, tmp_path, dict.fromkeys(shares, 512))


def assert_all_judged_once(found: GroupRates, folder: Path, images: Mapping[str, int]) -> None:
    assert found.images == images
    for group in images:
        with Store.open(folder / group / "state") as store:
            assert [f for f in check(store) if f.severity == "error"] == []
            with store.reading() as tx:
                files = [batch for n in range(1, 99) for batch in tx.batches.of_file(n)]
            assert {batch.state for batch in files} == {BatchState.DONE}
