"""The keys of a configuration, read off its model: one source for every list of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from monitor.config.yaml_document import Key


@dataclass(frozen=True, slots=True)
class Field:
    """One key that can be set."""

    key: Key
    annotation: Any
    default: Any
    description: str

    @property
    def dotted(self) -> str:
        """The key as it is written in `--set` and in messages."""
        return ".".join(self.key)

    @property
    def takes_text(self) -> bool:
        """Whether text is the only thing it can be (or nothing)."""
        kinds = {kind for kind in _kinds(self.annotation) if kind is not type(None)}
        return kinds == {str}

    @property
    def takes_keys(self) -> bool:
        """Whether it is a mapping with keys of its own."""
        return any(get_origin(kind) is dict or kind is dict for kind in _kinds(self.annotation))


@cache
def fields_of(model: type[BaseModel]) -> Mapping[Key, Field]:
    """Every key of ``model`` and its sections, in the order in which they are written.

    >>> from monitor.config.schema import StateSection
    >>> [field.dotted for field in fields_of(StateSection).values()]
    ['dir', 'url', 'keep_digests_days', 'keep_events_days']
    """
    found: dict[Key, Field] = {}
    for name, info in model.model_fields.items():
        if section := _section(info.annotation):
            for key, field in fields_of(section).items():
                found[(name, *key)] = Field(
                    (name, *key), field.annotation, field.default, field.description
                )
        else:
            default = info.get_default(call_default_factory=True, validated_data={})
            annotation = Annotated[info.annotation, *info.metadata] if info.metadata else None
            found[(name,)] = Field(
                (name,), annotation or info.annotation, default, info.description or ""
            )
    return MappingProxyType(found)


def is_section(model: type[BaseModel], key: Key) -> bool:
    """Whether keys stand under ``key``, rather than a value."""
    return section_at(model, key) is not None


def section_at(model: type[BaseModel], key: Key) -> type[BaseModel] | None:
    """The model of the section at ``key``; of the whole for an empty key."""
    for part in key:
        info = model.model_fields.get(part)
        section = _section(info.annotation) if info is not None else None
        if section is None:
            return None
        model = section
    return model


def _section(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _kinds(annotation: Any) -> set[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin is Literal:
        return {type(value) for value in get_args(annotation)}
    if origin in (Union, UnionType):
        return set().union(*(_kinds(part) for part in get_args(annotation)))
    return {annotation}
