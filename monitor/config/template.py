"""The commented file that ``conclad init`` writes, and the table of the reference page."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from monitor.config.errors import ConfigExists
from monitor.config.fields import fields_of, section_at
from monitor.config.schema import Config

HEADER = """\
# The configuration of conclad. Every key is here with its default; delete what you do not change.
# Any key can also be set by a variable (CONCLAD_FEED__PATH=…) or a flag (--set feed.path=…),
# which override this file in that order. 'conclad config show' prints each value and its origin.
"""
WIDTH = 98


def commented_yaml(model: type[BaseModel] = Config) -> str:
    """The defaults as YAML, each key under its description."""
    return HEADER + "".join(_section_lines(model, 0))


def write_template(path: Path, *, force: bool = False) -> None:
    """Write the commented file; an existing one is left alone unless ``force``."""
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(commented_yaml())
    except FileExistsError:
        raise ConfigExists(
            f"{path}: already there; give another name, or --force to replace it"
        ) from None
    except OSError as error:
        raise ConfigExists(f"{path}: cannot be written ({error.strerror})") from None


def reference_table(model: type[BaseModel] = Config) -> str:
    """Every key as a row of a Markdown table: what it takes, its default, its meaning."""
    rows = ["| key | takes | default | meaning |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{field.dotted}` | {describe(field.annotation).replace('|', chr(92) + '|')} "
        f"| `{scalar(field.default)}` | {field.description} |"
        for field in fields_of(model).values()
    ]
    return "\n".join(rows) + "\n"


def scalar(value: Any) -> str:
    """A value as YAML on one line that reads back as the same value.

    >>> scalar(None), scalar("feed"), scalar("no"), scalar((1, 2)), scalar(0.5)
    ('null', 'feed', "'no'", '[1, 2]', '0.5')
    """
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=sys.maxsize)
    return str(text).removesuffix("...\n").strip()


def describe(annotation: Any) -> str:
    """A type in people's words.

    >>> describe(Literal["a", "b"] | None), describe(tuple[int, ...])
    ('`a`, `b` or nothing', 'a list of whole numbers')
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{scalar(value)}`" for value in arguments)
    if origin in (Union, UnionType):
        words = [describe(part) for part in arguments if part is not NoneType]
        return " or ".join([*words, "nothing"] if NoneType in arguments else words)
    if origin is tuple:
        many = "" if Ellipsis in arguments else f"{len(arguments)} "
        return f"a list of {many}{_PLURAL.get(arguments[0], 'values')}"
    return _WORDS.get(origin or annotation, str(annotation))


_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "`true` or `false`",
    dict: "keys and values",
}
_PLURAL = {int: "whole numbers", float: "numbers", str: "texts"}


def _section_lines(model: type[BaseModel], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, info in model.model_fields.items():
        section = section_at(model, (name,))
        if section is not None:
            yield "\n" if depth == 0 else ""
            yield from _comment(section.__doc__ or "", indent)
            yield f"{indent}{name}:\n"
            yield from _section_lines(section, depth + 1)
        else:
            yield "\n" if depth == 0 else ""
            yield from _comment(info.description or "", indent)
            yield f"{indent}{name}: {scalar(fields_of(model)[(name,)].default)}\n"


def _comment(text: str, indent: str) -> Iterator[str]:
    for line in textwrap.wrap(" ".join(text.split()), WIDTH - len(indent)):
        yield f"{indent}# {line}\n"
