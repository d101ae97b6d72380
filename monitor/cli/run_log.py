"""What ``conclad run`` says while it runs: a live line, a sentence for each event, or JSON."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from monitor.cli.output import Output
from monitor.config import Config
from monitor.errors import is_outage
from monitor.jobs.from_config import open_existing_store
from monitor.telemetry.run_glance import RunGlance, glance, line

#: A look costs a few milliseconds of the store's time.
LOOK_SECONDS = 1.0
#: The speed is that of the last so many looks.
LOOKS_KEPT = 30
#: In a log a line of this kind now and then is enough: events have their own.
LOG_EVERY = 60


class RunLog:
    """Tells what happens, in sentences or as JSON lines."""

    def __init__(self, output: Output, *, as_json: bool) -> None:
        self._output, self._as_json = output, as_json

    def tell(self, kind: str, text: str, **more: object) -> None:
        if not self._as_json:
            self._output.note(text)
            return
        at = datetime.now(UTC).isoformat()
        said = {"at": at, "kind": kind, "text": text, **more}
        self._output.note(json.dumps(said, ensure_ascii=False))

    @contextlib.contextmanager
    def watching(self, config: Config, *, desk: bool) -> Iterator[None]:
        """Show where the run is until the block ends."""
        stop = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(config, desk, stop), name="run-log", daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
            self._output.live("")

    def _watch(self, config: Config, desk: bool, stop: threading.Event) -> None:
        shown = config.desk_url if desk and config.desk.enabled else "conclad desk"
        seen: deque[RunGlance] = deque(maxlen=LOOKS_KEPT)
        looks = 0
        with contextlib.ExitStack() as stack:
            store = None
            while not stop.wait(LOOK_SECONDS):
                try:
                    store = store or stack.enter_context(open_existing_store(config))
                    seen.append(glance(store))
                except Exception as error:
                    if not is_outage(error):
                        raise
                    continue  # the monitor itself says so
                looks += 1
                text = line(seen[-1], seen[0], config, shown)
                if self._output.is_live and not self._as_json:
                    self._output.live(text)
                elif looks % LOG_EVERY == 0 and seen[-1].judged != seen[0].judged:
                    self.tell("progress", text, **seen[-1].to_dict())


def log_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option(
        "--log",
        "log_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="How events are told on stderr: sentences, or one JSON object a line.",
    )(command)
