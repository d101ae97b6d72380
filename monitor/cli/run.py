"""``conclad run``, and what it says meanwhile: a live line, a sentence for each event, or JSON."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, data_for_each, for_each, table
from monitor.config import Config
from monitor.config.load import Loaded
from monitor.errors import ConcladError, is_outage
from monitor.jobs.from_config import (
    check_detector,
    check_feed,
    check_state_is_writable,
    open_existing_store,
)
from monitor.plain_text import MESSAGE_LONGEST, span, visible
from monitor.store import Store
from monitor.store.verdict_columns import KNOWN, NOVEL

#: Sources on the line, those with the largest share of novel images; 'conclad status' has all.
SOURCES_SHOWN = 3
#: Fewer images than this say little about a source.
SHARE_OF_LEAST = 20


@dataclass(frozen=True, slots=True)
class RunGlance:
    """One moment of a run."""

    at: datetime
    judged: int
    novel: Mapping[str, tuple[int, int]]
    """By source: novel images, and images with a verdict."""
    pool: int
    """Images in the pool that is filling."""
    pool_opened_at: datetime | None
    questions: int

    def to_dict(self) -> dict[str, Any]:
        opened = self.pool_opened_at.isoformat() if self.pool_opened_at else None
        return {**asdict(self), "at": self.at.isoformat(), "pool_opened_at": opened}


def glance(store: Store) -> RunGlance:
    with store.reading() as tx:
        judged: dict[str, list[int]] = {}
        for count in tx.counters.all("images"):
            if count.label in (KNOWN, NOVEL):
                both = judged.setdefault(count.source, [0, 0])
                both[0] += int(count.value) if count.label == NOVEL else 0
                both[1] += int(count.value)
        pool = tx.pools.filling()
        return RunGlance(
            at=tx.now,
            judged=sum(whole for _, whole in judged.values()),
            novel={source: (novel, whole) for source, (novel, whole) in judged.items()},
            pool=pool.size if pool else 0,
            pool_opened_at=pool.opened_at if pool else None,
            questions=tx.counts.open_questions(),
        )


def line(now: RunGlance, before: RunGlance, config: Config, desk: str) -> str:
    """The moment in words; the speed is that since ``before``.

    >>> from datetime import UTC, timedelta
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> then = RunGlance(noon, 100, {"cam": (1, 100)}, 100, noon, 0)
    >>> now = RunGlance(noon + timedelta(seconds=10), 500, {"cam": (20, 500)}, 500, noon, 3)
    >>> line(now, then, Config(), "http://127.0.0.1:8484")
    '500 images, 40.0/s; novel: cam 4.0%; pool 500 of 2,000, full in 38 s; 3 questions open: \
http://127.0.0.1:8484'
    """
    seconds = (now.at - before.at).total_seconds()
    speed = (now.judged - before.judged) / seconds if seconds > 0 else 0.0
    parts = [f"{now.judged:,} images, {speed:,.1f}/s"]
    shares = {
        source: novel / whole
        for source, (novel, whole) in now.novel.items()
        if whole >= SHARE_OF_LEAST
    }
    if shares:
        most = sorted(shares.items(), key=lambda item: -item[1])[:SOURCES_SHOWN]
        more = f" and {len(shares) - len(most)} more" if len(shares) > len(most) else ""
        parts.append("novel: " + ", ".join(f"{s or '-'} {v:.1%}" for s, v in most) + more)
    parts.append(f"pool {now.pool:,} of {config.pools.size:,}{_when(now, speed, config)}")
    parts.append(f"{now.questions} questions open" + (f": {desk}" if now.questions else ""))
    return "; ".join(parts)


def _when(now: RunGlance, speed: float, config: Config) -> str:
    """When the pool will be inspected: full, or old enough."""
    if now.pool_opened_at is None:
        return ""
    pools = config.pools
    by_age = pools.age_hours * 3600 - (now.at - now.pool_opened_at).total_seconds()
    if speed > 0 and (pools.size - now.pool) / speed < by_age:
        return f", full in {span(max(pools.size - now.pool, 0) / speed)}"
    if now.pool < pools.least:
        return f", inspected from {pools.least:,} on"
    return f", closed in {span(max(by_age, 0.0))} at the latest"


def next_steps(now: RunGlance, config: Config, *, held: int, quarantined: int) -> list[str]:
    """What a person can do now that the run has ended, the most useful first."""
    steps = []
    if now.questions:
        steps.append(f"{now.questions} questions wait: conclad desk shows them ({config.desk_url})")
    if held:
        steps.append(f"{held} detector versions are held: conclad detector list")
    if quarantined:
        steps.append("see what was quarantined: conclad quarantine list")
    if not now.judged:
        steps.append(
            f"no image was judged; bring some: conclad ingest IMAGES --to {config.feed.path}"
        )
    elif now.pool and not steps:
        least = f"from {config.pools.least:,} images on (pools.least)"
        steps.append(
            f"the last pool holds {now.pool:,} of {config.pools.size:,} images and is "
            f"inspected when it is full, or with age {least}; run again when there are more"
        )
    if any(novel for novel, _ in now.novel.values()):
        steps.append("see what looked new: conclad verdicts --verdict novel, or the desk")
    return steps or ["nothing waits for you; conclad status shows the rest"]


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
        text = visible(text, MESSAGE_LONGEST)
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
                except ConcladError:
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
        help="How events are reported on stderr: sentences, or one JSON object a line.",
    )(command)


@click.command()
@click.option("--once", is_flag=True, help="Work through what is there, then stop.")
@click.option(
    "--oracle-column",
    metavar="NAME",
    help="A column of the feed that answers in place of people, for evaluations.",
)
@click.option(
    "--address",
    metavar="local|auto|none|HOST:PORT",
    help="The Ray to use: start one here, join a cluster, or do without.",
)
@log_option
@with_config
@with_output
def run(
    once: bool,
    oracle_column: str | None,
    address: str | None,
    log_format: str,
    loaded: Loaded,
    output: Output,
) -> None:
    """Watch the feed: judge what comes, ask about what is new, learn it, go on.

    Runs until it is stopped (SIGTERM, Ctrl-C), finishes what is in flight, and goes on from
    there the next time. Whatever dies meanwhile, every image gets exactly one verdict. Where the
    configuration has groups of sources, each gets a monitor of its own, side by side; --group
    runs one of them.
    """
    configs = {
        name: _changed(config, oracle_column, address) for name, config in loaded.each().items()
    }
    for config in configs.values():
        _check(config, may_wait=not once)
    log = RunLog(output, as_json=log_format == "json")
    summaries = _watch(configs, log, once=once, in_groups=bool(loaded.groups))
    if not summaries:
        return  # stopped while the store was away, which has been said
    output.result(
        data_for_each(summaries),
        for_each({name: describe(summary, configs[name]) for name, summary in summaries.items()}),
    )


def _watch(
    configs: Mapping[str, Config], log: RunLog, *, once: bool, in_groups: bool
) -> dict[str, dict[str, Any]]:
    """Run the monitor, or one for each group; what their states hold at the end."""
    # Late: what the monitor needs takes seconds to load, and a mistake should not wait for it.
    from actors.group_processes import run_groups
    from actors.run_monitor import StoppedInOutage, services
    from actors.run_monitor import run as run_monitor

    if in_groups:
        found = run_groups(
            configs,
            once=once,
            listener=lambda group, told: log.tell(told.kind, f"{group}: {told.text}", group=group),
        )
        return {name: summary.to_dict() for name, summary in found.items()}
    # With --once nobody stays to see new questions: 'conclad desk' shows them at any time.
    beside = partial(services, with_desk=not once)
    watch = partial(run_monitor, once=once, services=beside)
    try:
        with log.watching(configs[""], desk=not once):
            summary = watch(configs[""], listener=lambda told: log.tell(told.kind, told.text))
    except StoppedInOutage as stopped:
        log.tell("monitor.stopped", f"{stopped}; the next run goes on from there")
        return {}
    return {"": summary.to_dict()}


def _check(config: Config, *, may_wait: bool) -> None:
    """Raise what a person can correct, before anything is loaded.

    What is only away, such as a database that starts together with the monitor, is waited for.
    """
    for check in (check_feed, check_detector, check_state_is_writable):
        try:
            check(config)
        except ConcladError as error:
            if not (may_wait and is_outage(error)):
                raise


def _changed(config: Config, oracle_column: str | None, address: str | None) -> Config:
    """As the flags say, which are short for keys that are often set for one run."""
    if oracle_column is not None:
        labels = config.labels.model_copy(update={"oracle_column": oracle_column})
        config = config.model_copy(update={"labels": labels})
    if address is not None:
        run = config.run.model_copy(update={"address": address})
        config = config.model_copy(update={"run": run})
    return config


def describe(found: dict[str, object], config: Config) -> str:
    images, pools = found["images"], found["pools"]
    assert isinstance(images, dict)
    assert isinstance(pools, dict)
    lines = [
        table(
            ("images", ""),
            [(str(outcome), f"{number:,}") for outcome, number in sorted(images.items())],
        ),
        "",
        f"Pools: {', '.join(f'{n} {state}' for state, n in sorted(pools.items())) or 'none yet'}.",
        f"Questions asked: {found['labels']}; still open: {found['open_questions']}.",
        f"Detector version {found['version']}.",
    ]
    discovered = found["discovered"]
    assert isinstance(discovered, tuple | list)
    if discovered:
        lines.append(f"Discovered: {', '.join(discovered)}.")
    quarantined = found["quarantined"]
    assert isinstance(quarantined, dict)
    if any(quarantined.values()):
        lines.append(
            f"Quarantined: {quarantined['files']:,} files, {quarantined['images']:,} images in "
            f"{quarantined['batches']:,} batches; see conclad quarantine list."
        )
    if found["unaccounted"]:
        lines.append(f"{found['unaccounted']:,} images are unaccounted for: conclad store check.")
    with open_existing_store(config) as store:
        steps = next_steps(
            glance(store),
            config,
            held=int(pools.get("held", 0)),
            quarantined=sum(quarantined.values()),
        )
    return "\n".join([*lines, "", *(f"Next: {step}." for step in steps)])
