"""What happened, in sentences, for the history page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select

from monitor.store.records import Event
from monitor.store.store import Store
from monitor.store.tables import events

LATEST = 200
"""Entries on the page; the API has the rest."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    at: datetime
    kind: str
    source: str | None
    text: str
    tone: str
    """good, plain, warn or bad: the colour of its dot."""


def read_timeline(store: Store) -> list[HistoryEntry]:
    """The latest first."""
    with store.reading() as tx:
        rows = tx.connection.execute(
            select(events).order_by(events.c.id.desc()).limit(LATEST)
        ).mappings()
        found = [Event(**dict(row)) for row in rows]
        names = {row.id: row.name for row in tx.classes.all()}
    return [_entry(event, names) for event in found]


def _entry(event: Event, names: Mapping[str, str]) -> HistoryEntry:
    known = SENTENCES.get(event.kind)
    if known is None:
        return HistoryEntry(
            event.at, event.kind, event.source, event.kind.replace(".", " "), "plain"
        )
    tone, sentence = known
    try:
        text = sentence({**event.payload, "names": names})
    except (KeyError, TypeError, ValueError):
        # Written by an older or a newer conclad: what happened is still worth showing.
        text = event.kind.replace(".", " ")
    return HistoryEntry(event.at, event.kind, event.source, text, tone)


def _named(payload: Mapping[str, Any]) -> str:
    names, class_id = payload["names"], payload.get("class_id")
    return str(names.get(class_id, payload.get("name", class_id)))


def _updated(payload: Mapping[str, Any]) -> str:
    brought = [payload["names"].get(one, one) for one in payload.get("classes", ())]
    what = f", which knows {', '.join(brought)}" if brought else ""
    why = f" ({payload['reason']})" if payload.get("reason") and not brought else ""
    return f"Detector version {payload['version']} is in use{what}{why}"


def _because(payload: Mapping[str, Any]) -> str:
    return f": {payload['reason']}" if payload.get("reason") else ""


def _triggered(payload: Mapping[str, Any]) -> str:
    seen = f"{sum(payload['novel'].values())} of {payload['images']} images look new"
    # A beginning shift is asked about, and so is anything with pools.trigger=any, whatever chance.
    more = ", more than chance explains" if payload["chance"] <= payload["level"] else ""
    return f"Pool {payload['pool']}: {seen}{more}"


def _probed(payload: Mapping[str, Any]) -> str:
    return (
        f"Pool {payload['pool']} shows nothing beyond chance; {payload['budget']} questions about "
        "what looks newest make sure"
    )


def _quiet(payload: Mapping[str, Any]) -> str:
    asked = f" after {payload['asked']} questions" if payload.get("asked") else ""
    return f"Pool {payload['pool']}: nothing new{asked}"


def _settled(payload: Mapping[str, Any]) -> str:
    counts = payload["verdicts"]
    words = {"new": "new", "known": "known", "shifted": "known but look different"}
    told = [f"{counts[kind]:,} {word}" for kind, word in words.items() if counts.get(kind)]
    if counts.get("undecided"):
        told.append(f"{counts['undecided']:,} undecided")
    return f"Pool {payload['pool']} is finished: of {_images(payload['images'])}, {', '.join(told)}"


_VIA: Mapping[str, str] = {"token": "token", "proxy": "the proxy", "oidc": "OpenID Connect"}

_Sentence = Callable[[Mapping[str, Any]], str]

