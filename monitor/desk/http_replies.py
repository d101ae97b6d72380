"""HTTP replies: errors in words, pages, and the headers that every reply carries."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.errors import DeskError
from monitor.desk.route_rules import Rule
from monitor.errors import ConcladError
from monitor.people.errors import BadAnswer, BadFile, BadName, NotPossible
from monitor.store.errors import (
    BudgetExceeded,
    ClassNameTaken,
    ClientIdReused,
    DiskUnavailable,
    NotFound,
    QuestionClosed,
    StoreBusy,
    StoreUnreachable,
    WrongState,
)

#: Nothing from elsewhere, nothing inline, nothing that can be framed or sent elsewhere.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers then send the forms of our own pages with the origin "null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}

_STATUS: tuple[tuple[type[ConcladError], int], ...] = (
    (NotFound, 404),
    (WrongState, 409),
    (QuestionClosed, 409),
    (ClientIdReused, 409),
    (ClassNameTaken, 409),
    (BudgetExceeded, 409),
    (NotPossible, 409),
    (BadName, 422),
    (BadAnswer, 422),
    (BadFile, 422),
    (StoreBusy, 503),
    (StoreUnreachable, 503),
    (DiskUnavailable, 503),
)

_templates = Environment(
    loader=PackageLoader("monitor.desk"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page from its template; everything that is put into one is escaped."""
    return HTMLResponse(_templates.get_template(template).render(**values), status)


def status_of(error: ConcladError) -> int:
    if isinstance(error, DeskError):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 400)


def error_reply(error: ConcladError, rule: Rule | None, request: Request) -> Response:
    """One sentence, as a page for people and as JSON for programs.

    At an address without a rule, a browser is told by what it asks for.
    """
    status = status_of(error)
    is_browser = "text/html" in request.headers.get("accept", "")
    if rule.html if rule is not None else is_browser:
        return page("error.html", status=status, message=str(error), code=status)
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse({"error": str(error)}, status, headers)


def with_headers(response: Response, config: DeskConfig) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("cache-control", "no-store")
    if (config.address or "").startswith("https://"):
        response.headers.setdefault("strict-transport-security", "max-age=31536000")
    return response
