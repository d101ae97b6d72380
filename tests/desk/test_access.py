"""Nobody does what the table does not allow them: every route, every role, every trick."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from monitor.cli.root import run
from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.app import build
from monitor.desk.errors import BadToken, CannotStart
from monitor.desk.rate_limits import Limiter
from monitor.desk.request_guard import Guard
from monitor.desk.roles_and_tokens import PREFIX, Role, add_token, holders, remove_token
from monitor.desk.route_rules import PATTERNS, Rule
from monitor.desk.route_table import RULES
from monitor.store import Store
from tests.desk.client import Client
from tests.desk.conftest import Tokens

PUBLIC, READER, ANNOTATOR, ADMIN = Role.PUBLIC, Role.READER, Role.ANNOTATOR, Role.ADMIN

#: Who may do what, written down a second time on purpose: a new route, or a changed role, must
#: be meant here as well.
EXPECTED: dict[tuple[str, str], Role] = {
    ("GET", "/"): READER,
    ("GET", "/questions"): READER,
    ("GET", "/questions/part"): READER,
    ("GET", "/images"): READER,
    ("GET", "/map"): READER,
    ("GET", "/classes"): READER,
    ("GET", "/history"): READER,
    ("GET", "/api"): READER,
    ("GET", "/sign-in"): PUBLIC,
    ("POST", "/sign-in"): PUBLIC,
    ("GET", "/sign-in/oidc"): PUBLIC,
    ("GET", "/sign-in/callback"): PUBLIC,
    ("POST", "/sign-out"): READER,
    ("GET", "/static/{name}"): PUBLIC,
    ("GET", "/health"): PUBLIC,
    ("GET", "/openapi.json"): READER,
    ("GET", "/thumbnails/{digest}"): READER,
    ("GET", "/pictures/{image}"): READER,
    ("GET", "/api/images"): READER,
    ("GET", "/api/images/{image}/around"): READER,
    ("POST", "/api/images/teach"): ANNOTATOR,
    ("POST", "/api/images/undo"): ANNOTATOR,
    ("GET", "/api/pools"): READER,
    ("GET", "/api/pools/{number}/map"): READER,
    ("GET", "/api/questions"): READER,
    ("POST", "/api/questions/lease"): ANNOTATOR,
    ("POST", "/api/questions/release"): ANNOTATOR,
    ("POST", "/api/answers"): ANNOTATOR,
    ("POST", "/api/undo"): ANNOTATOR,
    ("GET", "/api/pulse"): READER,
    ("GET", "/api/export/{kind}"): READER,
    ("POST", "/api/import/{kind}"): ANNOTATOR,
    ("GET", "/api/classes"): READER,
    ("GET", "/api/classes/similar"): READER,
    ("GET", "/api/classes/{class_id}/samples"): READER,
    ("GET", "/api/classes/{class_id}/impact"): READER,
    ("POST", "/api/classes/undo"): ADMIN,
    ("POST", "/api/classes/merge"): ADMIN,
    ("POST", "/api/classes/{class_id}/rename"): ADMIN,
    ("POST", "/api/classes/{class_id}/retire"): ADMIN,
    ("POST", "/api/classes/{class_id}/wrong"): ADMIN,
    ("GET", "/api/versions"): READER,
    ("GET", "/api/versions/{number}"): READER,
    ("GET", "/api/versions/{of}/diff/{to}"): READER,
    ("POST", "/api/versions/{number}/rollback"): ADMIN,
    ("POST", "/api/versions/{number}/release"): ADMIN,
    ("POST", "/api/versions/{number}/refuse"): ADMIN,
    ("GET", "/api/events"): READER,
}

VALUES = {
    "class_id": "c1",
    "number": "1",
    "of": "1",
    "to": "2",
    "digest": "ab" * 32,
    "image": "ab" * 16,
    "name": "desk.css",
    "kind": "csv",
}

GUARDED = [rule for rule in RULES if rule.role > PUBLIC]
CHANGING = [rule for rule in GUARDED if rule.changes]


@pytest.fixture(scope="module")
def shared(mould: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """For requests that are refused: they leave nothing behind, so they may share a state."""
    with Store.open(shutil.copytree(mould, tmp_path_factory.mktemp("shared") / "state")) as store:
        yield store


@pytest.fixture(scope="module")
def opened(shared: Store) -> Guard:
    return build(shared, DeskConfig())


@pytest.fixture(scope="module")
def guarded(
    mould: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Guard, Tokens]]:
    folder = shutil.copytree(mould, tmp_path_factory.mktemp("guarded") / "state")
    with Store.open(folder) as store:
        held = {role.word: add_token(store, f"the {role.word}", role) for role in list(Role)[1:]}
        many = Limiter(rate=1e6, burst=10**6)  # all these attempts come from one address
        yield Guard(store, DeskConfig(), RULES, attempts=many), held


def ids(rule: Rule) -> str:
    return f"{rule.method} {rule.path}"


def path_of(rule: Rule) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: VALUES[found[1]], rule.path)


def call(client: Client, rule: Rule, **headers: str) -> int:
    if rule.changes:
        return client.post(path_of(rule), **headers).status
    return client.get(path_of(rule), **headers).status


def test_every_route_has_a_rule_and_every_rule_is_meant() -> None:
    assert {(rule.method, rule.path): rule.role for rule in RULES} == EXPECTED


def test_every_parameter_has_a_pattern_that_excludes_paths() -> None:
    for rule in RULES:
        for name in rule.parameters:
            for hostile in ("..", "../x", "a/b", "a\\b", "%2e%2e", "a\x00", "a\n", "", "é"):
                assert re.fullmatch(PATTERNS[name], hostile) is None


@pytest.mark.parametrize("rule", GUARDED, ids=ids)
def test_without_a_token_nobody_comes_in(guarded: tuple[Guard, Tokens], rule: Rule) -> None:
    desk, _ = guarded
    status = call(Client(desk), rule)
    assert status == (303 if rule.html and not rule.changes else 401)
    assert call(Client(desk, token=PREFIX + "x" * 43), rule) in (401, 303)


@pytest.mark.parametrize("rule", GUARDED, ids=ids)
def test_a_role_below_is_refused_and_the_role_itself_is_not(
    guarded: tuple[Guard, Tokens], rule: Rule
) -> None:
    desk, tokens = guarded
    for role in (READER, ANNOTATOR, ADMIN):
        status = call(Client(desk, token=tokens[role.word]), rule)
        assert (status == 403) is (role < rule.role), role
        assert status != 401
        assert status < 500


@pytest.mark.parametrize("rule", CHANGING, ids=ids)
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
    ids=str,
)
def test_another_site_cannot_act_in_a_browser(
    opened: Guard, rule: Rule, headers: dict[str, str]
) -> None:
    assert call(Client(opened), rule, **headers) == 403


@pytest.mark.parametrize("rule", [r for r in CHANGING if not r.raw_body], ids=ids)
def test_a_form_of_another_site_is_of_the_wrong_type(opened: Guard, rule: Rule) -> None:
    client = Client(opened)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert client.send("POST", path_of(rule), b"{}", headers={"content-type": kind}).status == (
            415
        )


@pytest.mark.parametrize("rule", [r for r in RULES if r.changes], ids=ids)
def test_a_body_that_is_too_large_is_refused(opened: Guard, rule: Rule) -> None:
    client = Client(opened)
    kind = "application/x-www-form-urlencoded" if rule.form else "application/json"
    for claimed in (str(rule.body_most + 1), "0"):
        reply = client.send(
            "POST",
            path_of(rule),
            b"x" * (rule.body_most + 1),
            headers={"content-type": kind, "content-length": claimed},
        )
        assert reply.status == 413


HOSTILE = [
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "/etc/passwd",
    "....//conclad.db",
    "%00",
    "a\\..\\b",
    "'; DROP TABLE answers; --",
    "{{7*7}}",
    "<script>alert(1)</script>",
    "9" * 400,
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_traversal_in_every_parameter_leads_nowhere(opened: Guard, hostile: str) -> None:
    client = Client(opened)
    for rule in RULES:
        for name in rule.parameters:
            path = rule.path
            for other in rule.parameters:
                path = path.replace(f"{{{other}}}", hostile if other == name else VALUES[other])
            reply = client.post(path) if rule.changes else client.get(path)
            assert reply.status in (404, 405), (rule.path, name)
            assert b"root:" not in reply.body
    for query in ("which", "next", "name", "after", "limit"):
        for path in ("/api/questions", "/sign-in", "/api/classes/similar", "/api/events"):
            reply = client.get(f"{path}?{query}={hostile}")
            assert reply.status < 500
            assert b"<script>alert" not in reply.body


def test_what_is_not_in_the_table_does_not_exist(client: Client) -> None:
    assert client.get("/state/conclad.db").status == 404
    assert client.get("/static/desk.py").status == 404
    assert client.send("DELETE", "/api/answers").status == 405
    assert client.send("TRACE", "/").status == 405


def test_a_person_at_a_wrong_address_sees_a_page(client: Client) -> None:
    reply = client.get("/clases", accept="text/html,*/*")
    assert (reply.status, reply.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"there is no such page" in reply.body
    assert b'<a href="/">' in reply.body
    assert client.get("/clases", accept="application/json").headers["content-type"] == (
        "application/json"
    )


def test_other_host_names_are_not_ours(desk: Guard) -> None:
    for host in ("evil.example", "evil.example:8484", "127.0.0.1.evil.example", ""):
        assert Client(desk, host=host).get("/").status == 403
    for host in ("localhost:8484", "127.0.0.1", "[::1]:8484"):
        assert Client(desk, host=host).get("/").status == 200


def test_behind_a_proxy_its_name_is_ours(store: Store, tokens: Tokens) -> None:
    config = DeskConfig(host="0.0.0.0", address="https://desk.example")
    desk = build(store, config)
    assert Client(desk, host="other.example").get("/sign-in").status == 403
    browser = Client(desk, host="desk.example")
    reply = browser.form("/sign-in", f"token={tokens['annotator']}", origin="https://desk.example")
    assert reply.status == 303
    assert "Secure" in reply.headers["set-cookie"]
    assert reply.headers["strict-transport-security"]


def test_it_refuses_to_be_open_to_strangers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5"):
        with pytest.raises(CannotStart, match="conclad tokens add"):
            build(store, DeskConfig(host=host))
    monkeypatch.setenv("CONCLAD_DESK_TOKEN", "too short")
    with pytest.raises(BadToken, match="24 characters"):
        build(store, DeskConfig(host="0.0.0.0"))
    monkeypatch.setenv("CONCLAD_DESK_TOKEN", "x" * 40)
    desk = build(store, DeskConfig(host="0.0.0.0"))
    assert Client(desk).get("/api/questions").status == 401
    assert Client(desk, token="x" * 40).get("/api/questions").status == 200


def test_tokens_are_kept_as_hashes_only(store: Store, state: Any) -> None:
    token = add_token(store, "ada", Role.READER)
    with store.reading() as tx:
        assert token not in repr(tx.notes.all("desk_tokens"))
        assert [one.name for one in holders(tx)] == ["ada"]
    store.close()
    for file in state.rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes()


def test_a_removed_token_is_out_at_once(desk: Guard, store: Store, tokens: Tokens) -> None:
    browser, program = Client(desk), Client(desk, token=tokens["annotator"])
    browser.form("/sign-in", f"token={tokens['annotator']}")
    assert browser.get("/api/pulse").status == program.get("/api/pulse").status == 200
    remove_token(store, "the annotator")
    assert browser.get("/api/pulse").status == program.get("/api/pulse").status == 401
    with pytest.raises(BadToken, match="has no token"):
        remove_token(store, "the annotator")
    with pytest.raises(BadToken, match="has a token already"):
        add_token(store, "the admin", Role.ADMIN)


def test_a_browser_signs_in_and_proves_that_the_page_is_ours(desk: Guard, tokens: Tokens) -> None:
    browser = Client(desk)
    assert browser.get("/").headers["location"] == "/sign-in?next=/"
    assert browser.form("/sign-in", "token=wrong").status == 401
    reply = browser.form("/sign-in", f"token={tokens['annotator']}&next=/classes")
    assert (reply.status, reply.headers["location"]) == (303, "/classes")
    for word in ("HttpOnly", "SameSite=strict"):
        assert word in reply.headers["set-cookie"]
    assert tokens["annotator"] not in reply.headers["set-cookie"]
    page = browser.get("/").text
    [csrf] = re.findall(r'<meta name="csrf" content="(\w+)">', page)
    assert browser.post("/api/questions/lease").status == 403
    assert browser.post("/api/questions/lease", x_csrf_token="0" * 64).status == 403
    assert browser.post("/api/questions/lease", x_csrf_token=csrf).status == 200
    assert browser.post("/sign-out", x_csrf_token=csrf).status == 303
    assert browser.get("/api/pulse").status == 401


@pytest.mark.parametrize(
    "goal", ["//evil.example", "https://evil.example", "/api/../x", "javascript:1"]
)
def test_signing_in_leads_to_our_own_pages_only(desk: Guard, tokens: Tokens, goal: str) -> None:
    reply = Client(desk).form("/sign-in", f"token={tokens['reader']}&next={goal}")
    assert reply.headers["location"] == "/"


@pytest.mark.parametrize("value", ["", "a", "a.b.c", "YWRh.99999999999.00", "..", "a.1.b.c"])
def test_a_made_up_cookie_is_nobody(desk: Guard, tokens: Tokens, value: str) -> None:
    browser = Client(desk)
    browser.cookie = f"conclad_desk={value}"
    assert browser.get("/api/pulse").status == 401


def test_a_cookie_is_random_and_kept_as_a_hash(desk: Guard, store: Store, tokens: Tokens) -> None:
    browser = Client(desk)
    browser.form("/sign-in", f"token={tokens['reader']}")
    assert browser.cookie is not None
    value = browser.cookie.partition("=")[2]
    with store.reading() as tx:
        kept = repr(tx.notes.all("desk_sessions"))
    assert value not in kept
    browser.cookie = f"conclad_desk={value[:-1]}{'A' if value[-1] != 'A' else 'B'}"
    assert browser.get("/api/pulse").status == 401


def test_signing_out_ends_the_session_wherever_its_cookie_is(desk: Guard, tokens: Tokens) -> None:
    browser, thief = Client(desk), Client(desk)
    browser.form("/sign-in", f"token={tokens['annotator']}")
    thief.cookie = browser.cookie
    assert thief.get("/api/pulse").status == 200
    [csrf] = re.findall(r'<meta name="csrf" content="(\w+)">', browser.get("/").text)
    assert browser.post("/sign-out", x_csrf_token=csrf).status == 303
    assert thief.get("/api/pulse").status == 401


def test_a_session_wears_out(state: Path, tokens: Tokens) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with Store.open(state, clock=lambda: now[0]) as store:
        browser = Client(build(store, DeskConfig()))
        browser.form("/sign-in", f"token={tokens['reader']}")
        assert browser.get("/api/pulse").status == 200
        now[0] += timedelta(days=7, seconds=1)
        assert browser.get("/api/pulse").status == 401


def test_the_audit_says_who_came_and_who_was_let_in(
    desk: Guard, store: Store, state: Path, tokens: Tokens
) -> None:
    browser = Client(desk)
    browser.form("/sign-in", f"token={tokens['annotator']}")
    add_token(store, "bo", Role.READER, by="ada")
    [csrf] = re.findall(r'<meta name="csrf" content="(\w+)">', browser.get("/").text)
    assert browser.post("/sign-out", x_csrf_token=csrf).status == 303
    where = ["--set", f"state.dir={state}"]
    assert run(["purge", "--source", "cam-2", "--before", "2024-01-01", "--yes", *where]) == 0
    page = Client(desk, token=tokens["reader"]).get("/history").text
    assert "the annotator signed in (annotator, by token)" in page
    assert "bo may come to the desk (reader), says ada" in page
    assert "the annotator signed out" in page
    assert "purged what was kept of cam-2" in page


def test_every_reply_carries_the_headers(client: Client) -> None:
    for reply in (client.get("/"), client.get("/nope"), client.get("/static/desk.css")):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "same-origin"


def test_pages_hold_nothing_inline_and_nothing_from_elsewhere(client: Client) -> None:
    for path in (
        "/",
        "/questions",
        "/images",
        "/map",
        "/classes",
        "/history",
        "/api",
        "/sign-in",
    ):
        page = client.get(path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)", page)
        assert not re.search(r"\sstyle=|\son\w+=|<style", page)
        assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_too_many_requests_are_slowed_down(store: Store) -> None:
    now = [0.0]
    slow = Limiter(rate=1, burst=3, clock=lambda: now[0])
    client = Client(Guard(store, DeskConfig(), RULES, requests=slow))
    assert [client.get("/api/pulse").status for _ in range(4)] == [200, 200, 200, 429]
    now[0] = 1.5
    assert client.get("/api/pulse").status == 200


def test_guessing_tokens_is_slowed_down_more(store: Store, tokens: Tokens) -> None:
    slow = Limiter(rate=0, burst=2, clock=lambda: 0.0)
    client = Client(Guard(store, DeskConfig(), RULES, attempts=slow))
    assert [client.form("/sign-in", "token=x").status for _ in range(3)] == [401, 401, 429]


def test_a_bug_shows_nothing_of_our_insides(store: Store) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("secret path /var/lib")

    client = Client(Guard(store, DeskConfig(), [Rule("GET", "/x", PUBLIC, broken, "")]))
    reply = client.get("/x")
    assert (reply.status, b"secret" in reply.body) == (500, False)
