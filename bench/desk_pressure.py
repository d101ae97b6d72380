"""The desk under pressure: idle sockets, and a large import while fifty people answer.

    python -m bench.desk_pressure [--people 50] [--questions 3000] [--sockets 2000] [--megabytes 8]

Others must be answered within a second while one address holds the sockets, and 95% of the people's
answers while the import runs. The same people answer without an import first: what they wait for
then is the machine's doing, and a bound that is missed already there says nothing of the import.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from monitor.desk.roles_and_tokens import Role, add_token
from monitor.desk.server import start
from monitor.store import Store
from tests.desk.browser import config_of
from tests.desk.storm import storm
from tests.people import world

PAUSE = 2.0
"""Seconds that a person thinks about an answer: thirty answers a minute, faster than most."""


def ask(url: str, source: str, *, path: str = "/health") -> float:
    began = time.perf_counter()
    connection = http.client.HTTPConnection(
        urlsplit(url).netloc, timeout=60, source_address=(source, 0)
    )
    with contextlib.closing(connection):
        connection.request("GET", path)
        assert connection.getresponse().status == 200
    return time.perf_counter() - began


def idle_sockets(url: str, count: int) -> dict[str, float]:
    """How long others wait while one address holds sockets that say nothing, or half a header."""
    parts = urlsplit(url)
    with contextlib.ExitStack() as held:
        for number in range(count):
            one = held.enter_context(
                socket.create_connection((parts.hostname or "", parts.port or 0))
            )
            with contextlib.suppress(OSError):
                one.sendall(b"GET / HTTP/1.1\r\nX-" if number % 2 else b"")
        other = [ask(url, "127.0.0.2") for _ in range(20)]
        same = [ask(url, "127.0.0.1") for _ in range(20)]
    return {"other_address_worst_s": max(other), "same_address_worst_s": max(same)}


IMPORTED = 1000
"""Questions that the import answers, over and over: the first answer counts, the others are kept
as conflicts, and each is a row that is written. The people have the others for themselves."""


ALONE = 500
"""Questions that the people answer before the import begins."""


def sheet(megabytes: float) -> bytes:
    """Answers to the questions that come next, filled up to a size."""
    records = 19_000
    filler = "x" * max(0, int(megabytes * 2**20 / records) - 60)
    lines = (
        json.dumps({"question_id": ALONE + n % IMPORTED + 1, "class": "dune", "note": filler})
        for n in range(records)
    )
    return "\n".join(lines).encode()[: int(megabytes * 2**20)]


def send_import(url: str, token: str, body: bytes, told: dict[str, object]) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=600)
    began = time.perf_counter()
    connection.request("POST", "/api/import/jsonl", body, {"authorization": f"Bearer {token}"})
    reply = connection.getresponse()
    told.update(status=reply.status, seconds=round(time.perf_counter() - began, 1))
    told["counts"] = json.loads(reply.read()).get("counts")
    connection.close()


BOUND_SECONDS = 1.0


def late(seconds: list[float]) -> float:
    """What 95% of them stay below."""
    return sorted(seconds)[int(0.95 * (len(seconds) - 1))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--questions", type=int, default=3000)
    parser.add_argument("--sockets", type=int, default=2000)
    parser.add_argument("--megabytes", type=float, default=8)
    chosen = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    questions = chosen.questions + IMPORTED
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with Store.open(state) as store:
            world.fit(store)
            world.ask(store, ALONE, budget=ALONE)
            names = [f"annotator {n}" for n in range(chosen.people)]
            tokens = [add_token(store, name, Role.ANNOTATOR) for name in names]
            importer = add_token(store, "importer", Role.ANNOTATOR)
        handle = start(config_of(state))
        told: dict[str, object] = {}
        try:
            waits = idle_sockets(handle.url, chosen.sockets)
            alone = storm(handle.url, tokens, pause=PAUSE)
            with Store.open(state) as store:
                world.ask(store, questions, budget=questions, pool=2)
            body = sheet(chosen.megabytes)
            other = threading.Thread(target=send_import, args=(handle.url, importer, body, told))
            other.start()
            tally = storm(handle.url, tokens, pause=PAUSE)
            other.join()
        finally:
            handle.stop()
    print(
        json.dumps(
            {
                "idle_sockets": chosen.sockets,
                **{name: round(value, 3) for name, value in waits.items()},
                "import": told,
                "requests": len(tally.seconds),
                "median_s": round(statistics.median(tally.seconds), 3),
                "p95_s": round(late(tally.seconds), 3),
                "answers_alone_p95_s": round(late(alone.answer_seconds), 3),
                "answers": len(tally.answer_seconds),
                "answers_p95_s": round(late(tally.answer_seconds), 3),
            },
            indent=2,
        )
    )
    bounds = {
        "others beside idle sockets": max(waits.values()),
        "95% of answers beside an import": late(tally.answer_seconds),
    }
    for what, worst in bounds.items():
        print(f"{what}: {worst:.3f} s, {'met' if worst < BOUND_SECONDS else 'NOT MET'}")
    return 0 if told.get("status") == 200 and max(bounds.values()) < BOUND_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
