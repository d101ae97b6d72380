"""The rules that a request is matched against: method, path, role, parameters; default deny.

A request is matched against the table before anything else looks at it; a route that somebody
adds to the application by other means is never reached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from monitor.desk.roles_and_tokens import Role

SMALL_BODY = 256 * 1024
"""Five hundred answers with long names fit twice."""

#: What each kind of parameter in a path looks like; nothing else gets through.
PATTERNS: Mapping[str, str] = {
    "class_id": r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}",
    "number": r"[0-9]{1,9}",
    "of": r"[0-9]{1,9}",
    "to": r"[0-9]{1,9}",
    "digest": r"[0-9a-f]{64}",
    "image": r"[0-9a-f]{32}",
    "name": r"[a-z_]{1,32}\.[a-z]{2,4}",
    "kind": r"csv|jsonl|label-studio",
}

_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Rule:
    """One thing that can be asked for."""

    method: str
    path: str
    role: Role
    handler: Callable[..., Response | Any]
    summary: str
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    body_most: int = SMALL_BODY
    raw_body: bool = False
    in_turns: bool = False
    """Whether the handler takes its turns to write itself, many short ones."""
    form: bool = False
    html: bool = False
    errors: Sequence[int] = field(default=())

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        text = _PARAMETER.sub(lambda found: f"(?P<{found[1]}>{PATTERNS[found[1]]})", self.path)
        return re.compile(text)

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters of a path, if it is one of this rule's.

        >>> rule = Rule("GET", "/thumbnails/{digest}", Role.READER, print, "")
        >>> rule.match("/thumbnails/../conclad.db") is None
        True
        """
        found = self._pattern.fullmatch(path)
        return None if found is None else found.groupdict()

    @property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)

    @property
    def changes(self) -> bool:
        """Whether it may change anything, and so must come from our own page."""
        return self.method != "GET"
