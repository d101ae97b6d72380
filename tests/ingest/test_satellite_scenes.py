"""Satellite scenes: tiles that come back to their coordinates, and bands that come through."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from PIL import Image
from rasterio.io import MemoryFile
from rasterio.transform import Affine, from_origin
from rasterio.windows import Window

from monitor.images.bands import Bands, decode_bands
from monitor.ingest.errors import SourceRefused
from monitor.ingest.ingest_job import ingest
from monitor.ingest.ingest_options import Options, SceneOptions
from tests.ingest.making import OLD, images, moment, rows

UTM = "EPSG:32633"


def write_scene(
    path: Path,
    *,
    width: int = 300,
    height: int = 200,
    bands: int = 13,
    dtype: str = "uint16",
    transform: Affine | None = None,
    nodata: float | None = 0,
    empty: tuple[slice, slice] | None = None,
    crs: str | None = UTM,
    **options: Any,
) -> NDArray[Any]:
    """A scene in which every pixel of every band has its own value."""
    largest = 250 if dtype == "uint8" else 9000
    values = np.arange(bands * height * width).reshape(bands, height, width) % largest + 1
    if empty is not None:
        values[(slice(None), *empty)] = 0
    values = values.astype(dtype)
    profile = {"driver": "GTiff", "dtype": dtype, "count": bands, "width": width, "height": height}
    place = transform or from_origin(399960.0, 5400000.0, 10.0, 10.0)
    with rasterio.open(
        path, "w", **profile, transform=place, nodata=nodata, crs=crs, **options
    ) as out:
        out.write(values)
    os.utime(path, (OLD, OLD))
    return values


def small(**options: Any) -> Options:
    return Options(scenes=SceneOptions(**{"tile": 64, **options}))


@pytest.mark.parametrize("overlap", [0, 16])
@pytest.mark.parametrize(
    "transform",
    [None, Affine.translation(1e5, 2e5) * Affine.rotation(12.5) * Affine.scale(0.3, -0.7)],
    ids=["north-up", "turned"],
)
def test_tiles_come_back_to_their_coordinates(
    tmp_path: Path, overlap: int, transform: Affine | None
) -> None:
    values = write_scene(tmp_path / "s.tif", transform=transform)
    ingest([str(tmp_path / "s.tif")], tmp_path / "feed", small(overlap=overlap))
    covered = np.zeros(values.shape[1:], int)
    with rasterio.open(tmp_path / "s.tif") as scene:
        for row in rows(tmp_path / "feed"):
            with MemoryFile(row["image"]) as memory, memory.open() as tile:
                # By the columns alone: from the tile's corner to pixels of the scene.
                moved = Affine(*row["transform"])
                column, line = (round(at) for at in ~scene.transform * (moved * (0, 0)))
                window = Window(column, line, tile.width, tile.height)
                assert moved == tile.transform == scene.window_transform(window)
                np.testing.assert_array_equal(tile.read(), scene.read(window=window))
                assert row["crs"] == UTM == tile.crs.to_string()
                corners = [tile.transform * at for at in ((0, 0), (64, 0), (0, 64), (64, 64))]
                assert row["min_x"] == min(x for x, _ in corners)
                assert row["max_y"] == max(y for _, y in corners)
            covered[line : line + 64, column : column + 64] += 1
    assert covered.min() >= 1
    assert row["west"] < row["east"]
    assert row["south"] < row["north"]


def test_thirteen_bands_of_16_bits_are_read_by_the_feed(tmp_path: Path) -> None:
    values = write_scene(tmp_path / "s.tif")
    ingest([str(tmp_path / "s.tif")], tmp_path / "feed", small())
    image = images(tmp_path / "feed")["s.tif#r000064c000128"]
    found = np.asarray(decode_bands(image, Bands((4, 3, 2), (0, 9000)), 10**6))
    wanted = np.rint(values[[3, 2, 1], 64:128, 128:192] / 9000 * 255)
    np.testing.assert_allclose(found, np.moveaxis(wanted, 0, -1), atol=1)


def test_bands_and_stretch_make_a_picture(tmp_path: Path) -> None:
    values = write_scene(tmp_path / "s.tif")
    options = small(bands=(4, 3, 2), stretch=(0.0, 9000.0))
    ingest([str(tmp_path / "s.tif")], tmp_path / "feed", options)
    image = Image.open(io.BytesIO(images(tmp_path / "feed")["s.tif#r000000c000064"]))
    assert (image.format, image.mode, image.size) == ("PNG", "RGB", (64, 64))
    wanted = np.rint(values[[3, 2, 1], :64, 64:128] / 9000 * 255)
    np.testing.assert_allclose(np.asarray(image), np.moveaxis(wanted, 0, -1), atol=1)


def test_tiles_without_data_are_left_out(tmp_path: Path) -> None:
    write_scene(tmp_path / "s.tif", width=256, height=256, empty=(slice(None), slice(0, 100)))
    done = ingest([str(tmp_path / "s.tif")], tmp_path / "feed", small())
    # The first of four columns is empty, the second 56% empty.
    assert done.images == 8
    assert done.left_out == {"too little data in the tile": 8}
    done = ingest([str(tmp_path / "s.tif")], tmp_path / "feed2", small(max_nodata=0.9))
    assert done.images == 12


def test_a_cloud_optimised_scene_of_colours_becomes_png(tmp_path: Path) -> None:
    values = write_scene(tmp_path / "s.tif", bands=3, dtype="uint8", nodata=None, tiled=True,
                         blockxsize=64, blockysize=64, compress="lzw")  # fmt: skip
    ingest([str(tmp_path / "s.tif")], tmp_path / "feed", small())
    image = np.asarray(Image.open(io.BytesIO(images(tmp_path / "feed")["s.tif#r000064c000000"])))
    np.testing.assert_array_equal(image, np.moveaxis(values[:, 64:128, :64], 0, -1))


def test_a_chip_goes_on_unchanged_with_its_place(tmp_path: Path) -> None:
    write_scene(tmp_path / "chip.tif", width=64, height=64)
    ingest([str(tmp_path / "chip.tif")], tmp_path / "feed")
    [row] = rows(tmp_path / "feed")
    assert row["image"] == (tmp_path / "chip.tif").read_bytes()
    assert row["min_x"] == 399960.0
    assert row["max_x"] == 399960.0 + 640


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_a_scene_without_a_place_is_cut_by_pixels(tmp_path: Path) -> None:
    write_scene(tmp_path / "s.tif", transform=Affine.identity(), crs=None)
    ingest([str(tmp_path / "s.tif")], tmp_path / "feed", small())
    found = {row["image_id"]: row for row in rows(tmp_path / "feed")}
    assert found["s.tif#r000064c000128"]["crs"] is None
    assert found["s.tif#r000064c000128"]["min_x"] == 128


def test_images_and_scenes_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_scene(tmp_path / "in/s.tif")
    Image.new("RGB", (2000, 30), "red").save(tmp_path / "in/plain.tif")
    Image.new("RGB", (20, 30), "red").save(tmp_path / "in/a.png")
    ingest([str(tmp_path / "in")], tmp_path / "feed", small())
    found = images(tmp_path / "feed")
    assert found["plain.tif"] == (tmp_path / "in/plain.tif").read_bytes()
    assert len(found) == 2 + 5 * 4


def stac(tmp_path: Path, assets: dict[str, str]) -> Path:
    item = {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": "S2A_33UVP_20260311",
        "collection": "sentinel-2",
        "properties": {"datetime": "2026-03-11T10:20:30Z"},
        "assets": {key: {"href": href, "type": "image/tiff"} for key, href in assets.items()},
    }
    path = tmp_path / "item.json"
    path.write_text(json.dumps(item))
    os.utime(path, (OLD, OLD))
    return path


def test_a_stac_item_stacks_its_assets(tmp_path: Path) -> None:
    for number, name in enumerate(("B04", "B03", "B02")):
        write_scene(tmp_path / f"{name}.tif", bands=1, width=100, height=100)
        with rasterio.open(tmp_path / f"{name}.tif", "r+") as band:
            band.write(np.full((1, 100, 100), 100 * (number + 1), np.uint16))
    item = stac(tmp_path, {name: f"./{name}.tif" for name in ("B02", "B03", "B04")})
    ingest([str(item)], tmp_path / "feed", small(assets=("B04", "B03", "B02")))
    found = rows(tmp_path / "feed")
    assert len(found) == 4
    assert {row["source_id"] for row in found} == {"sentinel-2"}
    assert {row["captured_at"] for row in found} == {moment("2026-03-11T10:20:30+00:00")}
    with MemoryFile(found[0]["image"]) as memory, memory.open() as tile:
        assert tile.read()[:, 0, 0].tolist() == [100, 200, 300]
    with pytest.raises(SourceRefused, match=r"--assets B04,B03,B02 \(found: B02, B03, B04\)"):
        ingest([str(item)], tmp_path / "other", small())


def test_a_band_that_is_not_there(tmp_path: Path) -> None:
    write_scene(tmp_path / "s.tif", bands=3)
    with pytest.raises(SourceRefused, match="has 3 bands, where --bands names 8"):
        ingest([str(tmp_path / "s.tif")], tmp_path / "feed", small(bands=(8,)))
