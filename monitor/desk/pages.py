"""The pages that people see."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from monitor import __version__
from monitor.desk import openid, sessions
from monitor.desk.api_images import mapped_pools
from monitor.desk.checked_request import Ask
from monitor.desk.errors import NoSuchPage
from monitor.desk.history_sentences import LATEST, HistoryEntry, read_timeline
from monitor.desk.home import read_home
from monitor.desk.http_replies import page
from monitor.desk.novelty_activity import SOURCES, busiest, first_judged, novelty_over_time
from monitor.desk.novelty_plot import Mark, draw_all
from monitor.desk.question_queue import read_queue
from monitor.desk.roles_and_tokens import Role, holder_of, holders
from monitor.desk.static_files import STATIC
from monitor.people.class_catalog import Standing, list_classes
from monitor.people.version_history import VersionView, list_versions
from monitor.people.version_manifest import current_knowledge
from monitor.store.disk_space import read_outages

PAGES = ("/", "/questions", "/images", "/map", "/classes", "/history", "/api")
"""Where one may be sent after signing in; no address ever comes from a request."""

_LIVING = (Standing.KNOWN, Standing.NAMED)


def home(ask: Ask) -> Response:
    found = read_home(ask.store, ask.person.name, ask.settings.pools.size)
    return page("home.html", **common(ask), home=found)


def questions(ask: Ask) -> Response:
    return page("questions.html", **common(ask), queue=_queue(ask))


def questions_part(ask: Ask) -> Response:
    """The part of the questions page that changes, rendered by the same template."""
    return page("questions_part.html", **common(ask), queue=_queue(ask))


def _queue(ask: Ask) -> Any:
    return read_queue(ask.store, ask.person.name, ask.config.shown)


def images(ask: Ask) -> Response:
    with ask.store.reading() as tx:
        rows = sorted(tx.classes.living(), key=lambda row: row.name.casefold())
    palette = [view for view in list_classes(ask.store) if view.standing in _LIVING]
    return page("images.html", **common(ask), classes=rows, palette=palette)


def pool_map(ask: Ask) -> Response:
    with ask.store.reading() as tx:
        found = mapped_pools(tx)
    wanted = ask.query.pool
    chosen = next((pool for pool in found if pool.id == wanted), found[0] if found else None)
    palette = [view for view in list_classes(ask.store) if view.standing in _LIVING]
    return page("map.html", **common(ask), pools=found, chosen=chosen, palette=palette)


def classes(ask: Ask) -> Response:
    views = list_classes(ask.store)
    living = [view for view in views if view.standing in (Standing.KNOWN, Standing.NAMED)]
    gone = [view for view in views if view not in living]
    names = {view.id: view.name for view in views}
    return page("classes.html", **common(ask), living=living, gone=gone, names=names)


def history(ask: Ask) -> Response:
    versions = list(reversed(list_versions(ask.store)))
    expected = current_knowledge(ask.store).exceedance
    entries = read_timeline(ask.store)
    series = novelty_over_time(ask.store)
    shown = [one for one in series if one.source == ask.query.source] or busiest(series)
    plots = draw_all(shown, _version_marks(ask, versions), expected)
    return page(
        "history.html",
        **common(ask),
        days=_by_day(entries),
        more=len(entries) == LATEST,
        listed=LATEST,
        plots=plots,
        sources=[one.source for one in series],
        most=SOURCES,
        expected=expected,
        versions=versions,
    )


def _version_marks(ask: Ask, versions: Sequence[VersionView]) -> list[Mark]:
    """Where each detector version began to judge, in the time of the feed."""
    reasons = {one.number: one.reason for one in versions}
    return [
        Mark(at, number, reasons.get(number) or "")
        for number, at in sorted(first_judged(ask.store).items())
    ]


def _by_day(entries: list[HistoryEntry]) -> list[tuple[str, list[HistoryEntry]]]:
    days: dict[str, list[HistoryEntry]] = {}
    for entry in entries:
        days.setdefault(f"{entry.at:%A, %d %B %Y}", []).append(entry)
    return list(days.items())


def sign_in(ask: Ask) -> Response:
    return _sign_in(ask, _next(ask.query.next))


def _sign_in(ask: Ask, goal: str, *, wrong: str = "", status: int = 200) -> Response:
    return page(
        "sign_in.html",
        status=status,
        next=goal,
        wrong=wrong,
        is_open=ask.is_open,
        oidc=ask.oidc is not None,
    )


def take_token(ask: Ask) -> Response:
    """Exchange a token for a cookie; the token itself is never kept in the browser."""
    form = parse_qs(ask.body.decode("utf-8", "replace"), max_num_fields=4)
    token = form.get("token", [""])[0].strip()
    goal = _next(form.get("next", ["/"])[0])
    with ask.store.transaction() as tx:
        found = holder_of(token, holders(tx, os.environ))
        if found is None:
            words = "This token is not known here. Ask whoever runs the desk for a new one."
            return _sign_in(ask, goal, wrong=words, status=401)
        cookie = sessions.begin(
            tx, ask.key, found.name, found.role, via="token", digest=found.digest
        )
    return _signed_in(ask, RedirectResponse(goal, status_code=303), cookie)


def to_provider(ask: Ask) -> Response:
    """Off to the provider of OpenID Connect."""
    if ask.oidc is None:
        raise NoSuchPage("there is no such page")
    begun = ask.oidc.begin(_next(ask.query.next))
    response = RedirectResponse(begun.url, status_code=303)
    response.set_cookie(
        openid.COOKIE,
        sessions.seal(ask.key, begun.kept),
        max_age=60 * openid.MINUTES,
        httponly=True,
        # The provider's page sends people back here: a strict cookie would stay behind.
        samesite="lax",
        secure=ask.is_https,
        path="/sign-in",
    )
    return response


def from_provider(ask: Ask) -> Response:
    """Back from the provider, with a code that says who it was."""
    if ask.oidc is None:
        raise NoSuchPage("there is no such page")
    kept = sessions.unseal(ask.key, ask.cookies.get(openid.COOKIE, ""))
    name, role = ask.oidc.finish(ask.query.code, ask.query.state, kept)
    with ask.store.transaction() as tx:
        cookie = sessions.begin(tx, ask.key, name, role, via="oidc")
    goal = _next(kept["goal"] if kept else "/")
    # A page of our own leads on: the strict cookie would not go with a redirect from elsewhere.
    response = _signed_in(ask, page("signed_in.html", name=name, goal=goal), cookie)
    response.delete_cookie(openid.COOKIE, path="/sign-in")
    return response


def _signed_in(ask: Ask, response: Response, cookie: str) -> Response:
    response.set_cookie(
        sessions.COOKIE,
        cookie,
        max_age=int(sessions.LASTS.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=ask.is_https,
    )
    return response


def sign_out(ask: Ask) -> Response:
    with ask.store.transaction() as tx:
        tx.questions.release(ask.person.name)
        sessions.end(tx, ask.key, ask.cookies.get(sessions.COOKIE, ""))
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
    with ask.store.reading() as tx:
        waiting = read_outages(tx, ask.store)
    return {
        "person": ask.person,
        "csrf": ask.csrf,
        "is_open": ask.is_open,
        "may_answer": ask.person.role >= Role.ANNOTATOR,
        "may_change": ask.person.role >= Role.ADMIN,
        "lease_seconds": ask.config.lease_seconds,
        "version": __version__,
        "waiting": waiting,
    }
