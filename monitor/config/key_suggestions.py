"""What somebody probably meant by a key that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from monitor.config.fields import fields_of, section_at
from monitor.config.yaml_document import Key

# Far names are worth a guess only when they are nearly the same word (0.8 is one or two
# letters of an eight-letter word); among a section's few keys difflib's own 0.6 is safe.
ELSEWHERE_CUTOFF = 0.8


def suggest(model: type[BaseModel], key: Key) -> str:
    """The end of a sentence: the nearest name, or every name that the section has.

    >>> from monitor.config.schema import Config
    >>> suggest(Config, ("feed", "pth")), suggest(Config, ("path",))
    ('; did you mean feed.path?', '; did you mean feed.path?')
    >>> suggest(Config, ("state", "colour"))
    '; state has dir, url, keep_digests_days, keep_events_days'
    """
    section = section_at(model, key[:-1])
    if section is None:
        return f"; {'.'.join(key[:-1])} takes a value and has no keys"
    near = nearest(key[-1], section.model_fields)
    if near:
        return f"; did you mean {'.'.join((*key[:-1], near))}?"
    if far := difflib.get_close_matches(key[-1], _last_words(model), 1, ELSEWHERE_CUTOFF):
        return f"; did you mean {' or '.join(_last_words(model)[far[0]])}?"
    above = ".".join(key[:-1]) or "the configuration"
    return f"; {above} has {', '.join(section.model_fields)}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that looks most like ``word``, if any looks like it at all."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def _last_words(model: type[BaseModel]) -> Mapping[str, list[str]]:
    words: dict[str, list[str]] = {}
    for key in fields_of(model):
        words.setdefault(key[-1], []).append(".".join(key))
    return words
