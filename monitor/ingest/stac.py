"""STAC items: one scene each, with its time and collection, in one or several asset files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from monitor.ingest.errors import Unreadable
from monitor.ingest.image_names import Named, Reading, whole_file
from monitor.ingest.ingest_options import Options
from monitor.ingest.reader_items import Finished, Handed
from monitor.ingest.satellite_scenes import opened, tiles
from monitor.ingest.source_files import SourceFile, Stamp

LARGEST = 16 * 2**20
"""Bytes of an item; those with many assets have some hundred kilobytes."""


@dataclass(frozen=True, slots=True)
class StacItem:
    """What ingest takes of an item."""

    id: str
    collection: str | None
    time: datetime | None
    assets: Mapping[str, str]
    """Address of each raster asset, by its key."""
    visual: str | None
    """The key of the asset that shows true colours."""


def parse_item(text: str, where: str) -> StacItem:
    """An item as the specification describes it, or the sentence that says what is missing."""
    try:
        item = json.loads(text)
        if item["type"] != "Feature" or "stac_version" not in item:
            raise KeyError("stac_version")
        properties, assets = item["properties"], item["assets"]
        rasters = {key: asset["href"] for key, asset in assets.items() if _is_raster(asset)}
        time = properties.get("datetime") or properties.get("start_datetime")
        visual = next(
            (key for key in rasters if key == "visual" or "visual" in assets[key].get("roles", ())),
            None,
        )
        moment = datetime.fromisoformat(time) if time else None
        if moment is not None and moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return StacItem(str(item["id"]), item.get("collection"), moment, rasters, visual)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(
            f"{where}: is not a STAC item ({type(error).__name__}: {error}); ingest takes items, "
            "not catalogs or collections"
        ) from error


def read_item(file: SourceFile, stamp: Stamp, reading: Reading) -> Iterator[Handed]:
    """Every tile of the item's assets that has data."""
    if stamp.size > LARGEST:
        raise Unreadable(f"{file.path}: is too large for a STAC item")
    text = Path(file.path).read_text(encoding="utf-8", errors="replace")
    item = parse_item(text, file.path)
    chosen = _chosen(item, reading, file.path)
    addresses = [_address(item.assets[key], Path(file.path)) for key in chosen]
    source = reading.options.source_id or item.collection or file.root
    named = Named(source, item.id, None, item.time)
    made_of = f"{item.id} {' '.join(chosen)}"
    with opened(item.id, addresses) as scene:
        settings = f"{stamp} {' '.join(chosen)}"
        yield from tiles(scene, named, file.path, settings, made_of, reading)
    yield Finished(whole_file(file, stamp, reading.options, settings_of(reading.options)))


def settings_of(options: Options) -> str:
    """On which the tiles of an item depend."""
    return f"{options.scenes.key()} {' '.join(options.scenes.assets)}"


def _chosen(item: StacItem, reading: Reading, where: str) -> tuple[str, ...]:
    wanted = reading.options.scenes.assets
    there = ", ".join(item.assets) or "none"
    for key in wanted:
        if key not in item.assets:
            raise Unreadable(f"{where}: has no raster asset '{key}' (found: {there})")
    if wanted:
        return wanted
    if item.visual is not None:
        return (item.visual,)
    if len(item.assets) == 1:
        return tuple(item.assets)
    raise Unreadable(
        f"{where}: say which assets to read with --assets, such as --assets B04,B03,B02 "
        f"(found: {there})"
    )


def _is_raster(asset: Any) -> bool:
    kind = str(asset.get("type", ""))
    path = str(asset["href"]).split("?")[0].lower()
    return "tiff" in kind or "jp2" in kind or path.endswith((".tif", ".tiff", ".jp2"))


def _address(href: str, item: Path) -> str:
    """Relative addresses begin at the item, as the specification says."""
    if "://" in href:
        return href.removeprefix("file://")
    return str((item.parent / href).resolve())
