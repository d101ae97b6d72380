"""Satellite scenes: GeoTIFF, COG and multi-band TIFF cut into tiles that know where they lie.

A tile of the scene's own values is a GeoTIFF with all chosen bands; with a stretch it is a PNG of
one or three bands in 8 bits. A scene no larger than a tile that needs neither goes on unchanged.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from monitor.ingest.capture_times import from_nanoseconds
from monitor.ingest.errors import MissingExtra, Unreadable
from monitor.ingest.image_names import Named, Reading, fingerprint, name_image, whole_file
from monitor.ingest.ingest_options import SceneOptions
from monitor.ingest.reader_items import (
    Finished,
    Handed,
    Item,
    Known,
    LeftOut,
    Picture,
    Place,
    short_hash,
)
from monitor.ingest.source_files import SourceFile, Stamp
from monitor.ingest.tile_windows import windows

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

# What is wrong with a TIFF is told in our words, once.
logging.getLogger("tifffile").setLevel(logging.CRITICAL)

# ModelPixelScale, ModelTiepoint, ModelTransformation, GeoKeyDirectory.
_GEO_TAGS = (33550, 33922, 34264, 34735)


def is_scene(file: SourceFile) -> bool | None:
    """Whether a TIFF is more than a picture: it knows its place, or has bands nobody can see.

    None if it cannot be opened.
    """
    try:
        with tifffile.TiffFile(file.path) as tiff:
            page = tiff.pages.first
            bands, bits = int(page.samplesperpixel), int(page.bitspersample)
            has_place = any(tag in page.tags for tag in _GEO_TAGS)
            return has_place or bands > 4 or (bands > 1 and bits > 8)
    except Exception:  # noqa: BLE001 - readers of TIFF raise anything on broken bytes
        return None


def need_rasterio(where: str) -> Any:
    """The module `rasterio`, or the sentence that names the extra."""
    try:
        import rasterio
    except ImportError as error:
        raise MissingExtra(where, "satellite scenes", "geo") from error
    return rasterio


@dataclass(frozen=True, slots=True)
class Scene:
    """Bands of one grid: one file, or one file for each band as STAC items have them."""

    name: str
    files: tuple[DatasetReader, ...]

    def bands(self, options: SceneOptions) -> list[tuple[DatasetReader, int]]:
        every = [(file, band) for file in self.files for band in file.indexes]
        if not options.bands:
            return every
        if max(options.bands) > len(every):
            raise Unreadable(
                f"{self.name}: has {len(every)} bands, where --bands names {max(options.bands)}"
            )
        return [every[band - 1] for band in options.bands]


def read_scene(file: SourceFile, stamp: Stamp, reading: Reading) -> Iterator[Handed]:
    """Every tile of a TIFF that has data."""
    named = name_image(file, reading.options)
    if isinstance(named, LeftOut):
        yield named
        return
    with opened(file.name, [file.path]) as scene:
        time = named.time or _time(scene, reading.options.zone)
        named = Named(
            named.source_id,
            named.image_id,
            named.label,
            time or from_nanoseconds(stamp.modified_ns),
        )
        made_of = fingerprint(file, stamp)
        options = reading.options.scenes
        if _is_one_tile(scene, options):
            data = Path(file.path).read_bytes()
            place = place_of(scene, 0, 0, scene.files[0].width, scene.files[0].height)
            item = Item.of(file.path, str(stamp))
            yield Picture(
                item, named.source_id, named.image_id, named.time, data, named.label, place
            )
        else:
            yield from tiles(scene, named, file.path, str(stamp), made_of, reading)
    yield Finished(whole_file(file, stamp, reading.options, options.key()))


@contextlib.contextmanager
def opened(name: str, paths: list[str]) -> Iterator[Scene]:
    """The files of a scene, which must share one grid."""
    rasterio = need_rasterio(name)
    with contextlib.ExitStack() as stack:
        try:
            with _without_a_place():
                files = tuple(stack.enter_context(rasterio.open(path)) for path in paths)
            for other in files[1:]:
                if (other.shape, other.transform) != (files[0].shape, files[0].transform):
                    raise Unreadable(
                        f"{name}: its assets have different grids; name those of one resolution "
                        "with --assets"
                    )
            yield Scene(name, files)
        except rasterio.errors.RasterioError as error:
            raise Unreadable(f"{name}: cannot be read as a scene ({error})") from error


def tiles(
    scene: Scene, named: Named, location: str, stamp: str, made_of: str, reading: Reading
) -> Iterator[Handed]:
    """Every tile that has data, as far as the journal does not know it."""
    options = reading.options.scenes
    bands, first = scene.bands(options), scene.files[0]
    if options.stretch is not None and len(bands) not in (1, 3):
        raise Unreadable(
            f"{scene.name}: has {len(bands)} bands, and --stretch makes pictures of one or three; "
            "name them with --bands, such as 4,3,2"
        )
    for column, row, width, height in windows(
        first.width, first.height, options.tile, options.overlap
    ):
        at = f"r{row:06d}c{column:06d}"
        item = Item.of(location, f"{stamp} {options.key()}", at)
        if reading.is_known(item):
            yield Known()
            continue
        window = _window(column, row, width, height)
        mask = np.logical_and.reduce([file.dataset_mask(window=window) > 0 for file in scene.files])
        if 1 - mask.mean() > options.max_nodata:
            yield LeftOut(f"{location}#{at}", "too little data in the tile")
            continue
        values = np.stack([file.read(band, window=window) for file, band in bands])
        place = place_of(scene, column, row, width, height)
        yield Picture(
            item,
            named.source_id,
            f"{named.image_id}#{at}",
            named.time,
            _encoded(values, mask, place, first, options),
            named.label,
            place,
            short_hash(f"{made_of} {at} {options.key()}".encode()),
        )


def place_of(scene: Scene, column: int, row: int, width: int, height: int) -> Place:
    """Exactly where a tile lies: the scene's own transform, moved to the tile's first pixel."""
    first = scene.files[0]
    moved = first.transform * type(first.transform).translation(column, row)
    corners = [moved * corner for corner in ((0, 0), (width, 0), (0, height), (width, height))]
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    bounds = (min(xs), min(ys), max(xs), max(ys))
    crs = first.crs.to_string() if first.crs else None
    return Place(scene.name, crs, tuple(moved)[:6], bounds, _degrees(first, bounds))


def _degrees(
    file: DatasetReader, bounds: tuple[float, float, float, float]
) -> tuple[float, float, float, float] | None:
    if not file.crs:
        return None
    from rasterio.errors import RasterioError
    from rasterio.warp import transform_bounds

    try:
        west, south, east, north = transform_bounds(file.crs, "EPSG:4326", *bounds)
    except RasterioError:
        return None
    return west, south, east, north


def _encoded(
    values: NDArray[Any],
    mask: NDArray[np.bool_],
    place: Place,
    like: DatasetReader,
    options: SceneOptions,
) -> bytes:
    is_picture = values.dtype == np.uint8 and len(values) in (1, 3)
    if options.stretch is not None or is_picture:
        low, high = options.stretch or (0.0, 255.0)
        scaled = np.nan_to_num((values.astype(np.float32) - low) / (high - low))
        pixels = np.rint(np.clip(scaled, 0, 1) * 255).astype(np.uint8) * mask
        image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1))
        out = io.BytesIO()
        image.save(out, "PNG", compress_level=3)
        return out.getvalue()
    return _geotiff(values, place, like)


def _geotiff(values: NDArray[Any], place: Place, like: DatasetReader) -> bytes:
    from rasterio.io import MemoryFile
    from rasterio.transform import Affine

    with MemoryFile() as memory, _without_a_place():
        # No predictor: the feed reads deflated TIFF without further packages, but not that.
        with memory.open(
            driver="GTiff",
            count=len(values),
            height=values.shape[1],
            width=values.shape[2],
            dtype=values.dtype,
            crs=like.crs,
            transform=Affine(*place.transform),
            nodata=like.nodata,
            compress="deflate",
            zlevel=1,
            interleave="pixel",
        ) as out:
            out.write(values)
        data: bytes = memory.read()
    return data


@contextlib.contextmanager
def _without_a_place() -> Iterator[None]:
    """A TIFF that does not know where it lies is allowed: its tiles are placed by pixels."""
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def _is_one_tile(scene: Scene, options: SceneOptions) -> bool:
    first = scene.files[0]
    fits = first.width <= options.tile and first.height <= options.tile
    return fits and not options.bands and options.stretch is None and len(scene.files) == 1


def _window(column: int, row: int, width: int, height: int) -> Any:
    from rasterio.windows import Window

    return Window(column, row, width, height)


def _time(scene: Scene, zone: tzinfo) -> datetime | None:
    text = scene.files[0].tags().get("TIFFTAG_DATETIME", "")
    try:
        return datetime.strptime(text, "%Y:%m:%d %H:%M:%S").replace(tzinfo=zone).astimezone(UTC)
    except ValueError:
        return None
