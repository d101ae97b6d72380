"""``conclad ingest``."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from monitor.cli.options import with_output
from monitor.cli.output import Output, duration, table
from monitor.ingest.batches import Limits
from monitor.ingest.errors import OptionRefused
from monitor.ingest.ingest_options import Options, SceneOptions, VideoOptions
from monitor.ingest.ingest_tally import Tally
from monitor.ingest.path_pattern import PathPattern
from monitor.ingest.wait_for_space import size

# More rows than this are for a program: --json has them all.
SOURCES_SHOWN = 20
# Of feed.path; the configuration's model would take longer to load than this command.
DEFAULT_FEED = "feed"

T = TypeVar("T", int, float)


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option("--to", "feed", required=True, metavar="FEED", help="The feed's folder.")
@click.option("--follow", is_flag=True, help="Stay, and bring in whatever comes.")
@click.option("--stop-after", type=float, metavar="SECONDS", help="Stop cleanly after so long.")
@click.option(
    "--pattern",
    metavar="PATTERN",
    help="What paths say, such as '{source}/{label}/{time:%Y%m%dT%H%M%S}_*.jpg'.",
)
@click.option("--source-id", metavar="NAME", help="The source of everything, whatever folders say.")
@click.option(
    "--timezone", metavar="ZONE", default="UTC", help="Of times that name none; default UTC."
)
@click.option(
    "--settle",
    type=float,
    default=3.0,
    metavar="SECONDS",
    help="How long a file must lie still before it counts as finished; default 3.",
)
@click.option(
    "--batch-images", type=int, default=1000, metavar="N", help="Images of a file; default 1000."
)
@click.option(
    "--batch-seconds",
    type=float,
    default=30.0,
    metavar="SECONDS",
    help="How long an image waits for others at most; default 30.",
)
@click.option(
    "--min-free",
    default="1GB",
    metavar="SIZE",
    help="Space to keep free on the feed's disk; default 1GB.",
)
@click.option("--name", default="default", help="A journal of its own, to run several at once.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus here.")
@click.option("--fps", type=float, default=1.0, help="Video: images a second; default 1.")
@click.option("--keyframes", is_flag=True, help="Video: key frames only, which is far cheaper.")
@click.option(
    "--min-change",
    type=float,
    default=0.0,
    metavar="LEVELS",
    help="Video: skip frames of which no part differs by so many grey levels, such as 4.",
)
@click.option("--tile", type=int, default=512, help="Scenes: pixels of a tile's side; default 512.")
@click.option("--overlap", type=int, default=0, help="Scenes: pixels that tiles share; default 0.")
@click.option("--bands", metavar="N,N,…", help="Scenes: the bands to keep, counted from 1.")
@click.option("--stretch", metavar="LOW,HIGH", help="Scenes: values that become black and white.")
@click.option(
    "--max-nodata",
    type=float,
    default=0.5,
    metavar="SHARE",
    help="Scenes: leave tiles out of which a larger share has no data; default 0.5.",
)
@click.option("--assets", metavar="KEY,KEY,…", help="STAC items: the assets to read.")
@with_output
def ingest(
    sources: tuple[str, ...], feed: str, metrics: str | None, output: Output, **options: Any
) -> None:
    """Bring images, archives, video, cameras or scenes into the feed.

    A SOURCE is a folder of images in any layout, an image, a zip or tar archive, a WebDataset, a
    Parquet file with images, a video, a GeoTIFF, a STAC item, or a camera (rtsp://…, http://…,
    /dev/video0; NAME=rtsp://… names it). Every image enters the feed once, however often the
    command is run or killed. Images are not encoded again where the feed can read them.
    """
    chosen = _options(options)
    # Late: --help and mistakes in options do not wait for it.
    from monitor.ingest.ingest_job import ingest as run_ingest

    with _until_told(options["stop_after"]) as stop:
        done = run_ingest(
            sources,
            Path(feed).expanduser(),
            chosen,
            note=output.note,
            progress=output.progress,
            stop=stop,
            metrics=metrics,
        )
    output.result(done.to_dict(), describe(done, feed))


def describe(done: Tally, feed: str) -> str:
    lines = []
    if done.by_source:
        shown = done.by_source.most_common(SOURCES_SHOWN)
        lines.append(table(("source", "images"), [(name, f"{n:,}") for name, n in shown]))
        if len(done.by_source) > len(shown):
            lines.append(f"… and {len(done.by_source) - len(shown):,} more sources (see --json)")
        lines.append("")
    speed = f", {done.images / done.seconds:,.0f} images/s" if done.images and done.seconds else ""
    lines.append(
        f"{_counted(done.images, 'image')} ({size(done.bytes)}) in "
        f"{_counted(done.files, 'file')} of {feed} in {duration(done.seconds)}{speed}."
    )
    if done.known:
        lines.append(f"Already there, and passed over: {done.known:,}.")
    if done.repeated:
        lines.append(f"Frames that showed no change: {done.repeated:,}.")
    if done.left_out:
        reasons = "; ".join(f"{n:,} × {why}" for why, n in done.left_out.most_common(5))
        lines.append(f"Left out: {reasons}.")
    if done.ignored:
        kinds = ", ".join(f"{n:,} {suffix}" for suffix, n in done.ignored.most_common(5))
        lines.append(f"Ignored, being no images: {kinds}.")
    if done.was_stopped:
        lines.append("Stopped early; the same command goes on from here.")
    where = "" if Path(feed) == Path(DEFAULT_FEED) else f" --set feed.path={feed}"
    lines.append("Next, if there is no detector yet: conclad fit --data FOLDER-OF-CLASS-FOLDERS")
    lines.append(f"Then: conclad run --once{where}")
    return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    """
    >>> _counted(1, "image"), _counted(2000, "image")
    ('1 image', '2,000 images')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _options(given: dict[str, Any]) -> Options:
    try:
        zone = ZoneInfo(given["timezone"])
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise OptionRefused(
            f"--timezone {given['timezone']}: no such zone; give one such as Europe/Berlin"
        ) from error
    for name in ("batch_images", "batch_seconds"):
        if given[name] <= 0:
            raise OptionRefused(f"--{name.replace('_', '-')} {given[name]:g}: must be more than 0")
    stretch = _numbers("--stretch", given["stretch"], float)
    if stretch and len(stretch) != 2:
        raise OptionRefused("--stretch: two numbers, the lower one first, such as 0,3000")
    return Options(
        follow=given["follow"],
        source_id=given["source_id"],
        pattern=PathPattern.parse(given["pattern"], zone) if given["pattern"] else None,
        zone=zone,
        settle=given["settle"],
        min_free=_bytes(given["min_free"]),
        name=given["name"],
        limits=Limits(images=given["batch_images"], seconds=given["batch_seconds"]),
        video=VideoOptions(given["fps"], given["keyframes"], given["min_change"]),
        scenes=SceneOptions(
            tile=given["tile"],
            overlap=given["overlap"],
            bands=_numbers("--bands", given["bands"], int),
            stretch=(stretch[0], stretch[1]) if stretch else None,
            max_nodata=given["max_nodata"],
            assets=tuple(filter(None, (given["assets"] or "").split(","))),
        ),
    )


def _numbers(flag: str, text: str | None, kind: Callable[[str], T]) -> tuple[T, ...]:
    try:
        return tuple(kind(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise OptionRefused(f"{flag} {text}: numbers with commas between, please") from error


def _bytes(text: str) -> int:
    """
    >>> _bytes("500MB"), _bytes("2 GB"), _bytes("0")
    (500000000, 2000000000, 0)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)B?\s*", text)
    if found is None:
        raise OptionRefused(f"--min-free {text}: give a size such as 500MB or 2GB")
    factor = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}[found[2]]
    return int(float(found[1]) * factor)


@contextmanager
def _until_told(seconds: float | None) -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set, and the clock if it is told to; twice interrupts."""
    stop = threading.Event()

    def tell(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {one: signal.signal(one, tell) for one in (signal.SIGTERM, signal.SIGINT)}
    timer = threading.Timer(seconds, stop.set) if seconds is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield stop
    finally:
        if timer is not None:
            timer.cancel()
        for one, handler in before.items():
            signal.signal(one, handler)
