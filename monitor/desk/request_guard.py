"""Checks each request before a handler sees it: only what the table of routes allows passes.

In this order: the host name, the rule, the rate, who it is, whether they may, where the request
came from, the size and type of the body, and at last its values.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hmac
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from anyio import from_thread
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from monitor.config import Config
from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk import sessions
from monitor.desk.checked_request import NOBODY, Ask, Person
from monitor.desk.errors import (
    Forbidden,
    NoSuchPage,
    SignInNeeded,
    TooLarge,
    TooMany,
    TooSlow,
    Unprocessable,
    WrongMethod,
    WrongType,
)
from monitor.desk.feed_pictures import FeedPictures
from monitor.desk.http_replies import error_reply, with_headers
from monitor.desk.openid import OpenIdClient
from monitor.desk.pool_map import PoolMaps
from monitor.desk.proxy_sign_in import address_of, person_of_proxy
from monitor.desk.rate_limits import Limiter, share_of
from monitor.desk.roles_and_tokens import Holder, Role, holder_of, holders
from monitor.desk.route_rules import Rule
from monitor.errors import ConcladError
from monitor.store.store import Store

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
CSRF_HEADER = "x-csrf-token"
BODY_SECONDS = 60
"""For the largest import over a slow line; what comes slower is a connection held on purpose."""

QUIET_SECONDS, LOOK_SECONDS = 0.25, 0.005
"""What writes in many small steps waits before each for a moment in which nobody else is being
answered, for so long at most; how often it looks."""

log = logging.getLogger(__name__)


class Guard:
    """The application: an ASGI callable around the table of rules."""

    def __init__(
        self,
        store: Store,
        config: DeskConfig,
        rules: Sequence[Rule],
        *,
        settings: Config | None = None,
        requests: Limiter | None = None,
        arrivals: Limiter | None = None,
        attempts: Limiter | None = None,
        whoami: Callable[[], str] = getpass.getuser,
    ) -> None:
        self._store, self._config, self._rules = store, config, tuple(rules)
        self._settings = (settings or Config()).model_copy(update={"desk": config})
        self._pictures, self._maps = FeedPictures(self._settings), PoolMaps(store)
        self._key = sessions.session_key(store)
        desk_url = self._settings.desk_url
        self._oidc = OpenIdClient(config.oidc, desk_url) if config.oidc.issuer else None
        self._greeted: dict[str, datetime] = {}
        # A page with sixty questions asks for some two hundred pictures at once; after that,
        # fifty a second are more than a person can cause, and a loop gone wild is slowed down.
        self._requests = requests or Limiter(rate=50, burst=600)
        # Before anybody is asked for: fifty people behind one router, each with a page to load.
        self._arrivals = arrivals or Limiter(rate=500, burst=5000)
        # Guessing 256 bits is hopeless at any rate; this keeps the log short.
        self._attempts = attempts or Limiter(rate=0.2, burst=10)
        # Changes wait for each other here, first come first served. SQLite would let them wait as
        # well, but whoever comes last may be served first there, and somebody waits for ever.
        self._turn = asyncio.Lock()
        self._in_flight = 0
        self._local = Person(_own_name(whoami), Role.ADMIN, "open")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        rule: Rule | None = None
        try:
            self._check_host(request)
            rule, params = self._find(request)
            with self._counted(rule):
                response = await self._answer(request, rule, params)
        except SignInNeeded as error:
            response = _to_sign_in(request, rule) or error_reply(error, rule, request)
        except ConcladError as error:
            response = error_reply(error, rule, request)
        except ClientDisconnect:
            return  # it left in the middle of what it said: nobody waits for an answer
        except Exception:
            # The client learns nothing about our insides; the log has it all.
            log.exception("%s %s failed", request.method, request.url.path)
            response = JSONResponse({"error": "something went wrong; see the log"}, 500)
        await with_headers(response, self._config)(scope, receive, send)

    @contextlib.contextmanager
    def _counted(self, rule: Rule) -> Iterator[None]:
        """Count who is being answered, but for those that write in many small steps."""
        self._in_flight += not rule.in_turns
        try:
            yield
        finally:
            self._in_flight -= not rule.in_turns

    @contextlib.contextmanager
    def _quiet_turn(self) -> Iterator[None]:
        """Wait for a quiet moment and one's turn to write, from the thread of a handler."""
        from_thread.run(self._wait_for_quiet)
        try:
            yield
        finally:
            from_thread.run_sync(self._turn.release)

    async def _wait_for_quiet(self) -> None:
        latest = time.monotonic() + QUIET_SECONDS
        while self._in_flight and time.monotonic() < latest:
            await asyncio.sleep(LOOK_SECONDS)
        await self._turn.acquire()

    def _check_host(self, request: Request) -> None:
        """Names by which nobody means us are refused: a page elsewhere may point one at us."""
        host = _host(request.headers.get("host", ""))
        allowed = {self._config.host, *_address_hosts(self._config)}
        if self._config.host in LOOPBACK:
            allowed |= LOOPBACK
        elif self._config.address is None:
            return  # reached by whatever name; a token is needed in any case
        if host not in allowed:
            raise Forbidden("this host name is not the desk's; set desk.address if it should be")

    def _find(self, request: Request) -> tuple[Rule, dict[str, str]]:
        method = "GET" if request.method == "HEAD" else request.method
        path = request.scope["path"]
        others = []
        for rule in self._rules:
            params = rule.match(path)
            if params is not None:
                if rule.method == method:
                    return rule, params
                others.append(rule.method)
        if others:
            raise WrongMethod(f"{request.method} is not possible here; try {', '.join(others)}")
        raise NoSuchPage("there is no such page")

    async def _answer(self, request: Request, rule: Rule, params: dict[str, str]) -> Response:
        address = share_of(address_of(request, self._config))
        if not self._arrivals.allows(address):
            raise TooMany("too many requests from this address; wait a moment")
        if rule.form and not self._attempts.allows(address):
            raise TooMany("too many attempts from this address; wait a minute")
        try:
            known, person = await run_in_threadpool(self._person, request)
        except SignInNeeded:
            # A wrong token costs its own address an attempt; right ones go on working there.
            if not self._attempts.allows(address):
                raise TooMany("too many attempts from this address; wait a minute") from None
            raise
        if not self._requests.allows(person.name or address):
            raise TooMany("too many requests; wait a moment")
        if rule.role > person.role:
            if person.role is Role.PUBLIC:
                raise SignInNeeded("sign in, or send a token: Authorization: Bearer …")
            raise Forbidden(f"this needs the role {rule.role.word}; yours is {person.role.word}")
        csrf = sessions.csrf_token(self._key, self._subject(request, person))
        if rule.changes:
            self._check_origin(request, rule, person, csrf)
        ask = Ask(
            store=self._store,
            settings=self._settings,
            person=person,
            params=params,
            query=_query(request, rule),
            body=await _body(request, rule) if rule.changes else None,
            csrf=csrf,
            is_open=not known and not self._config.knows_people,
            pictures=self._pictures,
            maps=self._maps,
            key=self._key,
            cookies=request.cookies,
            oidc=self._oidc,
            turn=self._quiet_turn,
            is_gone=lambda: from_thread.run(request.is_disconnected),
        )
        if rule.changes and not rule.in_turns:
            async with self._turn:
                return await run_in_threadpool(_reply, rule, ask)
        return await run_in_threadpool(_reply, rule, ask)

    def _person(self, request: Request) -> tuple[list[Holder], Person]:
        """Everybody with a token, and who is asking."""
        cookie = request.cookies.get(sessions.COOKIE, "")
        with self._store.reading() as tx:
            known, now = holders(tx, os.environ), tx.now
            signed_in = sessions.read(tx, self._key, cookie, known) if cookie else None
        bearer = request.headers.get("authorization", "")
        word, _, token = bearer.partition(" ")
        if word.lower() == "bearer" or (bearer and self._config.proxy.user_header is None):
            holder = holder_of(token.strip(), known) if word.lower() == "bearer" else None
            if holder is None:
                raise SignInNeeded("the token is not known here")
            return known, Person(holder.name, holder.role, "token")
        by_proxy = person_of_proxy(request, self._config.proxy)
        if by_proxy is not None:
            self._greet(by_proxy, now)
            return known, Person(by_proxy.name, by_proxy.role, "proxy")
        if not known and self._config.host in LOOPBACK and not self._config.knows_people:
            return known, self._local
        if signed_in is None:
            return known, NOBODY
        return known, Person(signed_in.name, signed_in.role, "cookie")

    def _greet(self, holder: Holder, now: datetime) -> None:
        """Whom a proxy signs in is noted once a session, as those are who sign in here."""
        last = self._greeted.get(holder.name)
        if last is not None and now - last < sessions.LASTS:
            return
        self._greeted[holder.name] = now
        with self._store.transaction() as tx:
            told = {"who": holder.name, "role": holder.role.word, "via": "proxy"}
            tx.events.append("desk.signed_in", told)

    def _subject(self, request: Request, person: Person) -> str:
        if person.via == "cookie":
            return request.cookies.get(sessions.COOKIE, "")
        return f"{person.via}\0{person.name}"

    def _check_origin(self, request: Request, rule: Rule, person: Person, csrf: str) -> None:
        """Only our own page may use the authority that a browser carries by itself."""
        if person.via == "token":
            return
        origin = request.headers.get("origin")
        if origin is not None and _origin_host(origin) not in self._own_origins(request):
            raise Forbidden("the request comes from another site")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forbidden("the request comes from another site")
        if person.via in ("cookie", "proxy"):
            given = request.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(given.encode(), csrf.encode()):
                raise Forbidden("the page is out of date; load it again")

    def _own_origins(self, request: Request) -> set[str]:
        own = {request.headers.get("host", "")}
        if self._config.address is not None:
            own.add(urlsplit(self._config.address).netloc)
        return own


