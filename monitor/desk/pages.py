"""The pages that people see."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from monitor import __version__
from monitor.desk import sessions
from monitor.desk.activity import novelty_over_time
from monitor.desk.asking import Ask
from monitor.desk.errors import NoSuchPage
from monitor.desk.files import STATIC
from monitor.desk.plot import Mark, draw
from monitor.desk.queue import read_queue
from monitor.desk.replies import page
from monitor.desk.timeline import Entry, read_timeline
from monitor.desk.tokens import Role, holder_of, holders
from monitor.people.catalog import Standing, list_classes
from monitor.people.versions import list_versions

PAGES = ("/", "/classes", "/history", "/api")
"""Where one may be sent after signing in; no address ever comes from a request."""

_MARKED = {
    "class.discovered": "discovery",
    "detector.updated": "update",
    "detector.rolled_back": "rollback",
    "drift.detected": "drift",
}


def queue(ask: Ask) -> Response:
    return page("queue.html", **common(ask), queue=_queue(ask))


def queue_part(ask: Ask) -> Response:
    """The part of the queue page that changes, rendered by the same template."""
    return page("queue_part.html", **common(ask), queue=_queue(ask))


def _queue(ask: Ask) -> Any:
    return read_queue(ask.store, ask.person.name, ask.config.shown)


def classes(ask: Ask) -> Response:
    views = list_classes(ask.store)
    living = [view for view in views if view.standing in (Standing.KNOWN, Standing.NAMED)]
    gone = [view for view in views if view not in living]
    names = {view.id: view.name for view in views}
    return page("classes.html", **common(ask), living=living, gone=gone, names=names)


def history(ask: Ask) -> Response:
    entries = read_timeline(ask.store)
    marks = [Mark(one.at, _MARKED[one.kind], one.text) for one in entries if one.kind in _MARKED]
    plots = [draw(series, marks) for series in novelty_over_time(ask.store)]
    return page(
        "history.html",
        **common(ask),
        days=_by_day(entries),
        plots=plots,
        versions=list(reversed(list_versions(ask.store))),
    )


def _by_day(entries: list[Entry]) -> list[tuple[str, list[Entry]]]:
    days: dict[str, list[Entry]] = {}
    for entry in entries:
        days.setdefault(f"{entry.at:%A, %d %B %Y}", []).append(entry)
    return list(days.items())


def sign_in(ask: Ask) -> Response:
    return page("sign_in.html", next=_next(ask.query.next), wrong=False, is_open=ask.is_open)


def take_token(ask: Ask) -> Response:
    """Exchange a token for a cookie; the token itself is never kept in the browser."""
    form = parse_qs(ask.body.decode("utf-8", "replace"), max_num_fields=4)
    token = form.get("token", [""])[0].strip()
    goal = _next(form.get("next", ["/"])[0])
    with ask.store.reading() as tx:
        found, now = holder_of(token, holders(tx, os.environ)), tx.now
    if found is None:
        return page("sign_in.html", status=401, next=goal, wrong=True, is_open=ask.is_open)
    key = sessions.session_key(ask.store)
    response = RedirectResponse(goal, status_code=303)
    response.set_cookie(
        sessions.COOKIE,
        sessions.issue(found, key, now),
        max_age=int(sessions.LASTS.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=ask.is_https,
    )
    return response


def sign_out(ask: Ask) -> Response:
    with ask.store.transaction() as tx:
        tx.queries.release(ask.person.name)
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(sessions.COOKIE, httponly=True, samesite="strict", secure=ask.is_https)
    return response


def static(ask: Ask) -> Response:
    """One of the files that came with the desk; a name that is none of theirs is no path."""
    found = STATIC.get(ask.params["name"])
    if found is None:
        raise NoSuchPage("there is no such file")
    data, kind = found
    return Response(data, media_type=kind, headers={"cache-control": "no-cache"})


def _next(path: str) -> str:
    return path if path in PAGES else "/"


def common(ask: Ask) -> dict[str, Any]:
    """What the frame of every page shows."""
    return {
        "person": ask.person,
        "csrf": ask.csrf,
        "is_open": ask.is_open,
        "may_answer": ask.person.role >= Role.ANNOTATOR,
        "may_change": ask.person.role >= Role.ADMIN,
        "lease_seconds": ask.config.lease_seconds,
        "version": __version__,
    }
