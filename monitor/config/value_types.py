"""Kinds of value that sections share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """The base of every section: frozen, and strict about names and types.

    A section is added by writing its model and one line in ``schema.Config``; the commented
    file, the reference page, the variables, the flags and the errors follow from it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, ser_json_inf_nan="strings"
    )


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# YAML has lists only; a frozen section holds tuples.
AsTuple = BeforeValidator(_as_tuple)
