"""The group of commands, and what happens when one of them fails.

Commands are named here and imported when they are used: ``conclad --help`` must not wait for
torch. Whatever a person can correct ends in one sentence and exit code 2; a bug keeps its
traceback and exit code 1.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import click

from monitor import __version__
from monitor.errors import ConcladError

CORRECTABLE = 2
INTERRUPTED = 130  # 128 + SIGINT, as every shell expects
BROKEN_PIPE = 1  # as click itself says it when a write fails earlier

# What a person can correct about a place; other errors of the system are bugs.
_REMEDY: Mapping[int, str] = {
    errno.EACCES: "give this user the right to it, or name another place",
    errno.EPERM: "give this user the right to it, or name another place",
    errno.EROFS: "make the disk writable, or name another place",
    errno.ENOSPC: "make room on the disk, or name another place",
    errno.EDQUOT: "make room on the disk, or name another place",
    errno.ENOTDIR: "name a place below a folder",
    errno.EISDIR: "name a file",
}

# Where each command lives, and its line in the list of commands.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("monitor.cli.init:init", "Write a commented configuration."),
    "config": ("monitor.cli.config:config", "Show the configuration and where it comes from."),
    "ingest": (
        "monitor.cli.ingest:ingest",
        "Bring images, archives, video, cameras or scenes into the feed.",
    ),
    "fit": ("monitor.cli.fit:fit", "Learn the known classes from labelled images."),
    "run": (
        "monitor.cli.run:run",
        "Watch the feed: judge what comes, ask about what is new, learn it, go on.",
    ),
    "score": ("monitor.cli.score:score", "Judge the images of some Parquet files."),
    "embed": ("monitor.cli.embed:embed", "Write the features of images to Parquet."),
    "backbone": (
        "monitor.cli.backbone:backbone",
        "List backbones, and bring the weights of one here.",
    ),
    "evaluate": ("monitor.cli.evaluate:evaluate", "Compare novelty detectors on labelled data."),
    "status": (
        "monitor.cli.status:status",
        "Show what the monitor knows, what is new, and what waits for you.",
    ),
    "desk": ("monitor.cli.desk:desk", "Serve the page where people answer."),
    "tokens": ("monitor.cli.tokens:tokens", "Say who may come to the desk."),
    "questions": ("monitor.cli.questions:questions", "List the questions that wait for an answer."),
    "label": (
        "monitor.cli.label:label",
        "Answer a question: CLASS is the name or id of a class, or a new name.",
    ),
    "verdicts": (
        "monitor.cli.verdicts:verdicts",
        "Write verdicts, immediate and settled, as one table.",
    ),
    "discoveries": (
        "monitor.cli.verdicts:discoveries",
        "Write the images that new classes were learnt from, as one table.",
    ),
    "classes": ("monitor.cli.classes:classes", "List the classes, and correct them."),
    "detector": (
        "monitor.cli.detector:detector",
        "List detector versions, compare them, and go back.",
    ),
    "drift": (
        "monitor.cli.drift:drift",
        "Show for each source whether its known classes look different from usual.",
    ),
    "doctor": (
        "monitor.cli.doctor:doctor",
        "Look whether this machine or cluster can run the monitor.",
    ),
    "quarantine": (
        "monitor.cli.quarantine:quarantine",
        "Show what was quarantined without a verdict; try it again, or give it up.",
    ),
    "purge": ("monitor.cli.purge:purge", "Remove what is kept of a source's images."),
    "demo": (
        "monitor.cli.demo:demo",
        "Watch a feed in which new classes appear, from the first image to the last figure.",
    ),
    "store": ("monitor.cli.store:store", "Look after the state folder."),
}


class LazyGroup(click.Group):
    """Knows the names and first lines of its commands without importing any of them."""

    def __init__(self, commands: Mapping[str, tuple[str, str]], **attributes: object) -> None:
        super().__init__(**attributes)  # type: ignore[arg-type]
        self._lazy = commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, _, name = self._lazy[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self._lazy.items()])


@click.command(
    cls=LazyGroup, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="conclad")
def cli() -> None:
    """Notice when a feed of images begins to show something it has never seen.

    Begin with 'conclad init', then fit a detector on labelled images and score others. Every
    command explains itself with --help.
    """


def main() -> None:
    """The entry point of the ``conclad`` command."""
    monitors = "run" in sys.argv[1:]
    if monitors:
        # Until the monitor has its own handlers, which takes the seconds in which torch and Ray are
        # loaded, there is nothing to finish: asked to stop, it has stopped, and that is no failure.
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    code = run(sys.argv[1:])
    if monitors:
        # While Python takes itself down it gives every handler back: asked to stop in that moment,
        # a monitor that has already ended would die of the signal.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = cli.main(list(arguments), prog_name="conclad", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ConcladError as error:
        click.echo(f"conclad: {error}", err=True)
        return CORRECTABLE
    except BrokenPipeError:
        # The reader has gone ('conclad … | head'). Python would complain once more when it
        # flushes at exit, so what is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        remedy = _REMEDY.get(error.errno or 0)
        if remedy is None or error.filename is None:
            raise
        where = os.fsdecode(error.filename)
        click.echo(f"conclad: {where}: {error.strerror}; {remedy}", err=True)
        return CORRECTABLE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("conclad: interrupted", err=True)
        return INTERRUPTED
