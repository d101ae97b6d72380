"""Tiles of a scene keep their place: from ingest to GeoJSON and GeoParquet of their verdicts."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from monitor.cli.root import run
from monitor.jobs.fit_detector import fit
from tests.ingest.test_satellite_scenes import write_scene
from tests.jobs.feeds import config_for, write_feed


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A feed of a scene's tiles and of plain images, judged by a monitor."""
    folder = tmp_path_factory.mktemp("scenes")
    write_scene(folder / "scene.tif", bands=3, dtype="uint8")
    feed = folder / "feed"
    assert run(["ingest", f"{folder}/scene.tif", "--to", f"{feed}", "--tile", "64", "-q"]) == 0
    write_feed(feed / "plain.parquet", ["water"] * 5)
    labelled = write_feed(folder / "labelled.parquet", ["water", "forest"] * 60)
    fit(config_for(folder), [labelled], cache=folder / "cache")
    settings = ["backbone.name=tiny", "backbone.engine=torch", f"state.dir={folder}/state",
                f"feed.path={feed}", "run.address=none", "metrics.enabled=false"]  # fmt: skip
    flags = [word for one in settings for word in ("--set", one)]
    assert run(["run", "--once", "-q", *flags]) == 0
    return flags


def tiles(feed: Path) -> dict[str, dict[str, Any]]:
    rows = [row for file in feed.glob("2*/*.parquet") for row in pq.read_table(file).to_pylist()]
    return {row["image_id"]: row for row in rows}


def test_geojson_has_every_tile_where_it_lies(watched: list[str], tmp_path: Path) -> None:
    out = tmp_path / "all.geojson"
    assert run(["verdicts", "--format", "geojson", "--out", str(out), *watched]) == 0
    found = json.loads(out.read_text())
    assert found["type"] == "FeatureCollection"
    expected = tiles(Path(watched[7].partition("=")[2]))
    assert len(found["features"]) == len(expected) > 10, "plain images have no place"
    for feature in found["features"]:
        said, tile = feature["properties"], expected[feature["properties"]["image_id"]]
        [ring] = feature["geometry"]["coordinates"]
        assert ring[0] == [tile["west"], tile["south"]] == ring[-1]
        assert ring[2] == [tile["east"], tile["north"]]
        assert (said["crs"], said["min_x"]) == (tile["crs"], tile["min_x"])
        assert said["verdict_immediate"] in ("known", "novel")


def test_geoparquet_says_what_its_geometry_is(watched: list[str], tmp_path: Path) -> None:
    out = tmp_path / "novel.parquet"
    command = ["verdicts", "--format", "geoparquet", "--verdict", "novel", "--out", str(out)]
    assert run([*command, *watched]) == 0
    found = pq.read_table(out)
    geo = json.loads(found.schema.metadata[b"geo"])
    assert geo["columns"][geo["primary_column"]]["encoding"] == "WKB"
    assert set(found.column("verdict_immediate").to_pylist()) == {"novel"}
    row = found.slice(0, 1).to_pylist()[0]
    order, kind, rings, points = struct.unpack_from("<BIII", row["geometry"])
    assert (order, kind, rings, points) == (1, 3, 1, 5)
    assert struct.unpack_from("<2d", row["geometry"], 13) == (row["west"], row["south"])
