"""How images are to be brought in: everything that the command line can say, with its reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from monitor.ingest.batches import Limits
from monitor.ingest.errors import OptionRefused
from monitor.ingest.path_pattern import PathPattern


@dataclass(frozen=True, slots=True)
class VideoOptions:
    """Which frames of a video or a camera become images."""

    fps: float = 1.0
    """Images a second. Cameras send 25; a monitor that judges 30 images/s would serve one."""
    keyframes: bool = False
    """Only frames that are coded by themselves: no decoding of those between, far cheaper."""
    min_change: float = 0.0
    """Skip a frame unless some part of it differs by so many grey levels (of 255) from the last
    one that was kept. 0 keeps all."""
    quality: int = 92
    """Of JPEG, for frames that are not JPEG already."""

    def __post_init__(self) -> None:
        if not self.fps > 0:
            raise OptionRefused(f"--fps {self.fps:g}: must be more than 0, such as 0.2 or 5")
        if not 0 <= self.min_change <= 255:
            raise OptionRefused(f"--min-change {self.min_change:g}: must be from 0 to 255")

    def key(self) -> str:
        return f"{self.fps:g} {self.keyframes} {self.min_change:g}"


@dataclass(frozen=True, slots=True)
class SceneOptions:
    """How a satellite scene is cut into tiles."""

    tile: int = 512
    overlap: int = 0
    bands: tuple[int, ...] = ()
    """Counted from 1; all of them if empty."""
    stretch: tuple[float, float] | None = None
    """These values become black and white in 8 bits; without it the values stay as they are, and
    `feed.bands` says at reading how to show them."""
    max_nodata: float = 0.5
    """Tiles of which a larger share has no data are left out."""
    assets: tuple[str, ...] = ()
    """Of STAC items; by default the one that shows true colours, or the only one."""

    def __post_init__(self) -> None:
        if self.tile < 16:
            raise OptionRefused(f"--tile {self.tile}: must be at least 16 pixels")
        if not 0 <= self.overlap < self.tile:
            raise OptionRefused(
                f"--overlap {self.overlap}: must be less than the tile's {self.tile} pixels"
            )
        if any(band < 1 for band in self.bands):
            raise OptionRefused("--bands: bands are counted from 1, such as 4,3,2")
        if self.stretch is not None and not self.stretch[0] < self.stretch[1]:
            raise OptionRefused("--stretch: two numbers, the lower one first, such as 0,3000")
        if not 0 <= self.max_nodata <= 1:
            raise OptionRefused(f"--max-nodata {self.max_nodata:g}: must be from 0 to 1")
        if self.stretch is not None and self.bands and len(self.bands) not in (1, 3):
            raise OptionRefused(
                f"--stretch: makes pictures of one or three bands, and --bands names "
                f"{len(self.bands)}"
            )

    def key(self) -> str:
        return f"{self.tile} {self.overlap} {self.bands} {self.stretch} {self.max_nodata:g}"


@dataclass(frozen=True, slots=True)
class Options:
    """All of it.

    >>> Options(video=VideoOptions(fps=0))
    Traceback (most recent call last):
    ...
    monitor.ingest.errors.OptionRefused: --fps 0: must be more than 0, such as 0.2 or 5
    """

    follow: bool = False
    source_id: str | None = None
    """For everything, in place of what folders say."""
    pattern: PathPattern | None = None
    zone: tzinfo = UTC
    """Of times that name none: in EXIF and in file names."""
    settle: float = 3.0
    """Seconds that a file must lie still before it counts as finished, unless its format shows
    that it is whole."""
    poll: float = 1.0
    """Seconds between two looks at a folder that is followed."""
    min_free: int = 10**9
    name: str = "default"
    limits: Limits = field(default_factory=Limits)
    video: VideoOptions = field(default_factory=VideoOptions)
    scenes: SceneOptions = field(default_factory=SceneOptions)
