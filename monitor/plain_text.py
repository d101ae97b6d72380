r"""Text from outside: which names are taken in, and how anything is shown, lengths of time too.

Ids, class names and file names come from whoever writes the feed and end in databases, labels of
metrics, pages and terminals. A name is taken in if all of it can be seen and it is short; anything
else is refused where it enters. What is shown all the same (a reason, a message that quotes what
was refused) goes through :func:`visible`, so that no text moves a cursor or turns a line around.
"""

from __future__ import annotations

NAME_LONGEST = 256
"""Characters of an id: above any camera's naming scheme, a small part of a row in a database."""

PATH_LONGEST = 1024
"""Characters of a path below the feed's root: what object stores allow for a key."""

REASON_LONGEST = 500
"""Characters of a reason: two sentences and a quoted name."""

MESSAGE_LONGEST = 8000
"""Characters of a message: a long list of mistakes in a configuration, and no file's content."""


def name_problem(name: str) -> str | None:
    r"""What is wrong with a name, as the end of a sentence; None if it can be taken in.

    Refused in addition to control characters: what Unicode calls format characters (they turn text
    around, or cannot be seen), lone surrogates, and code points without a character. Any
    language's letters and all single emoji pass.

    >>> name_problem("cam-7/Ærø 0001.jpg"), name_problem("cam\x007")
    (None, 'holds U+0000, which cannot be shown')
    >>> name_problem("7" * 257)
    'has 257 characters; at most 256 are taken'
    """
    if len(name) > NAME_LONGEST:
        return f"has {len(name)} characters; at most {NAME_LONGEST} are taken"
    if name.isprintable():
        return None
    first = next(letter for letter in name if not letter.isprintable())
    return f"holds U+{ord(first):04X}, which cannot be shown"


def path_problem(path: str) -> str | None:
    """The same of a path, each part of which is a name.

    >>> path_problem("cam-7/2026/a.parquet"), path_problem("a" * 300 + "/b.parquet")
    (None, 'has 300 characters; at most 256 are taken')
    """
    if len(path) > PATH_LONGEST:
        return f"has {len(path)} characters; at most {PATH_LONGEST} are taken"
    if len(path) <= NAME_LONGEST and path.isprintable():
        return None
    return next(filter(None, map(name_problem, path.split("/"))), None)


def visible(text: str, longest: int = REASON_LONGEST, *, lines: bool = False) -> str:
    r"""Text that can be stored and shown anywhere: escaped where it could not be seen, and capped.

    ``lines`` keeps line breaks.

    >>> visible("a\x1b[31mb\nc"), visible("abcdef", 4)
    ('a\\x1b[31mb\\x0ac', 'abc…')
    """
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or (lines and letter == "\n") else _escaped(letter)
        for letter in text
    )


def _escaped(letter: str) -> str:
    number = ord(letter)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def span(seconds: float) -> str:
    """A length of time as a person says it.

    >>> span(40), span(150), span(7200), span(260_000)
    ('40 s', '2 min', '2 h', '3 d')
    """
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
