"""What runs beside the monitor: the page of metrics, the webhooks, and the desk.

The feed is worth more than any of them. One that cannot start (a port is taken, say) is reported
and left out, and the monitor goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from actors.periodic_tasks import Observer
from monitor.config import Config
from monitor.errors import ConcladError
from monitor.store import Store

Say = Callable[[str], None]


@contextmanager
def services(
    store: Store, config: Config, say: Say, *, with_desk: bool = True
) -> Iterator[Observer | None]:
    """Start what the configuration asks for; yields who wants to know how long things take."""
    from monitor.telemetry.exporter import Exporter
    from monitor.telemetry.message_sender import MessageSender
    from monitor.telemetry.webhooks import WebhookSender

    observer: Observer | None = None
    with ExitStack() as stack:
        try:
            metrics = config.metrics.model_copy(update={"desk_url": config.desk_url})
            exporter = stack.enter_context(Exporter(store, metrics, group=config.group))
            observer = exporter
            if exporter.url:
                say(f"metrics: {exporter.url}")
        except ConcladError as error:
            say(f"without metrics: {error}")
        try:
            stack.enter_context(WebhookSender(store, config.webhooks))
        except ConcladError as error:
            say(f"without webhooks: {error}")
        try:
            stack.enter_context(MessageSender(store, config.messages, config.desk_url))
        except ConcladError as error:
            say(f"without messages: {error}")
        if with_desk and config.desk.enabled:
            _open_desk(stack, config, say)
        yield observer


def _open_desk(stack: ExitStack, config: Config, say: Say) -> None:
    from monitor.desk.server import start

    try:
        desk = start(config)
    except ConcladError as error:
        say(f"without a desk: {error}")
        return
    stack.callback(desk.stop)
    say(f"desk: {desk.url}")