def _reply(rule: Rule, ask: Ask) -> Response:
    """In a thread: the receipts of a large import are megabytes to write down."""
    found = rule.handler(ask)
    if isinstance(found, Response):
        return found
    assert isinstance(found, BaseModel)
    return Response(found.model_dump_json(by_alias=True), media_type="application/json")


def _query(request: Request, rule: Rule) -> BaseModel | None:
    if rule.query is None:
        return None
    try:
        return rule.query.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise Unprocessable(_words(error)) from None


async def _body(request: Request, rule: Rule) -> object:
    data = await _read(request, rule.body_most)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if rule.raw_body:
        return data
    if rule.form:
        if kind != "application/x-www-form-urlencoded":
            raise WrongType("send a form (application/x-www-form-urlencoded)")
        return data
    # Also when there is no body to speak of: a form of another site cannot send this type.
    if kind != "application/json":
        raise WrongType("send JSON with the header Content-Type: application/json")
    if rule.body is None:
        return None
    try:
        return rule.body.model_validate_json(data)
    except ValidationError as error:
        raise Unprocessable(_words(error)) from None


async def _read(request: Request, most: int) -> bytes:
    """The body, unless it is larger than the rule allows; what it claims is not believed."""
    message = f"the body is larger than {most} bytes"
    claimed = request.headers.get("content-length") or "0"
    if not claimed.isdecimal() or len(claimed) > 15 or int(claimed) > most:
        raise TooLarge(message)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise TooLarge(message)
                parts.append(part)
    except TimeoutError:
        raise TooSlow(f"the body did not come within {BODY_SECONDS} seconds") from None
    return b"".join(parts)


def _words(error: ValidationError) -> str:
    """The first thing that is wrong, and where; never the value, which may be long or secret."""
    first = json.loads(error.json(include_url=False, include_input=False, include_context=False))[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _to_sign_in(request: Request, rule: Rule | None) -> Response | None:
    if rule is None or not rule.html or request.method not in ("GET", "HEAD"):
        return None
    return RedirectResponse(f"/sign-in?next={rule.path}", status_code=303)


def _own_name(whoami: Callable[[], str]) -> str:
    try:
        return whoami()
    except (KeyError, OSError):  # a container whose user has no name
        return "somebody"


def _host(header: str) -> str:
    """Without the port; an IPv6 address without its brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if ":" in header else header


def _origin_host(origin: str) -> str:
    return urlsplit(origin).netloc


def _address_hosts(config: DeskConfig) -> set[str]:
    if config.address is None:
        return set()
    return {urlsplit(config.address).hostname or ""}


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