SENTENCES: dict[str, tuple[str, _Sentence]] = {
    "class.discovered": (
        "good",
        lambda p: (
            f"Discovered {_named(p)}: {_images(p['human'])} by people, {p['pseudo']:,} by itself"
        ),
    ),
    "class.grown": (
        "good",
        lambda p: f"{_named(p)} learnt more images of pool {p['pool']}: {_from_whom(p)}",
    ),
    "class.confirmed": (
        "good",
        lambda p: f"{_named(p)} is confirmed by the answers about pool {p['pool']}",
    ),
    "class.renamed": ("plain", lambda p: f"{p['from']} is now called {p['to']} ({p['who']})"),
    "class.merged": (
        "plain",
        lambda p: (
            f"{', '.join(p['names'].get(i, i) for i in p['merged'])} became part of {p['into']} "
            f"({p['who']})"
        ),
    ),
    "class.taken_back": ("plain", lambda p: f"A correction was taken back ({p['who']})"),
    "class.taught": (
        "good",
        lambda p: f"{p['who']} taught {_named(p)} with {_images(p['human'])}",
    ),
    "images.no_image": (
        "plain",
        lambda p: f"{_images(p['count'])} marked as not an image ({p['who']})",
    ),
    "images.taken_back": ("plain", lambda p: f"{_images(p['count'])} are back ({p['who']})"),
    "class.retired": ("plain", lambda p: f"{p['name']} was retired ({p['who']})"),
    "pseudo_label.wrong": (
        "plain",
        lambda p: f"{p['image_id']} is no {p['name']} after all ({p['who']})",
    ),
    "detector.updated": ("good", _updated),
    "detector.held": (
        "warn",
        lambda p: f"Detector version {p['version']} waits for an operator{_because(p)}",
    ),
    "detector.refused": (
        "bad",
        lambda p: f"Detector version {p['version']} was refused{_because(p)}",
    ),
    "detector.rolled_back": (
        "warn",
        lambda p: f"Rolled back to detector version {p['version']}{_because(p)}",
    ),
    "questions.opened": (
        "plain",
        lambda p: f"Pool {p['pool']}: {_questions(p['count'])} asked",
    ),
    "questions.closed": (
        "plain",
        lambda p: f"Pool {p['pool']}: {_questions(p['answered'])} answered{_left_open(p)}",
    ),
    "pool.triggered": ("warn", _triggered),
    "pool.probed": ("plain", _probed),
    "pool.quiet": ("plain", _quiet),
    "pool.settled": ("plain", _settled),
    "pool.unresolved": ("warn", lambda p: f"Pool {p['pool']} stays unresolved{_because(p)}"),
    "detector.adapted": (
        "plain",
        lambda p: f"Learnt how {', '.join(p['classes'])} look there now",
    ),
    "drift.detected": ("warn", lambda p: f"Known images drift{_words(p)}"),
    "drift.corrected": ("plain", lambda p: "Images are judged with the shift corrected"),
    "drift.ended": ("plain", lambda p: f"The drift is over{_words(p)}"),
    "file.quarantined": ("bad", lambda p: f"A file was quarantined{_because(p)}"),
    "file.replaced": ("warn", lambda p: f"{p['file']} was replaced by another file"),
    "file.returned": ("plain", lambda p: f"{p['file']} is back, and read again"),
    "image.changed": (
        "warn",
        lambda p: f"{p['file']}, row {p['row']}, is another image than the one that was judged",
    ),
    "quarantine.retried": (
        "plain",
        lambda p: f"{p['files']} files that were quarantined are tried again ({p['who']})",
    ),
    "quarantine.dropped": (
        "plain",
        lambda p: f"{p['files']} files that were quarantined are given up ({p['who']})",
    ),
    "file.changed": ("bad", lambda p: "A file changed after it had been read"),
    "batch.quarantined": ("bad", lambda p: f"A batch was quarantined{_because(p)}"),
    "budget.exhausted": ("warn", lambda p: "This week's questions are used up"),
    "monitor.started": ("plain", lambda p: "The monitor started"),
    "monitor.stopped": ("plain", lambda p: "The monitor stopped"),
    "actor.restarted": ("warn", lambda p: "A worker was started again"),
    "token.added": (
        "plain",
        lambda p: f"{p['name']} may come to the desk ({p['role']}){_by(p)}",
    ),
    "token.removed": ("plain", lambda p: f"{p['name']} may no longer come to the desk{_by(p)}"),
    "desk.signed_in": (
        "plain",
        lambda p: f"{p['who']} signed in ({p['role']}, by {_VIA.get(p['via'], p['via'])})",
    ),
    "desk.signed_out": ("plain", lambda p: f"{p['who']} signed out"),
    "state.purged": (
        "warn",
        lambda p: f"{p['who']} purged what was kept of {p['source']} from before {p['before']}",
    ),
}


def _from_whom(payload: Mapping[str, Any]) -> str:
    people = f"{payload['human']:,} by people, " if payload["human"] else ""
    return f"{people}{payload['pseudo']:,} by itself"


def _by(payload: Mapping[str, Any]) -> str:
    return f", says {payload['by']}" if payload.get("by") else ""


def _questions(count: int) -> str:
    return "1 question" if count == 1 else f"{count:,} questions"


def _left_open(payload: Mapping[str, Any]) -> str:
    return f", {payload['unanswered']:,} left open" if payload.get("unanswered") else ""


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"


def _words(payload: Mapping[str, Any]) -> str:
    """How the images have changed, if that could be said: darker, blurred, …"""
    return f": {', '.join(payload['words'])}" if payload.get("words") else ""
