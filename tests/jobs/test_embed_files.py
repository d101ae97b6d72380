"""Features as Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.backbones.embed_images import embed_images
from monitor.jobs.embed_files import embed
from monitor.jobs.errors import OutputTaken
from monitor.jobs.from_config import open_engine_of
from tests.jobs.feeds import config_for, picture, write_feed


def test_features_are_those_of_the_engine(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    images = [picture("water", 1), b"GIF89a", picture("sand", 2)]
    file = write_feed(tmp_path / "a.parquet", ["water", "x", "sand"], images=images)
    done = embed(config, [file], tmp_path / "out")
    assert (done.images, done.rejected, done.dimension) == (2, 1, 64)
    found = pq.read_table(tmp_path / "out" / "features")
    assert found.schema.field("features").type == pa.list_(pa.float32(), 64)
    assert found.column("label").to_pylist() == ["water", "sand"]
    assert found.column("row").to_pylist() == [0, 2]
    with open_engine_of(config) as engine:
        [expected] = embed_images([(0, images[0]), (2, images[2])], engine)
    got = np.asarray(found.column("features").to_pylist(), np.float32)
    np.testing.assert_allclose(got, expected.features, rtol=1e-5)
    reasons = pq.read_table(tmp_path / "out" / "rejected").column("reason").to_pylist()
    assert reasons == ["unknown_format"]


def test_a_second_run_skips_what_is_done(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    file = write_feed(tmp_path / "a.parquet", ["water"] * 10)
    embed(config, [file], tmp_path / "out")
    again = embed(config, [file], tmp_path / "out")
    assert (again.images, again.skipped) == (0, 10)


def test_features_of_another_backbone_do_not_mix(tmp_path: Path) -> None:
    file = write_feed(tmp_path / "a.parquet", ["water"])
    embed(config_for(tmp_path), [file], tmp_path / "out")
    with pytest.raises(OutputTaken, match="fingerprint"):
        embed(config_for(tmp_path, "backbone.name=tiny+multi"), [file], tmp_path / "out")
