"""Path patterns: which part of a path is the source, the label and the time.

`{source}/{label}/{time:%Y%m%dT%H%M%S}_*.jpg` is matched against the path below the source that
was named, with forward slashes. `*` stands for anything within a folder, `**` for any folders,
`?` for one character; `{source}`, `{label}` and `{id}` for one or more characters within a
folder; `{time:FORMAT}` for a moment in the codes of strptime.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from monitor.ingest.errors import OptionRefused

FIELDS = ("source", "label", "id", "time")

# How many characters each code of strptime may take, so that a time ends where it should.
_CODES = {
    "Y": r"\d{4}", "y": r"\d{2}", "m": r"\d{1,2}", "d": r"\d{1,2}", "j": r"\d{1,3}",
    "H": r"\d{1,2}", "I": r"\d{1,2}", "M": r"\d{1,2}", "S": r"\d{1,2}", "f": r"\d{1,6}",
    "p": r"[AaPp][Mm]", "z": r"(?:Z|[+-]\d{2}:?\d{2})", "b": r"[A-Za-z]+", "B": r"[A-Za-z]+",
    "s": r"\d{9,11}", "%": "%",
}  # fmt: skip
# Without a separator "%Y%m%d" must not read 2026-1-112: two digits where the next is a code, too.
_TWO_DIGITS = dict.fromkeys("mdHIMS", r"\d{2}")
_PIECE = re.compile(r"\{(\w+)(?::([^{}]+))?\}|\*\*/?|\*|\?|[^{}*?]+|.")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a path says about its image; None where the pattern has no such field."""

    source: str | None = None
    label: str | None = None
    image_id: str | None = None
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A compiled pattern.

    >>> pattern = PathPattern.parse("{source}/{label}/{time:%Y%m%dT%H%M%S}_*.jpg")
    >>> found = pattern.match("cam-1/boat/20260311T070509_8.jpg")
    >>> found.source, found.label, found.time.isoformat()
    ('cam-1', 'boat', '2026-03-11T07:05:09+00:00')
    >>> pattern.match("cam-1/readme.jpg") is None
    True
    """

    text: str
    expression: re.Pattern[str]
    time_format: str | None
    zone: tzinfo = UTC

    @classmethod
    def parse(cls, text: str, zone: tzinfo = UTC) -> PathPattern:
        expression, seen, time_format = "", set[str](), None
        for piece in _PIECE.finditer(text):
            name, code = piece[1], piece[2]
            if name is None:
                expression += _wildcard(piece[0], text)
                continue
            _check_field(name, code, seen, text)
            seen.add(name)
            if name == "time":
                time_format = code
                expression += f"(?P<time>{_of_time(code, text)})"
            else:
                expression += f"(?P<{name}>[^/]+?)"
        if not seen:
            raise OptionRefused(
                f"--pattern {text!r}: names none of {{source}}, {{label}}, {{id}} and "
                "{time:FORMAT}; without one it says nothing about an image"
            )
        return cls(text, re.compile(expression), time_format, zone)

    def match(self, path: str) -> Parts | None:
        """What a path says, or None if it is not of this form."""
        found = self.expression.fullmatch(path)
        if found is None:
            return None
        fields = found.groupdict()
        time = None
        if self.time_format is not None:
            time = _moment(fields["time"], self.time_format, self.zone)
            if time is None:
                return None
        return Parts(fields.get("source"), fields.get("label"), fields.get("id"), time)


def _wildcard(piece: str, text: str) -> str:
    if piece in "{}":
        raise OptionRefused(
            f"--pattern {text!r}: a brace is not closed; fields are {{source}}, {{label}}, {{id}} "
            "and {time:FORMAT}"
        )
    fixed = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return fixed.get(piece, re.escape(piece))


def _check_field(name: str, code: str | None, seen: set[str], text: str) -> None:
    if name not in FIELDS:
        raise OptionRefused(
            f"--pattern {text!r}: no field is called {{{name}}}; there are {{source}}, {{label}}, "
            "{id} and {time:FORMAT}"
        )
    if name in seen:
        raise OptionRefused(f"--pattern {text!r}: {{{name}}} stands in it twice; take one out")
    if name == "time" and not code:
        raise OptionRefused(
            f"--pattern {text!r}: {{time}} needs its format, such as {{time:%Y%m%dT%H%M%S}}"
        )
    if name != "time" and code:
        raise OptionRefused(f"--pattern {text!r}: only {{time}} takes a format, not {{{name}}}")


def _of_time(code: str, text: str) -> str:
    out, at = "", 0
    while at < len(code):
        if code[at] != "%":
            out += re.escape(code[at])
            at += 1
            continue
        letter = code[at + 1 : at + 2]
        if letter not in _CODES:
            raise OptionRefused(
                f"--pattern {text!r}: %{letter} is not a code for times; use those of strptime, "
                f"such as %Y %m %d %H %M %S %f, or %s for seconds since 1970"
            )
        at += 2
        dense = code[at : at + 1] == "%" or code[at - 4 : at - 3] == "%"
        out += _TWO_DIGITS.get(letter, _CODES[letter]) if dense else _CODES[letter]
    return out


def _moment(text: str, code: str, zone: tzinfo) -> datetime | None:
    try:
        if code == "%s":
            return datetime.fromtimestamp(int(text), UTC)
        moment = datetime.strptime(text, code)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
