"""What a command says: the result on stdout, everything else on stderr.

On a terminal, progress is one line that is written over; in a log it is a plain line now and
then, so that a night's job leaves a readable trace.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TextIO

import click

from monitor.jobs.progress import JobProgress

# Faster than this a terminal only flickers.
TERMINAL_SECONDS = 0.1
# A log of an hour's job keeps to a few hundred lines.
LOG_SECONDS = 10.0
CLEAR_LINE = "\r\x1b[K"


class Output:
    """The two streams of one command.

    ``output.progress`` is the listener that jobs take.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.as_json = as_json
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._clock = clock
        self._terminal = self._stream.isatty()
        self._stage: str | None = None
        self._stage_began = 0.0
        self._first_done = 0
        self._next_line = 0.0
        self._stage_ended = False
        self._line_open = False
        self._live = ""
        self._lock = threading.RLock()

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close_line()

    def result(self, data: Any, text: str) -> None:
        """The result: ``data`` for programs, ``text`` for people."""
        self._close_line()
        click.echo(json.dumps(data, indent=2, ensure_ascii=False) if self.as_json else text)

    def note(self, text: str) -> None:
        """Something worth knowing that is not the result."""
        if self._quiet:
            return
        with self._lock:
            if self._live:
                # Above the live line, which stays the last one.
                self._stream.write(f"{CLEAR_LINE}{text}\n{self._live}")
                self._stream.flush()
                return
            self._close_line()
            click.echo(text, file=self._stream)

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal on which a line can be written over."""
        return self._terminal and not self._quiet

    def live(self, text: str) -> None:
        """The last line of a terminal, written over until it is given an empty text."""
        if not self.is_live:
            return
        with self._lock:
            before, self._live = self._live, text[: max(self._width() - 1, 1)]
            if before or self._live:
                self._stream.write(CLEAR_LINE + self._live)
                self._stream.flush()

    def _width(self) -> int:
        # Asked each time: a window can be made larger while it is looked at.
        return shutil.get_terminal_size().columns

    def progress(self, progress: JobProgress) -> None:
        """Show how far a job is, unless that was just shown."""
        if self._quiet:
            return
        now = self._clock()
        if progress.stage != self._stage:
            self._close_line()
            self._stage, self._stage_began, self._next_line = progress.stage, now, now
            self._first_done, self._stage_ended = progress.done, False
        finished = progress.total is not None and progress.done >= progress.total
        if (now < self._next_line and not finished) or self._stage_ended:
            return
        self._stage_ended = finished
        self._next_line = now + (TERMINAL_SECONDS if self._terminal else LOG_SECONDS)
        text = describe(progress, progress.done - self._first_done, now - self._stage_began)
        if self._terminal:
            self._stream.write(CLEAR_LINE + text)
            self._stream.flush()
            self._line_open = True
        else:
            click.echo(text, file=self._stream)

    def _close_line(self) -> None:
        if self._line_open:
            self._stream.write("\n")
            self._stream.flush()
            self._line_open = False


def describe(progress: JobProgress, done_here: int, seconds: float) -> str:
    """One line: the stage, how much, how fast, how long still.

    ``done_here`` is what this run did itself: work of an earlier run says nothing about speed.

    >>> describe(JobProgress("embed", 300, 900, "images"), 300, 10.0)
    'embed: 300 of 900 images (33%), 30.0 images/s, 20 s left'
    """
    amount = f"{progress.done:,}"
    if progress.total is not None:
        amount += f" of {progress.total:,}"
    text = f"{progress.stage}: {amount} {progress.unit}"
    if progress.share is not None:
        text += f" ({progress.share:.0%})"
    if done_here > 0 and seconds > 0:
        rate = done_here / seconds
        text += f", {rate:,.1f} {progress.unit}/s"
        if progress.total is not None and progress.done < progress.total:
            text += f", {duration((progress.total - progress.done) / rate)} left"
    return text


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(90), duration(7300)
    ('42 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: the first to the left, figures to the right.

    >>> print(table(["class", "images"], [["water", "120"], ["forest", "80"]]))
    class   images
    water      120
    forest      80
    """
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def for_each(texts: Mapping[str, str]) -> str:
    """What there is to say of each group, under its name; of the one monitor, without any."""
    if list(texts) == [""]:
        return texts[""]
    return "\n\n".join(f"== {name} ==\n{text}" for name, text in texts.items())


def data_for_each(found: Mapping[str, Any]) -> Any:
    """The same for programs."""
    return found[""] if list(found) == [""] else {"groups": dict(found)}
