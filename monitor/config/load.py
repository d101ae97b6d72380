"""One configuration from its four layers: defaults, the file, the environment, ``--set``.

Later layers win. Every value keeps its origin, so that a mistake is reported where it was
made and ``conclad config show`` can answer "why is it that?".

A group of sources is a monitor of its own, with a feed, a state, a detector and questions of its
own. What it does not set is as for all; what two groups must not share (the folders, the ports)
follows from its name and its place in the list.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from monitor.config.errors import ConfigInvalid
from monitor.config.fields import fields_of, is_section
from monitor.config.key_suggestions import suggest
from monitor.config.schema import Config
from monitor.config.yaml_document import DEFAULT, Key, Origin, YamlEntry, parse_value, read_document

DEFAULT_PATH = Path("ray_config.yaml")
PREFIX = "CONCLAD_"
# Between section and key. A variable without it (a token, say) is not a setting.
SEPARATOR = "__"
#: What stands for the group's name in ``state.url``.
PLACEHOLDER = "{group}"
_OF_ALL = ("groups", "group")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The configuration in force and, for each key that was set, where."""

    config: Config
    origins: Mapping[str, Origin]
    groups: Mapping[str, Loaded] = field(default_factory=dict)
    """The same for each group of sources, where none was chosen."""

    def origin(self, key: str) -> Origin:
        """Where the value of a dotted key came from; of a mapping, where its first part did."""
        if key in self.origins:
            return self.origins[key]
        parts = (at for name, at in self.origins.items() if name.startswith(f"{key}."))
        return next(parts, DEFAULT)

    def each(self) -> Mapping[str, Config]:
        """What a command is about that does for every group what it does for one monitor.

        >>> list(load(environ={}).each())
        ['']
        """
        if not self.groups:
            return {"": self.config}
        return {name: loaded.config for name, loaded in self.groups.items()}


def load(
    path: Path | str | None = None,
    *,
    overrides: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    group: str | None = None,
) -> Loaded:
    """Read, merge and check; with a ``group``, as it is for that group of sources.

    Without ``path``, ``ray_config.yaml`` of the working folder is read if it is there.
    ``overrides`` are ``key=value`` texts; ``environ`` is the process environment unless given.

    >>> loaded = load(overrides=["state.dir=/data"], environ={})
    >>> loaded.config.state.dir, str(loaded.origin("state.dir"))
    ('/data', '--set state.dir')
    """
    where = path if path is not None else DEFAULT_PATH if DEFAULT_PATH.exists() else None
    layers = [
        read_document(Path(where)) if where is not None else {},
        _from_environment(os.environ if environ is None else environ),
        _from_overrides(overrides),
    ]
    whole = _of_all(layers)
    # All of them, whichever is meant: a mistake should not wait for the day of its group.
    groups = {name: _of_group(layers, name, n) for n, name in enumerate(whole.config.groups)}
    chosen = group if group is not None else whole.config.group
    if chosen is None:
        return replace(whole, groups=groups)
    if chosen not in groups:
        known = f"there are {', '.join(groups)}" if groups else "the configuration has none"
        raise ConfigInvalid(f"--group {chosen}: no such group; {known}")
    return groups[chosen]


def _of_all(layers: Sequence[Mapping[Key, YamlEntry]]) -> Loaded:
    entries = _meaningful(merged(layers))
    return Loaded(_validate(entries), _origins(entries))


def _of_group(layers: Sequence[Mapping[Key, YamlEntry]], name: str, number: int) -> Loaded:
    entries = _meaningful(merged(layers, name))
    said = {key for layer in layers for key in own(layer, name)}
    before = _validate(entries)
    config = settle(before, name, number, said)
    derived = {
        field.dotted: Origin(f"group {name}")
        for field in fields_of(Config).values()
        if reduce(getattr, field.key, config) != reduce(getattr, field.key, before)
    }
    return Loaded(config, {**_origins(entries), **derived})


def _meaningful(entries: Mapping[Key, YamlEntry]) -> dict[Key, YamlEntry]:
    spoken = {key: entry for key, entry in entries.items() if not _says_nothing(key, entry)}
    return with_all_groups(entries, spoken)


