"""The desk under pressure: idle sockets, slow ones, guesses, large imports, nonsense."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.config.desk_section import ProxySection
from monitor.desk.app import build
from monitor.desk.connections import HEADER_SECONDS, PER_ADDRESS
from monitor.desk.rate_limits import Limiter
from monitor.desk.request_guard import Guard
from monitor.desk.route_table import RULES
from monitor.desk.server import Handle, start
from monitor.people.errors import ImportLeft
from monitor.people.exchange.parsed_answers import LONGEST_PAUSE, PIECE, take_in
from monitor.people.exchange.read_answers import read_answers
from monitor.store import Store
from tests.desk.browser import config_of
from tests.desk.client import Client
from tests.desk.conftest import Tokens
from tests.people import world


@pytest.fixture
def served(state: Path) -> Iterator[Handle]:
    handle = start(config_of(state))
    yield handle
    handle.stop()


def answered_within(url: str, seconds: float, source: str) -> float:
    """Ask from another address of this machine; how long it took."""
    parts = urlsplit(url)
    began = time.perf_counter()
    connection = http.client.HTTPConnection(
        parts.netloc, timeout=seconds, source_address=(source, 0)
    )
    with contextlib.closing(connection):
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
    return time.perf_counter() - began


def test_idle_sockets_of_one_address_keep_nobody_out(served: Handle) -> None:
    """``bench.desk_pressure`` opens two thousand."""
    parts = urlsplit(served.url)
    assert parts.hostname is not None
    assert parts.port is not None
    with contextlib.ExitStack() as held:
        for number in range(600):
            idle = held.enter_context(socket.create_connection((parts.hostname, parts.port)))
            if number % 2:
                idle.sendall(b"GET / HTTP/1.1\r\nX-")
        answered_within(served.url, 5, "127.0.0.2")
        answered_within(served.url, 5, "127.0.0.1")
        open_now = sum(1 for line in _connections(parts.port))
        assert open_now <= PER_ADDRESS + 2


def _connections(port: int) -> list[str]:
    """Established connections to a port, as the kernel lists them."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return [f[2] for f in fields if f[1].endswith(f":{port:04X}") and f[3] == "01"]


def test_a_header_that_never_ends_is_not_waited_for(served: Handle) -> None:
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        slow.settimeout(HEADER_SECONDS + 5)
        began = time.monotonic()
        ended = False
        while not ended and time.monotonic() - began < HEADER_SECONDS + 5:
            try:
                slow.sendall(b"X")  # a byte now and then wins no time
                slow.settimeout(1)
                ended = slow.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended
        assert time.monotonic() - began < HEADER_SECONDS + 3


def test_the_rate_of_an_address_is_limited_before_anybody_is_looked_up(store: Store) -> None:
    few = Limiter(rate=0, burst=2, clock=lambda: 0.0)
    client = Client(Guard(store, DeskConfig(), RULES, arrivals=few))
    assert [client.get("/api/pulse").status for _ in range(2)] == [200, 200]
    store.close()
    assert client.get("/api/pulse").status == 429, "without asking the store"


