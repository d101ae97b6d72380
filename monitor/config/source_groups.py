"""Groups of sources: what one of them changes in the configuration that all share.

A group is a monitor of its own, with a feed, a state, a detector and questions of its own. What
it does not set is as for all; what two groups must not share (the folders, the ports) follows
from its name and its place in the list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from monitor.config.errors import ConfigInvalid
from monitor.config.schema import Config
from monitor.config.yaml_document import Key, YamlEntry

#: What stands for the group's name in ``state.url``.
PLACEHOLDER = "{group}"
_OF_ALL = ("groups", "group")


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
