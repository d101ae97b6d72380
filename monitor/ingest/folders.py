"""A folder, or single files, as a stream of images: once, or for as long as new ones come."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from monitor.ingest.archives import read_archive
from monitor.ingest.errors import Unreadable
from monitor.ingest.image_files import hand_over, item_of, read_whole
from monitor.ingest.image_names import Reading, whole_file
from monitor.ingest.input_formats import FileKind, is_whole
from monitor.ingest.parquet_tables import read_table
from monitor.ingest.reader_items import Finished, Handed, Idle, Item, Known, LeftOut
from monitor.ingest.source_files import Settling, SourceFile, Stamp, Walk

LATE_SECONDS = 0.2
"""Between two looks at files that were being written when their turn came."""
PATIENCE = 10
"""How often a file may disappoint the time in which it should lie still: a recording that goes on
all day must not keep a bounded job from ending."""
RELAXED = 4
"""A folder of a million files takes seconds to walk; it is then walked a fifth of the time."""

Reader = Callable[[SourceFile, Stamp, Reading], Iterator[Handed]]


@dataclass(slots=True)
class FileSource:
    """Files in the order of their names; with `follow`, for ever.

    What a reader cannot read is left out with its reason and tried again when it has changed.
    """

    files: Walk | tuple[SourceFile, ...]
    reading: Reading
    stop: threading.Event
    settling: Settling
    _refused: dict[str, Stamp] = field(default_factory=dict)

    def pictures(self) -> Iterator[Handed]:
        late: list[SourceFile] = []
        yield from self._pass(self.files, late)
        patience = time.monotonic() + PATIENCE * self.reading.options.settle
        while late and time.monotonic() < patience and not self.stop.wait(LATE_SECONDS):
            yield Idle()
            waiting, late = late, []
            yield from self._pass(waiting, late)
        if not self.reading.options.follow and not self.stop.is_set():
            for file in late:
                yield LeftOut(file.path, "somebody is still writing it; run this again later")
        pause = self.reading.options.poll
        while self.reading.options.follow and not self.stop.wait(pause):
            began = time.monotonic()
            yield Idle()
            for handed in self._pass(self.files, []):
                # What was there at the last look is not new.
                if not isinstance(handed, Known):
                    yield handed
            pause = max(self.reading.options.poll, RELAXED * (time.monotonic() - began))

    def count(self) -> int | None:
        """How many images there are, if that can be told without opening anything."""
        if isinstance(self.files, Walk):
            return self.files.count()
        return len(self.files) if all(file.kind is FileKind.IMAGE for file in self.files) else None

    def _pass(self, files: Iterable[SourceFile], late: list[SourceFile]) -> Iterator[Handed]:
        """Hand over what is finished; what is not goes to ``late``."""
        for file in files:
            if self.stop.is_set():
                return
            try:
                if file.kind is FileKind.IMAGE:
                    yield from self._image(file, late)
                else:
                    yield from self._container(file, late)
            except FileNotFoundError:
                continue  # Moved away since it was listed.
            except Unreadable as error:
                yield LeftOut(file.path, str(error).removeprefix(f"{file.path}: "))
            except OSError as error:
                yield LeftOut(file.path, error.strerror or type(error).__name__)

    def _image(self, file: SourceFile, late: list[SourceFile]) -> Iterator[Handed]:
        stamp = Stamp.of(os.stat(file.path))
        if self._is_done(file, stamp, item_of(file, stamp)):
            yield Known()
            return
        contents = read_whole(file)
        is_finished = contents.is_steady and (
            self.settling.is_still(file.path, contents.stamp) or is_whole(contents.data)
        )
        if not is_finished:
            late.append(file)
            return
        self.settling.forget(file.path)
        for handed in hand_over(file, contents, self.reading):
            if isinstance(handed, LeftOut):
                self._refused[file.path] = contents.stamp
            yield handed

    def _container(self, file: SourceFile, late: list[SourceFile]) -> Iterator[Handed]:
        stamp = Stamp.of(os.stat(file.path))
        if not self.settling.is_still(file.path, stamp):
            late.append(file)
            return
        reader, settings = _reader(file, self.reading)
        done = whole_file(file, stamp, self.reading.options, settings)
        if self._is_done(file, stamp, done):
            yield Known()
            return
        # Until it is read to its end without a complaint.
        self._refused[file.path] = stamp
        yield from reader(file, stamp, self.reading)
        del self._refused[file.path]

    def _is_done(self, file: SourceFile, stamp: Stamp, item: Item) -> bool:
        return self._refused.get(file.path) == stamp or self.reading.is_known(item)


def _reader(file: SourceFile, reading: Reading) -> tuple[Reader, str]:
    """Who reads a file, and the settings on which its result depends.

    Readers of scenes and videos are imported when one comes: most feeds have neither.
    """
    if file.kind is FileKind.VIDEO:
        from monitor.ingest.video import read_video

        return read_video, reading.options.video.key()
    if file.kind is FileKind.STAC:
        from monitor.ingest.stac import read_item, settings_of

        return read_item, settings_of(reading.options)
    if file.kind is FileKind.TIFF:
        from monitor.ingest.satellite_scenes import is_scene, read_scene

        kind = is_scene(file)
        if kind is None:
            return _broken_tiff, ""
        if kind:
            return read_scene, reading.options.scenes.key()
        return _plain_tiff, ""
    return (read_table if file.kind is FileKind.TABLE else read_archive), ""


def _plain_tiff(file: SourceFile, stamp: Stamp, reading: Reading) -> Iterator[Handed]:
    yield from hand_over(file, read_whole(file), reading)
    yield Finished(whole_file(file, stamp, reading.options))


def _broken_tiff(file: SourceFile, stamp: Stamp, reading: Reading) -> Iterator[Handed]:
    raise Unreadable(f"{file.path}: a TIFF that cannot be opened; copy it again")
    yield
