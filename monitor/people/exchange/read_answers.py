"""A file of answers in whichever of the formats it is."""

from __future__ import annotations

from monitor.people.errors import BadFile
from monitor.people.exchange import csv_jsonl as tables
from monitor.people.exchange import label_studio
from monitor.people.exchange.parsed_answers import MOST_RECORDS, Parsed

_READERS = {
    ".csv": tables.from_csv,
    ".jsonl": tables.from_jsonl,
    ".json": label_studio.from_tasks,
}


def read_answers(name: str, content: bytes) -> Parsed:
    """Chosen by the end of the name; the content is text in UTF-8.

    >>> read_answers("a.jsonl", b'{"question_id": 7, "class": "truck"}').said[0][1].class_
    'truck'
    """
    ending = name[name.rfind(".") :].lower()
    if ending not in _READERS:
        raise BadFile(f"{name}: not one of {', '.join(_READERS)}; rename it to say what it is")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(f"{name}: not text in UTF-8 (byte {error.start}); save it as UTF-8") from None
    try:
        parsed = _READERS[ending](text)
    except BadFile as error:
        raise BadFile(f"{name}: {error}") from None
    except RecursionError:
        raise BadFile(f"{name}: is nested too deeply to be answers") from None
    count = len(parsed.said) + len(parsed.problems) + parsed.left
    if count > MOST_RECORDS:
        raise BadFile(f"{name}: has {count:,} records; at most {MOST_RECORDS:,} go in one file")
    return parsed
