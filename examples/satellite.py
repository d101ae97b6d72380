"""A scene with a snowfield that nobody labelled: tiles, verdicts, and a map of the novel ones."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # writes files, opens no window
import matplotlib.pyplot as plt
import numpy as np
import rasterio
from drawn_images import CLASSES, class_folders, picture
from matplotlib.patches import Rectangle
from PIL import Image
from rasterio.transform import from_origin

TILE, ACROSS = 64, 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backbone", default="embedded")
    chosen = parser.parse_args()
    folder: Path = chosen.folder
    class_folders(folder / "labelled", CLASSES[:2], each=60)
    scene(folder / "scene.tif")

    flags = ["--set", f"backbone.name={chosen.backbone}", "--set", "run.address=none"]
    conclad(folder, "ingest", "scene.tif", "--to", "feed", "--tile", str(TILE))
    conclad(folder, "fit", "--data", "labelled", *flags)
    conclad(folder, "run", "--once", *flags)
    out = ("--format", "geojson", "--out", "novel.geojson")
    conclad(folder, "verdicts", "--verdict", "novel", *out, *flags)
    found = json.loads((folder / "novel.geojson").read_text())["features"]
    draw_map(folder / "scene.tif", [feature["properties"] for feature in found], folder / "map.png")
    print(f"{len(found)} novel tiles in novel.geojson, for QGIS and web maps, and in map.png")


def scene(path: Path) -> None:
    """Water and forest, and snow in the north-east corner, somewhere in the Alps (UTM 32)."""
    values = np.zeros((3, ACROSS * TILE, ACROSS * TILE), np.uint8)
    for row in range(ACROSS):
        for column in range(ACROSS):
            is_snow = row < 3 and column >= ACROSS - 3
            kind = CLASSES[2] if is_snow else CLASSES[(row + column) % 2]
            image = Image.open(io.BytesIO(picture(kind, 5000 + ACROSS * row + column)))
            pixels = np.asarray(image.resize((TILE, TILE)))
            at = np.s_[:, row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
            values[at] = pixels.transpose(2, 0, 1)
    size = ACROSS * TILE
    shape = {"count": 3, "width": size, "height": size, "dtype": "uint8"}
    place = {"crs": "EPSG:32632", "transform": from_origin(600_000, 5_200_000, 10, 10)}
    with rasterio.open(path, "w", driver="GTiff", **shape, **place) as out:
        out.write(values)


def draw_map(scene: Path, tiles: list[dict[str, Any]], out: Path) -> None:
    """The scene with the outlines of these tiles, in the coordinates of its CRS."""
    with rasterio.open(scene) as file:
        pixels, bounds, crs = file.read().transpose(1, 2, 0), file.bounds, file.crs
    figure, axes = plt.subplots(figsize=(7, 7), layout="constrained")
    axes.imshow(pixels, extent=(bounds.left, bounds.right, bounds.bottom, bounds.top))
    for tile in tiles:
        corner = tile["min_x"], tile["min_y"]
        size = tile["max_x"] - tile["min_x"], tile["max_y"] - tile["min_y"]
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor="red", linewidth=2))
    axes.set_title(f"novel tiles ({crs})")
    axes.ticklabel_format(style="plain", useOffset=False)
    figure.savefig(out, dpi=100)


def conclad(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "monitor.cli", *arguments], cwd=folder, check=True)


if __name__ == "__main__":
    main()
