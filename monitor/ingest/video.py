"""Video files: frames at a set rate, each with the moment at which it was filmed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from monitor.ingest.capture_times import from_nanoseconds
from monitor.ingest.errors import Unreadable
from monitor.ingest.frames import Sampling, need_av, open_video, read_frames
from monitor.ingest.image_names import Reading, fingerprint, name_image, whole_file
from monitor.ingest.reader_items import (
    Finished,
    Handed,
    Item,
    Known,
    LeftOut,
    Picture,
    Repeated,
    short_hash,
)
from monitor.ingest.source_files import SourceFile, Stamp

if TYPE_CHECKING:
    from av.container import InputContainer


def read_video(file: SourceFile, stamp: Stamp, reading: Reading) -> Iterator[Handed]:
    """The chosen frames, named by their milliseconds since the beginning.

    A run that was killed decodes the file again from its beginning, so that it chooses the same
    frames; those that the journal knows are not encoded again.
    """
    options = reading.options.video
    av = need_av(file.path)
    named = name_image(file, reading.options)
    if isinstance(named, LeftOut):
        yield named
        return
    made_of = fingerprint(file, stamp)
    try:
        with open_video(av, file.path) as container:
            began = named.time or _began(container, stamp, reading.options.zone)
            sampling = Sampling(options)
            for count, frame in enumerate(read_frames(container, options)):
                seconds = count / 25 if frame.seconds is None else frame.seconds
                if not sampling.is_due(seconds):
                    continue
                if not sampling.is_changed(frame):
                    yield Repeated()
                    continue
                at = f"{round(seconds * 1000):09d}"
                item = Item.of(file.path, str(stamp), at)
                if reading.is_known(item):
                    yield Known()
                    continue
                yield Picture(
                    item,
                    named.source_id,
                    f"{named.image_id}#{at}",
                    began + timedelta(milliseconds=round(seconds * 1000)),
                    frame.encoded(options.quality),
                    named.label,
                    identity=short_hash(f"{made_of} {at}".encode()),
                )
    except (av.error.FFmpegError, ValueError) as error:
        raise Unreadable(
            f"{file.path}: cannot be played to its end ({error}); copy it again, or convert it"
        ) from error
    yield Finished(whole_file(file, stamp, reading.options, options.key()))


def _began(container: InputContainer, stamp: Stamp, zone: tzinfo) -> datetime:
    """As the file says, else so that it ends when it was last written."""
    written = container.metadata.get("creation_time")
    if written:
        try:
            moment = datetime.fromisoformat(written)
            return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
        except ValueError:
            pass
    return from_nanoseconds(stamp.modified_ns) - timedelta(microseconds=container.duration or 0)
