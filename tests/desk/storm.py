"""Many people answer at once, some of them twice, some too late, some change their minds."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, select

from monitor.people.teach_images import NO_IMAGE
from monitor.store import Store
from monitor.store.answer_kinds import AnswerKind, AnswerOutcome
from monitor.store.record_states import QuestionState, VersionState
from monitor.store.tables import answers, pools, questions

Send = Callable[..., tuple[int, bytes]]

NAMES = ("water", "forest", "dune", "glacier", "sand")


@dataclass
class Tally:
    """What one annotator saw."""

    fates: Counter[str] = field(default_factory=Counter)
    undone: int = 0
    seconds: list[float] = field(default_factory=list)
    """Of every request."""
    answer_seconds: list[float] = field(default_factory=list)
    """Of those that gave answers."""
    lessons: dict[str, str] = field(default_factory=dict)
    """What was taught from the gallery: the kind of answer by action; those taken back are gone."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.fates + other.fates,
            self.undone + other.undone,
            self.seconds + other.seconds,
            self.answer_seconds + other.answer_seconds,
            self.lessons | other.lessons,
        )


def storm(url: str, tokens: Sequence[str], *, lend: int = 20, pause: float = 0.0) -> Tally:
    """Everybody works until nothing is open for them any more.

    They think about an answer for ``pause`` seconds on average, half as long or half as long again,
    and do not begin in the same moment: people do not answer in step.
    """
    with ThreadPoolExecutor(len(tokens)) as crowd:
        work = [
            crowd.submit(_annotate, url, n, token, lend, pause) for n, token in enumerate(tokens)
        ]
        found = [one.result() for one in work]
    return sum(found, Tally())


def _annotate(url: str, seed: int, token: str, lend: int, pause: float) -> Tally:
    rng = random.Random(seed)
    tally = Tally()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)

    def send(path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        began = time.perf_counter()
        method = "GET" if body is None else "POST"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        data = reply.read()
        tally.seconds.append(time.perf_counter() - began)
        if path == "/api/answers":
            tally.answer_seconds.append(tally.seconds[-1])
        return reply.status, data

    def post(path: str, body: dict[str, Any]) -> Any:
        status, data = send(path, body)
        assert status == 200, (path, status, data)
        return json.loads(data)

    number = 0
    time.sleep(pause * rng.random())
    while mine := post("/api/questions/lease", {"limit": lend})["question_ids"]:
        while mine:
            # Some of what was lent is passed over, and comes back with the next loan.
            part, mine = mine[: rng.randint(1, 8)], mine[8:]
            number += 1
            time.sleep(pause * rng.uniform(0.5, 1.5))
            if rng.random() < 0.2:
                _browse(rng, send, tally, f"{seed}-{number}")
            body = {
                "action": f"annotator-{seed}-{number}",
                "answers": [
                    {"question_id": one, "answer": "class", "class": rng.choice(NAMES)}
                    for one in part
                ],
            }
            first = post("/api/answers", body)
            tally.fates.update(one["fate"] for one in first["receipts"])
            if rng.random() < 0.3:  # the connection broke, the browser sends again
                again = post("/api/answers", body)
                tally.fates.update(one["fate"] for one in again["receipts"])
            if rng.random() < 0.1 and any(r["fate"] == "accepted" for r in first["receipts"]):
                back = post("/api/undo", {"action": f"undoing-{seed}-{number}"})
                tally.undone += len(back["question_ids"])
            if rng.random() < 0.1:  # somebody answers what was lent to others
                number += 1
                other = {"question_id": rng.choice(part) % 7 + 1, "answer": "cannot_tell"}
                body = {"action": f"annotator-{seed}-{number}", "answers": [other]}
                tally.fates.update(r["fate"] for r in post("/api/answers", body)["receipts"])
    connection.close()
    return tally


def _browse(rng: random.Random, send: Send, tally: Tally, key: str) -> None:
    """Look around as people do between two answers, and now and then teach from the gallery."""

    def get(path: str) -> bytes:
        status, data = send(path)
        assert status == 200, (path, status, data)
        return data

    for path in ("/", "/questions/part", "/api/pulse", "/classes", "/history"):
        if rng.random() < 0.3:
            get(path)
    shown = json.loads(get(f"/api/images?limit=20&offset={rng.randrange(60)}"))["images"]
    if not shown:
        return
    some = [one["id"] for one in rng.sample(shown, min(3, len(shown)))]
    get(f"/pictures/{some[0]}")
    if rng.random() < 0.1:
        get("/api/pools/1/map")
        get(f"/api/images/{some[0]}/around")
    if rng.random() < 0.3:
        _teach(rng, send, tally, key, some)


def _teach(rng: random.Random, send: Send, tally: Tally, key: str, images: list[str]) -> None:
    action = f"lesson-{key}"
    body: dict[str, Any] = {"action": action, "images": images, "answer": "bad_image"}
    if rng.random() < 0.2:
        body |= {"answer": "class", "class": rng.choice(("glacier", "sand"))}
    status, data = send("/api/images/teach", body)
    # Fifty versions at once: whoever loses the race five times is told so, and can try again.
    assert status in (200, 409), (status, data)
    if status == 409:
        tally.fates["lesson refused"] += 1
        return
    tally.lessons[action] = body["answer"]
    assert send("/api/images/teach", body)[0] == 200, "sent again, it changes nothing"
    if rng.random() < 0.3:
        status, data = send("/api/images/undo", {"action": f"unlearn-{key}", "of": action})
        assert status in (200, 409), (status, data)
        if status == 200:
            del tally.lessons[action]


def assert_whole(store: Store, tally: Tally) -> None:
    """None lost, none double, and the budget kept."""
    with store.reading() as tx:
        taught = {one.key for one in tx.versions.all() if one.state is VersionState.PUBLISHED}
        aside = {one["action"] for one in tx.notes.all(NO_IMAGE).values()}
    named = {action for action, kind in tally.lessons.items() if kind == "class"}
    assert {f"teach:{action}" for action in named} <= taught, "every lesson is a version"
    assert aside <= set(tally.lessons), "what was taken back is back"
    with store.reading() as tx:
        counted = tx.connection.execute(
            select(questions.c.state, func.count()).group_by(questions.c.state)
        )
        states: Counter[QuestionState] = Counter(dict(counted.tuples().all()))
        total = sum(states.values())
        assert states == {QuestionState.ANSWERED: total}, "nothing is left open"
        rows = tx.connection.execute(
            select(answers.c.question_id, answers.c.kind, answers.c.outcome, answers.c.undoes)
        ).all()
        spent = tx.connection.execute(select(pools.c.asked, pools.c.budget)).all()
        standing = tx.connection.execute(
            select(func.count(func.distinct(questions.c.answer_id)))
        ).scalar_one()
    accepted = Counter(
        row.question_id
        for row in rows
        if row.outcome is AnswerOutcome.ACCEPTED and row.kind is not AnswerKind.UNDO
    )
    undone = Counter(row.question_id for row in rows if row.kind is AnswerKind.UNDO)
    assert all(accepted[one] - undone[one] == 1 for one in accepted), "one answer each stands"
    assert len(accepted) == standing == total
    assert sum(accepted.values()) == tally.fates["accepted"], "every receipt is kept, once"
    assert sum(undone.values()) == tally.undone
    conflicts = sum(row.outcome is AnswerOutcome.CONFLICT for row in rows)
    assert conflicts == tally.fates["conflict"]
    assert all(row.asked <= row.budget for row in spent)
