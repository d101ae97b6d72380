"""Bring images from where they are into a feed: the whole job.

Readers hand over images one by one; the journal says which are new; the writer collects them into
files of the feed. Whatever kills the process, the next run with the same arguments goes on.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from monitor.backbones.malloc import keep_freed_memory
from monitor.ingest.address_kinds import Source, recognise
from monitor.ingest.batches import BatchWriter, Published, Stopped, recover
from monitor.ingest.cameras import LiveSource
from monitor.ingest.errors import FeedRefused, OptionRefused, SourceRefused
from monitor.ingest.folders import FileSource
from monitor.ingest.frame_spool import Spool
from monitor.ingest.image_names import Reading
from monitor.ingest.ingest_journal import Journal
from monitor.ingest.ingest_options import Options
from monitor.ingest.ingest_tally import Tally
from monitor.ingest.parallel_sources import one_after_the_other, side_by_side
from monitor.ingest.reader_items import Finished, Handed, Idle, Known, LeftOut, Picture, Repeated
from monitor.ingest.source_files import Walk
from monitor.ingest.wait_for_space import Space
from monitor.jobs.progress import JobProgress, Report, silent
from monitor.plain_text import name_problem

WORK = "_ingest"
"""Below the feed; its readers pass over names that begin with `_`."""
NOTES_AT_ONCE = 10_000
"""Files that gave nothing new, remembered together: a few megabytes of memory."""


def ingest(
    sources: Sequence[str],
    feed: Path,
    options: Options | None = None,
    *,
    note: Callable[[str], None] = lambda text: None,
    progress: Report = silent,
    stop: threading.Event | None = None,
    metrics: str | None = None,
    step: Callable[[str], None] = lambda name: None,
) -> Tally:
    """Bring every image of the sources into the feed once; returns what was done.

    ``note`` is told what a person should know, ``stop`` ends the run early and cleanly, and
    ``step`` is called between the steps by which a batch is published.
    """
    # Every row group asks for the same megabytes again; given back and cleared by the kernel each
    # time, 5,000 images of 100 KB cost 118,000 page faults instead of some thousand.
    keep_freed_memory()
    options, stop, tally = options or Options(), stop or threading.Event(), Tally()
    began = time.monotonic()
    # Mistakes are told before anything is written.
    recognise(sources, feed, Reading(options, lambda item: False), stop, note)
    with _working_folder(feed, options.name) as work, Journal(work / "journal.sqlite") as journal:
        reading = Reading(options, journal.is_known)
        found = recognise(sources, feed, reading, stop, note)
        recover(feed, work, journal)
        if metrics is not None:
            from monitor.ingest.ingest_metrics import serve

            serve(metrics, tally, [one.state for one in found if isinstance(one, LiveSource)])
        run = _Run(feed, work, journal, options, tally, note, stop, step)
        total = None if options.follow else _total(found)
        # The only file there is: what is wrong with it is the error at the end, said once.
        run.is_quiet = total == 1 or bool(len(sources) == 1 and Path(sources[0]).is_file())
        try:
            for source, handed in _stream(found, run.spool, options, stop):
                run.take(source, handed)
                if not isinstance(handed, Idle):
                    progress(JobProgress("ingest", tally.seen, total, "images"))
            run.end()
        except Stopped:
            pass
        finally:
            run.close()
        tally.was_stopped = stop.is_set()
        tally.seconds = time.monotonic() - began
        _account_for(found, tally)
    _check_for_nothing(sources, tally, options)
    return tally


class _Run:
    """The part of the job that writes."""

    def __init__(
        self,
        feed: Path,
        work: Path,
        journal: Journal,
        options: Options,
        tally: Tally,
        note: Callable[[str], None],
        stop: threading.Event,
        step: Callable[[str], None],
    ) -> None:
        self._journal, self._tally, self._note = journal, tally, note
        self.is_quiet = False
        self.spool = Spool(work / "spool")
        self._space = Space(
            feed, options.min_free, note, sleep=lambda seconds: not stop.wait(seconds)
        )
        self._writer = BatchWriter(
            feed,
            work,
            journal,
            limits=options.limits,
            name=options.name,
            wait_for_room=self._wait_for_room,
            published=self._published,
            clock=time.monotonic,
            step=step,
        )

    def take(self, source: Source | None, handed: Handed) -> None:
        match handed:
            case Picture():
                self._picture(handed, is_live=isinstance(source, LiveSource))
            case Finished(item):
                self._journal.note(item)
            case LeftOut():
                if self._tally.leave_out(handed) and not self.is_quiet:
                    self._note(f"left out: {handed}")
            case Known():
                self._tally.known += 1
            case Repeated():
                self._tally.repeated += 1
        if self._writer.is_due():
            self._writer.publish()
        elif self._writer.is_empty and self._journal.pending >= NOTES_AT_ONCE:
            self._journal.keep_notes()

    def end(self) -> None:
        self._writer.publish()
        self._journal.keep_notes()
        self._writer.finish()
        self.spool.clear()

    def close(self) -> None:
        self._writer.close()
        self.spool.close()

    def _picture(self, picture: Picture, *, is_live: bool) -> None:
        if (problem := _name_problem(picture)) is not None:
            self.take(None, LeftOut(picture.image_id, problem))
            return
        if is_live:
            self.spool.append(picture)
        image_id = self._journal.admit(picture)
        if image_id is None:
            self._tally.known += 1
            return
        self._tally.images += 1
        self._tally.bytes += len(picture.image)
        self._tally.by_source[picture.source_id] += 1
        self._writer.add(image_id, picture)

    def _wait_for_room(self, wanted: int) -> bool:
        self._tally.waits_for_space = True
        has_room = self._space.wait_for(wanted)
        self._tally.waits_for_space = False
        return has_room

    def _published(self, published: Published) -> None:
        self._tally.files += 1
        self.spool.clear()


def _name_problem(picture: Picture) -> str | None:
    """Why the feed would reject the image's names; None if it takes them."""
    named = (
        ("image_id", picture.image_id),
        ("source_id", picture.source_id),
        ("label", picture.label or ""),
    )
    found = ((what, name_problem(name)) for what, name in named)
    return next((f"its {what} {problem}" for what, problem in found if problem), None)


