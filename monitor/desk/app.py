"""The application around one store."""

from __future__ import annotations

from monitor.config import Config
from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.errors import CannotStart
from monitor.desk.request_guard import LOOPBACK, Guard
from monitor.desk.roles_and_tokens import VARIABLE, holders
from monitor.desk.route_table import RULES
from monitor.store.store import Store


def build(store: Store, config: DeskConfig, settings: Config | None = None) -> Guard:
    """Refuses to exist where strangers could walk in.

    ``settings`` is the whole configuration: where the feed lies, and how large a pool is.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     desk = build(store, DeskConfig())
    ...     build(store, DeskConfig(host="0.0.0.0"))
    Traceback (most recent call last):
    monitor.desk.errors.CannotStart: 0.0.0.0: ...
    """
    with store.reading() as tx:
        is_guarded = bool(holders(tx))
    if config.host not in LOOPBACK and not (is_guarded or config.knows_people):
        raise CannotStart(
            f"{config.host}: others could reach the desk and nobody has a token; make one with "
            f"'conclad tokens add NAME --role admin', set {VARIABLE}, desk.proxy or desk.oidc, or "
            "listen on 127.0.0.1"
        )
    return Guard(store, config, RULES, settings=settings)
