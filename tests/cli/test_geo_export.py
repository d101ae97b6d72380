"""Tiles of a scene keep their place: from ingest to GeoJSON and GeoParquet of what they became."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from monitor.cli.root import run
from monitor.jobs.fit_detector import fit
from monitor.store import NewClass, Store, VersionUpdate, commit_version, load_snapshot
from monitor.store.read_verdicts import read_verdicts
from monitor.store.record_states import ClassOrigin
from monitor.store.verdict_columns import DISCOVERIES, table
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


def learn_snow(state: Path) -> int:
    """Make a class of some tiles and some plain images; returns how many of them are tiles."""
    with Store.open(state) as store:
        rows = [row for batch in read_verdicts(store) for row in batch.to_pylist()]
        plain = [row for row in rows if row["file"] == "plain.parquet"][:2]
        chosen = [row for row in rows if row["file"] != "plain.parquet"][:3] + plain
        with store.reading() as tx:
            version = tx.versions.current()
        assert version is not None
        found: dict[str, list[Any]] = {
            name: [row.get(name) for row in chosen] for name in DISCOVERIES.names
        }
        same = {"class_id": "class-9", "class_name": "snow", "by": "person", "confidence": 1.0}
        for name, value in {**same, "detector_version": 0, "pool": None}.items():
            found[name] = [value] * len(chosen)
        update = VersionUpdate(
            "snow",
            load_snapshot(store.folder, version.snapshot),
            version.number,
            [NewClass("class-9", "snow", ClassOrigin.PERSON)],
            discoveries=table(DISCOVERIES, found),
        )
        commit_version(store, update)
        with store.transaction() as tx:
            tx.classes.rename("class-9", "glacier")
    return len(chosen) - len(plain)


def test_discoveries_keep_their_place_and_todays_name(watched: list[str], tmp_path: Path) -> None:
    folder = Path(watched[5].partition("=")[2])
    count = learn_snow(folder)
    out, expected = tmp_path / "new.geojson", tiles(Path(watched[7].partition("=")[2]))
    command = ["discoveries", "--class", "glacier", *watched]
    assert run([*command, "--format", "geojson", "--out", str(out)]) == 0
    features = json.loads(out.read_text())["features"]
    assert len(features) == count == 3, "plain images have no place"
    for feature in features:
        said, tile = feature["properties"], expected[feature["properties"]["image_id"]]
        assert (said["class_name"], said["by"]) == ("glacier", "person")
        assert (said["crs"], said["max_y"]) == (tile["crs"], tile["max_y"])
        assert feature["geometry"]["coordinates"][0][2] == [tile["east"], tile["north"]]
    out = tmp_path / "new.parquet"
    assert run([*command, "--format", "geoparquet", "--out", str(out)]) == 0
    assert pq.read_table(out).column("class_name").to_pylist() == ["glacier"] * 3
    out = tmp_path / "new.csv"
    assert run([*command, "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 1 + 5
    assert run(["discoveries", "--class", "lava", *watched]) == 2
