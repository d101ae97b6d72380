"""Hostile strings at the desk: whatever comes in or is shown, no page breaks and nothing runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import update

from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.rate_limits import Limiter
from monitor.desk.request_guard import Guard
from monitor.desk.roles_and_tokens import Role, add_token
from monitor.desk.route_table import RULES
from monitor.store import Store
from monitor.store.tables import questions
from tests.desk.client import Client
from tests.feed.test_hostile_names import HARMLESS, HOSTILE
from tests.people import world
from tests.store.postgres import server

MARK = "owned"
#: Can be seen, so they may be names; each would do something if a page did not escape it.
SHOWN = [
    *HARMLESS,
    f"<script>{MARK}()</script>",
    f'"><img src=x onerror={MARK}()>',
    f"' onmouseover='{MARK}()",
    f"</script><script>{MARK}()</script>",
    f"javascript:{MARK}()",
    f"<!--{MARK}--><![CDATA[",
    "{% raw %}{{ config }}",
    "=cmd|' /C calc'!A0",
    "%s%n%d",
    "Ω≈ç√∫ 田中さん 👩 ",
    "שלום עולם",
    "\\u0000",
    "null",
]
#: Refused, but for those whose controls are white space: these are made spaces of.
REFUSED = [*(text for text in HOSTILE if len(text) < 1000), "lone \ud800 surrogate"]
LARGE = "7" * (10 << 20)

PAGES = [
    "/",
    "/questions",
    "/questions/part",
    "/images",
    "/map?pool=1",
    "/classes",
    "/history",
    "/api",
    "/sign-in",
    "/api/images",
    "/api/pools",
    "/api/pools/1/map",
    "/api/questions",
    "/api/export/csv",
    "/api/export/jsonl",
    "/api/export/label-studio",
    "/api/classes",
    "/api/classes/c1/samples",
    "/api/classes/c1/impact",
    "/api/versions",
    "/api/versions/1",
    "/api/versions/1/diff/2",
    "/api/events",
    "/health",
]


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        with Store.open(tmp_path / "state") as opened:
            yield lived(opened)
        return
    with server() as url, Store.open(f"{url}/postgres", files=tmp_path / "state") as opened:
        yield lived(opened)


def lived(store: Store) -> Store:
    """Everything that people see carries such a name: sources, images, files, classes, events."""
    world.fit(store)
    world.ask(store, 20)
    world.discover(store, SHOWN[6], 20)
    asked = world.ask(store, 2 * len(SHOWN), pool=2)
    with store.transaction() as tx:
        for question, name in zip(asked, SHOWN * 2, strict=True):
            named = {"source_id": name, "image_id": name, "file": f"{name}.parquet"}
            changed = update(questions).where(questions.c.id == question.id)
            tx.connection.execute(changed.values(**named))
        for name in SHOWN:
            tx.events.append("class.renamed", {"class_id": "c1", "from": name, "to": name})
            tx.events.append("source.silent", {"source": name}, source=name)
    return store


@pytest.fixture
def client(store: Store) -> Client:
    boundless = Limiter(rate=1e9, burst=10**9)
    token = add_token(store, SHOWN[7], Role.ADMIN)
    return Client(Guard(store, DeskConfig(), RULES, requests=boundless), token=token)


class Scripts(HTMLParser):
    """What a browser would run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_script = tag == "script"
        for name, value in attrs:
            text = (value or "").strip().lower()
            leads = name in ("href", "src", "action", "formaction") and f"{MARK}()" in text
            if name.startswith("on") or (leads and text.startswith("javascript:")):
                self.found.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        # Data for our own script is JSON inside a script element that is no script.
        if self._in_script and f"{MARK}()" in data and not _is_json(data):
            self.found.append(data)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def walk(client: Client) -> int:
    """Every page once; how many of the names were seen on them."""
    seen = 0
    for path in PAGES:
        reply = client.get(path)
        assert reply.status == 200, (path, reply.status, reply.body[:200])
        assert reply.headers["x-content-type-options"] == "nosniff"
        kind = reply.headers["content-type"]
        if kind.startswith("text/html"):
            scripts = Scripts()
            scripts.feed(reply.text)
            assert scripts.found == [], path
            assert "script-src" in reply.headers["content-security-policy"]
        else:
            assert kind.startswith(("application/json", "text/csv", "application/x-ndjson")), path
        seen += MARK in reply.text
    return seen


