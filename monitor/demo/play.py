"""The demo from its first image to its last figure.

The monitor is run as anybody would run it, by its commands in processes of their own; what is
shown meanwhile is read from its store, which is also how an operator would look.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from monitor.config import Config
from monitor.demo.demo_folder import DemoFolder
from monitor.demo.errors import RunFailed
from monitor.demo.image_source import DrawnImages, Pictures, collect
from monitor.demo.measure import DemoOutcome, measure
from monitor.demo.run_progress import Watcher, sentence
from monitor.demo.story import Story
from monitor.demo.story_files import Written, expected, write
from monitor.jobs.from_config import open_existing_store, open_store
from monitor.jobs.progress import JobProgress, Report, silent

LOOK_SECONDS = 0.3
"""How often the store is read: a reader never delays the monitor, but costs some CPU."""
STOP_SECONDS = 90.0
"""The monitor's own grace period, and time for Ray to leave."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What somebody asked the demo for."""

    folder: Path
    data: Path | None = None
    seed: int = 0
    interactive: bool = False
    keep: bool = False
    story: dict[str, int] | None = None
    """Other sizes than usual: days, per_day, training."""
    settings: tuple[str, ...] = ()
    """Settings of the monitor for this run, as KEY=VALUE."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it."""

    outcome: DemoOutcome
    story: Story
    written: Written
    config: Config
    folder: DemoFolder
    seconds: dict[str, float]


def play(
    options: DemoOptions,
    *,
    say: Say = lambda text: None,
    progress: Report = silent,
    at_the_end: Callable[[Played], None] = lambda played: None,
) -> Played:
    """Make the feed, fit, watch, measure, and draw the timeline.

    ``at_the_end`` is called while the desk is still there, if somebody answers on it.
    """
    folder, seconds = DemoFolder(options.folder), dict[str, float]()
    with _timed(seconds, "images"):
        of = {
            "data": options.data and str(options.data.resolve()),
            "seed": options.seed,
            **(options.story or {}),
        }
        there = folder.prepare(of, keep=options.keep)
        pictures = (
            DrawnImages(options.seed)
            if options.data is None
            else collect(options.data, options.seed)
        )
        story = Story.of(
            pictures.labels, **{"training": pictures.training, **(options.story or {})}
        )
        config = folder.configure(story, seed=options.seed).config
        written = expected(story, folder.path)
        if not there:
            _write_images(options, story, pictures, progress)
            folder.note_images(of)
    say(_plot(story, written))
    settings = [part for setting in options.settings for part in ("--set", setting)]
    with _timed(seconds, "fit"):
        if not (there and _has_detector(config)):
            command = ["fit", "--config", str(folder.config_file), "--data", str(folder.labelled)]
            say(f"\n$ conclad {' '.join(command)}")
            _call([*command, *settings], say)
    with _desk(options, folder, say):
        with _timed(seconds, "run"):
            _watch(options, folder, config, written, settings, say, progress)
        with _timed(seconds, "report"):
            outcome = _report(config, story, written, pictures, folder)
        played = Played(outcome, story, written, config, folder, seconds)
        folder.result.write_text(json.dumps(to_dict(played), indent=2) + "\n")
        at_the_end(played)
    return played


def _report(
    config: Config, story: Story, written: Written, pictures: Pictures, folder: DemoFolder
) -> DemoOutcome:
    with open_existing_store(config) as store:
        outcome = measure(store, story, written)
    # Late: the picture is drawn at the end, and matplotlib takes a second to load.
    from monitor.demo.run_picture import draw

    draw(outcome, story, pictures, folder.picture, title=_title(outcome, written))
    return outcome


def to_dict(played: Played) -> dict[str, Any]:
    """The figures for programs; times are those of the feed."""
    outcome = played.outcome
    return {
        "classes": [
            {
                "class": c.label,
                "arrived_at": c.arrived_at and c.arrived_at.isoformat(),
                "found_at": c.found_at and c.found_at.isoformat(),
                "version": c.version,
                "answers": c.answers,
                "recall_while_unknown": c.recall.value,
                "images_while_unknown": c.recall.whole,
                "settled_new_while_unknown": c.settled_new.value,
                "false_novel_while_known": c.false_novel.value,
                "images_while_known": c.false_novel.whole,
                "settled_new_or_undecided_while_known": c.settled_novel.value,
                "recognised": c.recognised.value,
            }
            for c in outcome.classes
        ],
        "discovered": list(outcome.discovered),
        "missed": list(outcome.missed),
        "images": len(outcome.judgements),
        "rejected": outcome.rejected,
        "labels": outcome.questions,
        "pools": outcome.pools,
        "detector_version": outcome.version,
        "precision": outcome.precision.value,
        "recall": outcome.recall.value,
        "settled_precision": outcome.settled_precision.value,
        "settled_recall": outcome.settled_recall.value,
        "dirty_lens_called_novel": outcome.dirty_novel.value,
        "dirty_lens_corrected_called_novel": outcome.dirty_corrected.value,
        "dirty_lens_settled_new_or_undecided": outcome.dirty_settled.value,
        "dirty_lens_questions": outcome.dirty_questions,
        "seconds": {stage: round(took, 1) for stage, took in played.seconds.items()},
        "folder": str(played.folder.path),
        "picture": str(played.folder.picture),
    }


