"""YAML text as a flat map from dotted keys to values, each with its place.

The usual loader forgets lines, takes the last of two equal keys, and follows aliases. A
configuration that people edit at night needs the opposite: every mistake has a line and a
column, a key stands once, and what is written is what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from monitor.config.errors import ConfigMissing, ConfigSyntax

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: a place in a file, a variable, a flag, or the default."""

    text: str

    def __str__(self) -> str:
        return self.text


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """One value as it was written, where its key stands and where the value itself does."""

    value: Any
    key_at: Origin
    value_at: Origin


def read_document(path: Path) -> dict[Key, YamlEntry]:
    """Every value in the file by its key; sections themselves are not entries."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigMissing(
            f"{path}: no such configuration; write one with: conclad init {path}"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigSyntax(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigMissing(f"{path}: cannot be read ({error.strerror})") from None
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> dict[Key, YamlEntry]:
    r"""The same for text at hand; ``name`` is what the places are called by.

    >>> for key, entry in parse_document("feed:\n  path: in\n", "c.yaml").items():
    ...     print(key, entry.value, entry.key_at)
    ('feed', 'path') in c.yaml:2:3
    """
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line, column = _line_and_column(text, error.position)
        raise ConfigSyntax(
            f"{name}:{line}:{column}: not valid YAML: {error.reason} (#x{error.character:04x})"
        ) from None
    loader.origin_name = name
    try:
        node = loader.get_single_node()
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise ConfigSyntax(f"{_at(name, node.start_mark)}: expected sections such as 'feed:'")
        return dict(_entries(loader, node, (), name))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = _at(name, mark) if mark else Origin(name)
        raise ConfigSyntax(f"{where}: not valid YAML: {error.problem or error}") from None
    finally:
        loader.dispose()


def parse_value(text: str) -> Any:
    """A value as it would be read in the file: numbers, booleans, lists; else the text.

    >>> parse_value("0.5"), parse_value("[1, 2]"), parse_value("a: b: c")
    (0.5, [1, 2], 'a: b: c')
    """
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text


class _Loader(yaml.SafeLoader):
    """Refuses aliases: a configuration has no need of them, and they can recurse."""

    origin_name = ""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ConfigSyntax(
                f"{_at(self.origin_name, mark)}: aliases (*name) are not supported; "
                "write the value out"
            )
        return super().compose_node(parent, index)


def _entries(
    loader: _Loader, node: yaml.MappingNode, above: Key, name: str
) -> Iterator[tuple[Key, YamlEntry]]:
    seen: dict[str, Origin] = {}
    for key_node, value_node in node.value:
        key_at = _at(name, key_node.start_mark)
        key = _key(key_node, key_at)
        if key in seen:
            dotted = ".".join((*above, key))
            raise ConfigSyntax(f"{key_at}: {dotted} is set a second time; see {seen[key]}")
        seen[key] = key_at
        if isinstance(value_node, yaml.MappingNode) and value_node.value:
            yield from _entries(loader, value_node, (*above, key), name)
            continue
        try:
            value = loader.construct_object(value_node, deep=True)
        except ValueError as error:  # such as a date in month 13
            raise ConfigSyntax(f"{_at(name, value_node.start_mark)}: {error}") from None
        yield (*above, key), YamlEntry(value, key_at, _at(name, value_node.start_mark))


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def _key(node: yaml.Node, where: Origin) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigSyntax(f"{where}: a key is a plain word, not a list or a mapping")
    return str(node.value)


def _at(name: str, mark: yaml.Mark) -> Origin:
    return Origin(f"{name}:{mark.line + 1}:{mark.column + 1}")
