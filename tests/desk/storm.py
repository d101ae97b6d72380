"""Many people answer at once, some of them twice, some too late, some change their minds."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, select

from monitor.store import Store
from monitor.store.states import AnswerKind, AnswerOutcome, QuestionState
from monitor.store.tables import answers, pools, questions

NAMES = ("water", "forest", "dune", "glacier", "sand")


@dataclass
class Tally:
    """What one annotator saw."""

    fates: Counter[str] = field(default_factory=Counter)
    undone: int = 0
    seconds: list[float] = field(default_factory=list)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.fates + other.fates, self.undone + other.undone, self.seconds + other.seconds
        )


def storm(url: str, tokens: Sequence[str], *, lend: int = 20, pause: float = 0.0) -> Tally:
    """Everybody works until nothing is open for them any more, thinking for ``pause`` seconds."""
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

    def post(path: str, body: dict[str, Any]) -> Any:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        began = time.perf_counter()
        connection.request("POST", path, json.dumps(body), headers)
        reply = connection.getresponse()
        data = reply.read()
        tally.seconds.append(time.perf_counter() - began)
        assert reply.status == 200, (path, reply.status, data)
        return json.loads(data)

    number = 0
    while mine := post("/api/questions/lease", {"limit": lend})["question_ids"]:
        while mine:
            # Some of what was lent is passed over, and comes back with the next loan.
            part, mine = mine[: rng.randint(1, 8)], mine[8:]
            number += 1
            time.sleep(pause)
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


def assert_whole(store: Store, tally: Tally) -> None:
    """None lost, none double, and the budget kept."""
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