def test_names_that_can_be_seen_are_shown_and_do_nothing(client: Client) -> None:
    for number, name in enumerate(SHOWN, start=21):
        said = {"question_id": number, "answer": "class", "class": name}
        reply = client.post("/api/answers", {"action": f"shown-{number:04}", "answers": [said]})
        assert reply.status == 200
        assert client.post("/api/classes/c1/rename", {"name": name}).status < 500
        assert walk_one(client, name) < 500
    assert walk(client) >= 8, "the names are on the pages"


def walk_one(client: Client, text: str) -> int:
    """The worst status of requests that carry a text where texts may stand."""
    word = quote(text.encode("utf-8", "surrogatepass"), safe="")
    requests = [
        client.get(f"/api/classes/similar?name={word}"),
        client.get(f"/images?source={word}&order={word}"),
        client.get(f"/map?pool={word}"),
        client.get(f"/api/classes/{text}/samples"),
        client.get(f"/thumbnails/{text}"),
        client.get(f"/api/export/{text}"),
        client.get(f"/pictures/{text}"),
        client.get(f"/api/images/{text}/around"),
        client.get(f"/api/images?source={word}&limit={word}"),
        client.get(f"/api/versions/{text}"),
        client.get(f"/api/events?after={word}"),
        client.form("/sign-in", f"token={word}"),
        client.form("/sign-in", f"token=x&next={word}"),
        *(client.post(path, {"action": "hostile-0001", **body}) for path, body in posts(text)),
    ]
    return max(reply.status for reply in requests)


def posts(text: str) -> list[tuple[str, dict[str, object]]]:
    """Changes that name things by a text; those that would be made name nothing that exists."""
    return [
        ("/api/images/teach", {"images": [text], "answer": "class", "class": text}),
        ("/api/images/undo", {"of": text}),
        ("/api/classes/merge", {"classes": [text, "c1"], "into": text}),
        (f"/api/classes/{text}/retire", {}),
        (f"/api/classes/{text}/wrong", {"samples": [text]}),
        ("/api/undo", {"of": text}),
        ("/api/questions/lease", {"limit": text}),
    ]


def imported(kind: str, text: str) -> bytes:
    if kind == "jsonl":
        return json.dumps({"question_id": 22, "class": text}).encode()
    if kind == "csv":
        cell = text.replace('"', '""')
        return f'question_id,class\n22,"{cell}"\n'.encode("utf-8", "surrogatepass")
    choice = {"from_name": "class", "type": "choices", "value": {"choices": [text]}}
    task = {"data": {"question_id": 22}, "annotations": [{"result": [choice]}]}
    return json.dumps([task]).encode()


def is_tidied(text: str) -> bool:
    return len(text) < 80 and " ".join(text.split()).isprintable()


def test_names_that_cannot_be_seen_are_refused(client: Client, store: Store) -> None:
    for number, text in enumerate([*REFUSED, LARGE]):
        said = {"question_id": 21, "answer": "class", "class": text}
        reply = client.post("/api/answers", {"action": f"refused-{number:04}", "answers": [said]})
        assert reply.status in (200, 400, 413, 422), reply.status
        if reply.status == 200 and not is_tidied(text):
            assert [one["fate"] for one in reply.json()["receipts"]] == ["refused"]
        for kind in ("jsonl", "csv", "label-studio"):
            reply = client.send("POST", f"/api/import/{kind}", imported(kind, text))
            assert reply.status < 500
            if reply.status == 200 and not is_tidied(text):
                assert reply.json()["counts"]["accepted"] == 0, (kind, text[:20])
        assert walk_one(client, text[:4000]) < 500, text[:40]
        renamed = client.post("/api/classes/c1/rename", {"name": text}).status
        assert renamed < 500 if is_tidied(text) else 400 <= renamed < 500
        if text is not LARGE:
            assert walk_one(client, text) < 500
    walk(client)
    with store.reading() as tx:
        assert all(row.name.isprintable() for row in tx.classes.all())