def _write_images(options: DemoOptions, story: Story, pictures: Pictures, progress: Report) -> None:
    write(
        story,
        pictures,
        options.folder,
        seed=options.seed,
        processes=len(os.sched_getaffinity(0)),
        progress=lambda done, total: progress(JobProgress("make the feed", done, total, "images")),
    )


def _has_detector(config: Config) -> bool:
    """Whether an earlier demo came this far; what it went on to learn is not to be fitted over."""
    with open_store(config) as store, store.reading() as tx:
        return tx.versions.current() is not None


def _watch(
    options: DemoOptions,
    folder: DemoFolder,
    config: Config,
    written: Written,
    settings: Sequence[str],
    say: Say,
    progress: Report,
) -> None:
    """Run the monitor and tell what happens, until it ends or everything is settled."""
    command = ["run", "--config", str(folder.config_file)]
    if not options.interactive:
        command += ["--once", "--oracle-column", "label"]
    say(f"\n$ conclad {' '.join(command)}")
    # The demo serves the desk itself where somebody needs it.
    quiet = ["--set", "desk.enabled=false"]
    with (
        folder.log.open("w") as log,
        open_existing_store(config) as store,
        _started([*command, *settings, *quiet], log) as monitor,
    ):
        watcher = Watcher(store)
        watcher.new_events()
        while True:
            ended = monitor.poll() is not None
            for event in watcher.new_events():
                words = sentence(event)
                if words is not None:
                    say(words)
            glance = watcher.glance()
            progress(JobProgress("watch", glance.images, written.images, "images"))
            if ended or (options.interactive and glance.settled and glance.files >= written.files):
                break
            time.sleep(LOOK_SECONDS)
    if monitor.returncode:
        raise RunFailed(
            f"conclad run ended with code {monitor.returncode}: {_last_line(folder.log)}; the "
            f"whole of what it said is in {folder.log}"
        )


@contextmanager
def _desk(options: DemoOptions, folder: DemoFolder, say: Say) -> Iterator[None]:
    """The page where a person answers, if a person does."""
    if not options.interactive:
        yield
        return
    with _started(["desk", "--config", str(folder.config_file)], None, subprocess.PIPE) as desk:
        assert desk.stdout is not None
        said = desk.stdout.readline().strip()
        if not said:
            raise RunFailed("conclad desk did not start; the lines above say why")
        say(f"\n{said}\nAnswer the questions there as they come; the feed does not wait for you.")
        yield


@contextmanager
def _started(
    command: Sequence[str], log: IO[str] | None, stdout: int | IO[str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A command of ours as a child that is asked to end, and does, when we leave."""
    child = subprocess.Popen(
        [sys.executable, "-u", "-m", "monitor.cli", *command],
        stdout=log if stdout is None else stdout,
        stderr=log,
        text=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _call(command: Sequence[str], say: Say) -> None:
    """Run a command to its end, and pass on what it says meanwhile."""
    with subprocess.Popen(
        [sys.executable, "-m", "monitor.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        last = "it said nothing"
        for line in child.stderr:
            last = line.strip()
            say(last)
        # A few lines, written at the end: they fit into the pipe while we read the other.
        say(child.stdout.read().rstrip())
    if child.returncode:
        raise RunFailed(f"conclad {command[0]} ended with code {child.returncode}: {last}")


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _plot(story: Story, written: Written) -> str:
    arrivals = [f"{a.label} (day {a.day + 1}, {a.source})" for a in story.arrivals]
    lens = story.lens
    return "\n".join(
        [
            f"{written.training:,} labelled images of {', '.join(story.known)};",
            f"{written.images:,} images of {story.days} days in {written.files} files.",
            f"The detector does not know of {', '.join(arrivals)},",
            f"nor of the dirty lens at {lens.source} on days {lens.first_day + 1} to "
            f"{lens.last_day + 1}.",
        ]
    )


def _title(outcome: DemoOutcome, written: Written) -> str:
    return (
        f"{len(outcome.discovered)} of {len(outcome.discovered) + len(outcome.missed)} new classes "
        f"found in {written.images:,} images with {outcome.questions} questions"
    )


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[stage] = time.monotonic() - began