def _origins(entries: Mapping[Key, YamlEntry]) -> dict[str, Origin]:
    return {".".join(key): entry.value_at for key, entry in entries.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[Key, YamlEntry]:
    entries: dict[Key, YamlEntry] = {}
    for name in sorted(environ):
        if name.startswith(PREFIX) and SEPARATOR in name:
            key = tuple(name.removeprefix(PREFIX).lower().split(SEPARATOR))
            entries.update(_from_text(key, environ[name], Origin(f"environment {name}")))
    return entries


def _from_overrides(overrides: Iterable[str]) -> dict[Key, YamlEntry]:
    entries: dict[Key, YamlEntry] = {}
    for text in overrides:
        dotted, equals, value = text.partition("=")
        dotted = dotted.strip()
        if not equals or not dotted:
            raise ConfigInvalid(f"--set {text}: write it as section.key=value")
        entries.update(_from_text(tuple(dotted.split(".")), value, Origin(f"--set {dotted}")))
    return entries


def _from_text(key: Key, text: str, origin: Origin) -> Iterator[tuple[Key, YamlEntry]]:
    """The entries of one flag or variable; a folder called ``2024`` stays text where it must."""
    value = parse_value(text)
    field = fields_of(Config).get(key[2:] if key[0] == "groups" else key)
    if field is not None and field.takes_text and not isinstance(value, str | None):
        value = text
    for inner, leaf in _leaves(value):
        yield (*key, *inner), YamlEntry(leaf, origin, origin)


def _leaves(value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            for key, leaf in _leaves(part):
                yield (str(name), *key), leaf
    else:
        yield (), value


def _says_nothing(key: Key, entry: YamlEntry) -> bool:
    """``feed:`` with every line under it commented out is a section left at its defaults."""
    return entry.value == {} or (entry.value is None and is_section(Config, key))


def _validate(entries: Mapping[Key, YamlEntry]) -> Config:
    tree, problems = _tree(entries)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        problems += [_explain(detail, entries) for detail in error.errors(include_url=False)]
    if problems:
        raise ConfigInvalid("\n".join(problems))
    return config


def _tree(entries: Mapping[Key, YamlEntry]) -> tuple[dict[str, Any], list[str]]:
    """Nested as the model wants it, and what cannot be nested at all."""
    tree: dict[str, Any] = {}
    problems = []
    for key, entry in entries.items():
        if is_section(Config, key):
            problems.append(_says(entry.value_at, key, "a section; set one of its keys"))
        elif any(head in entries or _takes_value(head) for head in _heads(key)):
            problems.append(_says(entry.key_at, key, f"unknown key{suggest(Config, key)}"))
        else:
            branch = tree
            for part in key[:-1]:
                branch = branch.setdefault(part, {})
            branch[key[-1]] = entry.value
    return tree, problems


def _explain(detail: Any, entries: Mapping[Key, YamlEntry]) -> str:
    """One of pydantic's findings as a place and a sentence."""
    loc = tuple(map(str, detail["loc"]))
    context = detail.get("ctx", {})
    if "key" in context:  # a validator of ours that looked inside a mapping
        loc = (*loc, context["key"])
    entry = _entry_at(loc, entries)
    if detail["type"] == "extra_forbidden":
        return _says(entry.key_at, loc, f"unknown key{suggest(Config, loc)}")
    if detail["type"] == "unknown_key":
        return _says(entry.key_at, loc, detail["msg"])
    return _says(entry.value_at, loc, f"{_reason(detail)} (got {_brief(entry.value)})")


def _says(where: Origin, key: Key, sentence: str) -> str:
    dotted = ".".join(key)
    return (
        f"{where}: {sentence}" if where.text.endswith(dotted) else f"{where}: {dotted}: {sentence}"
    )


def _takes_value(key: Key) -> bool:
    field = fields_of(Config).get(key)
    return field is not None and not field.takes_keys


def _entry_at(loc: Key, entries: Mapping[Key, YamlEntry]) -> YamlEntry:
    """The entry that a finding is about: itself, what is under it, or what is above it.

    Locations may end in a list index or the name of a union's branch, hence the way up.
    """
    for head in (loc, *_heads(loc)):
        if head in entries:
            return entries[head]
        for key, entry in entries.items():
            if key[: len(head)] == head:
                return YamlEntry(entry.value, entry.key_at, entry.key_at)
    return YamlEntry(None, DEFAULT, DEFAULT)


def _heads(key: Key) -> list[Key]:
    return [key[:n] for n in range(len(key) - 1, 0, -1)]


def _reason(detail: Any) -> str:
    if detail["type"] == "string_type":
        return "should be text; put it in quotes"
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].lower() + message[1:]


def _brief(value: Any) -> str:
    text = repr(value)
    # Enough to recognise what was typed; a pasted certificate need not fill the screen.
    return text if len(text) <= 60 else f"{text[:57]}..."


def merged(
    layers: Iterable[Mapping[Key, YamlEntry]], group: str | None = None
) -> dict[Key, YamlEntry]:
    """The layers on top of each other, each with what the group says there on top of it."""
    entries: dict[Key, YamlEntry] = {}
    for layer in layers:
        entries.update(layer)
        if group is not None:
            entries.update(own(layer, group))
    return entries


def own(layer: Mapping[Key, YamlEntry], group: str) -> dict[Key, YamlEntry]:
    """What a layer says of one group, under the keys that it would have for all."""
    found = {key[2:]: entry for key, entry in layer.items() if key[:2] == ("groups", group)}
    found.pop((), None)
    for key, entry in found.items():
        if key[0] in _OF_ALL:
            raise ConfigInvalid(f"{entry.key_at}: {key[0]}: a group has no groups of its own")
    return found


def with_all_groups(
    before: Mapping[Key, YamlEntry], after: Mapping[Key, YamlEntry]
) -> dict[Key, YamlEntry]:
    """Groups that have nothing to say are groups all the same.

    They keep the order in which they are written, because their ports follow from it.
    """
    written: dict[Key, YamlEntry] = {}
    for key, entry in before.items():
        if _is_of_group(key):
            written.setdefault(key[:2], entry)
    found = {key: entry for key, entry in after.items() if not _is_of_group(key)}
    for head, first in written.items():
        own = {key: entry for key, entry in after.items() if key[:2] == head and len(key) > 2}
        found |= own or {head: YamlEntry({}, first.key_at, first.value_at)}
    return found


def _is_of_group(key: Key) -> bool:
    return key[0] == "groups" and len(key) > 1


def settle(config: Config, group: str, number: int, said: Collection[Key]) -> Config:
    """The configuration of one group, with places of its own where it ``said`` none itself.

    >>> harbour = settle(Config(), "harbour", 1, ())
    >>> harbour.feed.path, harbour.state.dir, harbour.desk.port
    ('feed/harbour', 'state/harbour', 8485)
    """
    found: dict[Key, Any] = {
        ("feed", "path"): _below(config.feed.path, group),
        ("state", "dir"): _below(config.state.dir, group),
        ("metrics", "port"): _beside(config.metrics.port, number),
        ("desk", "port"): _beside(config.desk.port, number),
    }
    if config.state.url is not None:
        if PLACEHOLDER not in config.state.url and ("state", "url") not in said:
            raise ConfigInvalid(
                "state.url: groups need a database each; write {group} in place of its name in "
                "the address, such as postgresql://conclad@host/conclad_{group}"
            )
        found["state", "url"] = config.state.url.replace(PLACEHOLDER, group)
    for (section, key), value in found.items():
        if (section, key) not in said:
            changed = getattr(config, section).model_copy(update={key: value})
            config = config.model_copy(update={section: changed})
    return config.model_copy(update={"group": group})


def _below(place: str, name: str) -> str:
    """A folder in a folder or bucket.

    >>> _below("s3://feed?region=north", "harbour")
    's3://feed/harbour?region=north'
    """
    path, mark, query = place.partition("?") if "://" in place else (place, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def _beside(port: int, number: int) -> int:
    """0 stays 0, which is any free port."""
    return port + number if port else 0
