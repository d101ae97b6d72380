"""Events in the words of a message to people, each with a link to where they can act."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.plain_text import visible
from monitor.store.errors import StoreError
from monitor.store.exemplars import exemplars_of, get_thumbnail
from monitor.store.records import Event
from monitor.store.store import Store, Transaction

PICTURES = 4
"""In one message: what fits on a phone without scrolling."""

MOST_LINES, LONGEST_LINE = 20, 300
"""In one message, and characters of a line: forty cameras that a storm has shaken, each with a long
name, would fill more than any chat takes, and what it does not take is not delivered at all."""

_FIRST = ("class.discovered", "questions.opened", "detector.held")
"""What people wait for: said first where not everything can be said."""


@dataclass(frozen=True, slots=True)
class Line:
    """One event: a sentence, and the page of the desk that it leads to."""

    text: str
    link: str


@dataclass(frozen=True, slots=True)
class Message:
    """What people are sent: one event, or several that happened close together."""

    title: str
    lines: tuple[Line, ...]
    pictures: tuple[bytes, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(f"{line.text}\n{line.link}" for line in self.lines)


def compose(store: Store, events: Sequence[Event], desk_url: str) -> Message:
    """One message of all of them.

    >>> from datetime import UTC, datetime
    >>> event = Event(1, datetime(2026, 1, 1, tzinfo=UTC), "questions.opened", None, {"count": 12})
    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     message = compose(store, [event], "https://desk.example")
    >>> message.title, message.lines[0].link
    ('12 questions are waiting', 'https://desk.example/questions')
    """
    base = desk_url.rstrip("/")
    shown = len(events)
    if shown > MOST_LINES:
        shown = MOST_LINES - 1
        events = sorted(events, key=lambda event: event.kind not in _FIRST)
    lines = [_line(event, base) for event in events[:shown]]
    title = lines[0].text if len(events) == 1 else f"{len(events):,} things happened"
    if shown < len(events):
        lines.append(Line(f"and {len(events) - shown:,} more", f"{base}/history"))
    return Message(title, tuple(lines), tuple(_pictures(store, events)))


def _line(event: Event, desk_url: str) -> Line:
    words, path = _WORDS.get(event.kind, (lambda e: e.kind.replace(".", " "), "/history"))
    try:
        text = words(event)
    except (KeyError, TypeError, ValueError):
        text = event.kind.replace(".", " ")
    if event.kind == "class.discovered":
        path = f"/classes#{event.payload.get('class_id', '')}"
    return Line(visible(text, LONGEST_LINE), desk_url + path)


def _pictures(store: Store, events: Sequence[Event]) -> list[bytes]:
    """Of the classes that were discovered, or of the questions that were asked."""
    digests: list[str] = []
    with store.reading() as tx:
        for event in events:
            if event.kind == "class.discovered":
                digests += _named(tx, event.payload)
                digests += [one.thumbnail for one in exemplars_of(tx, event.payload["class_id"])]
            elif event.kind == "questions.opened" and "pool" in event.payload:
                asked = tx.questions.of_pool(event.payload["pool"], event.payload.get("round"))
                digests += [one.thumbnail for one in asked if one.thumbnail is not None]
    found = []
    for digest in dict.fromkeys(digests):
        try:
            found.append(get_thumbnail(store.folder, digest))
        except StoreError:
            continue  # deleted since: the message goes without it
        if len(found) == PICTURES:
            break
    return found


def _named(tx: Transaction, said: Mapping[str, Any]) -> list[str]:
    """The pictures that people gave a class's name to; its others are rendered a little later."""
    if said.get("pool") is None:
        return []
    standing = tx.answers.standing(said["pool"])
    return [
        one.thumbnail
        for one in tx.questions.of_pool(said["pool"])
        if one.thumbnail is not None
        and one.id in standing
        and standing[one.id].class_id == said["class_id"]
    ]


def _discovered(event: Event) -> str:
    said = event.payload
    where = ", ".join(said.get("sources") or ()) or event.source or ""
    counts = f"{said['human']} by people, {said['pseudo']} by itself"
    return f"New class {said['name']}: {counts}" + (f" ({where})" if where else "")


def _drift(event: Event) -> str:
    words = ", ".join(event.payload.get("words") or ()) or "known images look different"
    return f"{event.source}: {words}. A dirty lens?"


def _because(payload: Mapping[str, Any]) -> str:
    return f": {payload['reason']}" if payload.get("reason") else ""


def _questions(event: Event) -> str:
    count = int(event.payload["count"])
    return "1 question is waiting" if count == 1 else f"{count} questions are waiting"


_WORDS: dict[str, tuple[Callable[[Event], str], str]] = {
    "class.discovered": (_discovered, "/classes"),
    "questions.opened": (_questions, "/questions"),
    "drift.detected": (_drift, "/"),
    "drift.ended": (lambda e: f"{e.source}: looks as usual again", "/"),
    "detector.updated": (
        lambda e: f"Detector version {e.payload['version']} is in use{_because(e.payload)}",
        "/history",
    ),
    "detector.held": (
        lambda e: f"Detector version {e.payload['version']} waits for you{_because(e.payload)}",
        "/history",
    ),
    "pool.unresolved": (lambda e: f"Questions were left open{_because(e.payload)}", "/questions"),
    "budget.exhausted": (lambda e: "This week's questions are used up", "/"),
    "file.quarantined": (lambda e: f"A file was quarantined{_because(e.payload)}", "/history"),
    "batch.quarantined": (lambda e: f"A batch was quarantined{_because(e.payload)}", "/history"),
}
