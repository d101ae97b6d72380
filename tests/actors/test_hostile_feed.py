"""No row and no batch stops the monitor: hostile names, and what cannot be committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import actors.coordinator
from actors.run_monitor import run
from monitor.config import Config
from monitor.store import ScoredBatch, Store, check, commit_batches
from tests.actors.story import expected_ids, image_ids
from tests.actors.test_faults import config, on_postgresql, postgresql, told
from tests.feed.test_hostile_names import HARMLESS, HOSTILE
from tests.jobs.feeds import write_feed

__all__ = ["config", "on_postgresql", "postgresql", "told"]


def add_hostile_file(config: Config) -> int:
    """One more file of the feed, with every hostile name as an id and as a source."""
    names = HOSTILE + HARMLESS
    path = Path(config.feed.path) / "hostile.parquet"
    write_feed(path, ["water"] * 2 * len(names), first_id=500_000)
    content = pq.read_table(path)
    ids, sources = (content.column(name).to_pylist() for name in ("image_id", "source_id"))
    ids[: len(names)], sources[len(names) :] = names, names
    for name, values in (("image_id", ids), ("source_id", sources)):
        position = content.schema.get_field_index(name)
        content = content.set_column(position, name, pa.array(values))
    pq.write_table(content, path)
    return 2 * len(HOSTILE)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_hostile_names_cost_their_rows_and_nothing_else(
    request: pytest.FixtureRequest, database: str
) -> None:
    config: Config = request.getfixturevalue(
        "on_postgresql" if database == "postgresql" else "config"
    )
    hostile = add_hostile_file(config)
    heard: list[str] = []
    summary = run(config, once=True, listener=lambda message: heard.append(message.text))
    assert summary.quarantined == {"files": 0, "batches": 0, "images": 0}
    assert (summary.pending, summary.unaccounted) == (0, 0)
    assert summary.images["rejected"] == hostile
    assert all(text.isprintable() for text in heard)
    place = config.state.url or config.state.dir
    with Store.open(place, files=config.state.dir) as store, store.reading() as tx:
        sources = {count.source for count in tx.counters.all("images")}
        assert set(HARMLESS) <= sources
        assert all(source.isprintable() and len(source) <= 256 for source in sources)
        assert [finding for finding in check(store) if finding.severity == "error"] == []


def test_a_row_that_cannot_be_committed_is_quarantined_alone(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(store: Store, scored: Sequence[ScoredBatch], **options: Any) -> Any:
        if any("000021" in one.verdicts.column("image_id").to_pylist() for one in scored):
            raise ValueError("a text field cannot hold this")
        return commit_batches(store, scored, **options)

    monkeypatch.setattr(actors.coordinator, "commit_batches", refusing)
    heard: list[str] = []
    summary = run(config, once=True, listener=lambda message: heard.append(message.text))
    assert summary.quarantined == {"files": 0, "batches": 1, "images": 1}
    assert (summary.pending, summary.unaccounted) == (0, 0)
    assert set(expected_ids()) - set(image_ids(Path(config.state.dir))) == {"000021"}
    assert any("could not be committed" in text for text in heard)