def _stream(
    found: Sequence[Source], spool: Spool, options: Options, stop: threading.Event
) -> Iterator[tuple[Source | None, Handed]]:
    """What a killed run left of its cameras, then everything else."""
    for picture in spool.left():
        yield None, picture
    has_camera = any(isinstance(source, LiveSource) for source in found)
    together = side_by_side if options.follow or has_camera else one_after_the_other
    yield from together(found, stop)


@contextmanager
def _working_folder(feed: Path, name: str) -> Iterator[Path]:
    """The folder of the journal, held by this process alone."""
    if not name or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise OptionRefused(f"--name {name!r}: letters, digits, '-', '_' and '.' only")
    if "://" in str(feed) or ":/" in str(feed):
        raise FeedRefused(
            f"{feed}: ingest writes to a folder; name one, and mount or sync a bucket"
        )
    if feed.exists() and not feed.is_dir():
        raise FeedRefused(f"{feed}: is a file, where --to names the folder of a feed")
    work = feed / WORK / name
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = (work / "lock").open("a+")
    except OSError as error:
        raise FeedRefused(
            f"{feed}: cannot be written ({error.strerror}); give this user the right to, or name "
            "another folder with --to"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise FeedRefused(
                f"{feed}: another ingest writes here (process {lock.read().strip() or 'unknown'}); "
                "stop it, name all sources in one command, or give this one its own --name"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield work


def _total(found: Sequence[Source]) -> int | None:
    counts = [source.count() if isinstance(source, FileSource) else None for source in found]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _account_for(found: Sequence[Source], tally: Tally) -> None:
    for source in found:
        if isinstance(source, FileSource) and isinstance(source.files, Walk):
            tally.ignored.update(source.files.ignored)
            for what in source.files.unreadable:
                tally.leave_out(LeftOut(*what.split(": ", 1)))


def _check_for_nothing(sources: Sequence[str], tally: Tally, options: Options) -> None:
    """A bounded run that found nothing at all was given the wrong folder."""
    if tally.images or tally.known or tally.repeated or options.follow or tally.was_stopped:
        return
    if tally.examples:
        first = tally.examples[0]
        more = sum(tally.left_out.values()) - 1
        raise SourceRefused(f"{first}" + (f" (and {more:,} more left out)" if more else ""))
    there = ", ".join(f"{count:,} {suffix}" for suffix, count in tally.ignored.most_common(5))
    raise SourceRefused(
        f"{' '.join(sources)}: no images in there (found: {there or 'nothing'}); check the path"
    )