def test_who_leaves_in_the_middle_of_a_word_fills_no_log(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Signing in needs no identity, so anybody could have a page of the log written each time."""
    said: list[dict[str, object]] = [
        {"type": "http.request", "body": b"token=", "more_body": True},
        {"type": "http.disconnect"},
    ]
    answered: list[object] = []

    async def receive() -> dict[str, object]:
        return said.pop(0)

    async def send(message: object) -> None:
        answered.append(message)

    kind = b"application/x-www-form-urlencoded"
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/sign-in",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8484"), (b"content-type", kind)],
        "client": ("127.0.0.1", 1),
    }
    anyio.run(build(store, DeskConfig()), scope, receive, send)
    assert (said, answered, caplog.records) == ([], [], [])


def test_wrong_tokens_slow_down_their_own_address_only(store: Store, tokens: Tokens) -> None:
    few = Limiter(rate=0, burst=2, clock=lambda: 0.0)
    proxied = DeskConfig(address="https://desk.example", proxy=ProxySection())
    desk = Guard(store, proxied, RULES, attempts=few)

    def come(token: str, at: str) -> int:
        client = Client(desk, token=token, host="desk.example")
        return client.get("/api/pulse", x_forwarded_for=at).status

    assert [come("wrong", "192.0.2.1") for _ in range(3)] == [401, 401, 429]
    assert come("wrong", "192.0.2.2") == 401
    assert come(tokens["reader"], "192.0.2.1") == 200, "right ones go on working"
    # What a client writes itself comes first; the proxy's word comes last.
    assert come("wrong", "192.0.2.9, 192.0.2.1") == 429


def test_x_forwarded_for_means_nothing_without_a_proxy(store: Store, tokens: Tokens) -> None:
    few = Limiter(rate=0, burst=2, clock=lambda: 0.0)
    desk = Guard(store, DeskConfig(), RULES, attempts=few)
    seen = [
        Client(desk, token="wrong").get("/api/pulse", x_forwarded_for=f"192.0.2.{n}").status
        for n in range(3)
    ]
    assert seen == [401, 401, 429]


HUGE = "9" * 5000
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/answers", DEEP),
        ("/api/answers", '{"action": "abcdefgh", "answers": ' + DEEP + "}"),
        (
            "/api/answers",
            '{"action": "abcdefgh", "answers": [{"question_id": ' + "9" * 5000 + "}]}",
        ),
        ("/api/undo", '{"action": "abcdefgh", "question_id": ' + "9" * 30 + "}"),
        ("/api/import/jsonl", DEEP),
        ("/api/import/jsonl", '{"question_id": ' + "9" * 30 + ', "class": "x"}'),
        ("/api/import/jsonl", '{"question_id": ' + "9" * 5000 + ', "class": "x"}'),
        ("/api/import/label-studio", DEEP),
        ("/api/import/label-studio", '[{"data": {"question_id": 1e999}}]'),
        ("/api/import/csv", "question_id,class\n" + "9" * 5000 + ",x\n"),
    ],
)
def test_nonsense_is_refused_in_words(client: Client, path: str, body: str) -> None:
    reply = client.send("POST", path, body.encode(), headers={"content-type": "application/json"})
    assert reply.status in (200, 400, 422), reply.text
    if reply.status == 200:
        counts = reply.json()["counts"]
        assert (counts["accepted"], counts["unreadable"]) == (0, 1)
    assert len(reply.body) < 2000


def sheet(count: int, *, longer: int = 0) -> bytes:
    lines = (
        json.dumps({"question_id": n + 1, "class": "dune", "note": "x" * longer})
        for n in range(count)
    )
    return "\n".join(lines).encode()


def test_an_import_lets_others_write_in_between(store: Store) -> None:
    """Between its turns it rests for as long as each took, or longer on a crowded machine."""
    turns: list[tuple[float, float]] = []

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        began = time.monotonic()
        yield
        turns.append((began, time.monotonic()))

    content = sheet(3 * PIECE)
    take_in(store, read_answers("a.jsonl", content), who="ada", content=content, turn=turn)
    assert len(turns) == 3
    for (began, ended), (next_began, _) in pairwise(turns):
        assert next_began - ended >= 0.9 * min(ended - began, LONGEST_PAUSE)


def test_an_import_ends_when_its_sender_has_left_and_can_be_given_again(tmp_path: Path) -> None:
    with Store.open(tmp_path / "state") as store:
        world.fit(store)
        world.ask(store, 2 * PIECE + 1, budget=2 * PIECE + 1)
        content = sheet(2 * PIECE + 1)
        parsed, wanted = read_answers("a.jsonl", content), iter([True, False])
        with pytest.raises(ImportLeft, match=f"after {PIECE} of {2 * PIECE + 1}"):
            take_in(store, parsed, who="ada", content=content, is_wanted=lambda: next(wanted))
        with store.reading() as tx:
            assert tx.counts.open_questions() == PIECE + 1
        again = take_in(store, parsed, who="ada", content=content)
        assert (again.counts["repeated"], again.counts["accepted"]) == (PIECE, PIECE + 1)


def test_a_file_with_too_many_records_is_refused(client: Client) -> None:
    body = b'{"question_id": 1, "class": "x"}\n' * 20_001
    assert client.send("POST", "/api/import/jsonl", body).status == 422


def test_a_desk_that_is_asked_for_by_another_name_says_nothing(store: Store) -> None:
    assert Client(build(store, DeskConfig()), host="evil.example").get("/health").status == 403
