"""What every group of settings can do: check itself, change, and go to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Self, TypeVar

from monitor.novelty.errors import InvalidSettings

T = TypeVar("T")


def setting(
    default: T,
    why: str,
    *,
    low: float | None = None,
    high: float | None = None,
    among: tuple[str, ...] = (),
) -> T:
    """A field of a settings group: its default, the reason for it, and what it may be."""
    metadata = {"why": why, "low": low, "high": high, "among": among}
    made: T = field(default=default, metadata=metadata)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsGroup:
    """Named numbers, each checked against its range. Immutable.

    >>> @dataclass(frozen=True, slots=True, kw_only=True)
    ... class Example(SettingsGroup):
    ...     share: float = setting(0.5, "Half of it: less is noise.", low=0, high=1)
    >>> Example().replace(share=0.25).to_dict()
    {'share': 0.25}
    >>> Example(share=2)
    Traceback (most recent call last):
    monitor.novelty.errors.InvalidSettings: share: 2 is not between 0 and 1
    """

    def __post_init__(self) -> None:
        for one in fields(self):
            value, rules = getattr(self, one.name), one.metadata
            if rules.get("among"):
                values = value if isinstance(value, tuple) else (value,)
                for part in values:
                    if part not in rules["among"]:
                        raise InvalidSettings(
                            f"{one.name}: {part!r} is none of {', '.join(rules['among'])}"
                        )
            elif rules.get("low") is not None:
                _check_range(one.name, value, rules["low"], rules["high"])

    def replace(self, **changes: Any) -> Self:
        """The settings with these changes; a group inside takes a mapping of its own names."""
        names = {one.name for one in fields(self)}
        for name in changes:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise InvalidSettings(f"no setting {name!r}{hint}")
        return replace(self, **{k: _merged(getattr(self, k), v) for k, v in changes.items()})

    def to_dict(self) -> dict[str, Any]:
        """As values that JSON has, groups inside as mappings."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` gave; whatever is left out has its default."""
        return cls().replace(**data)


def _merged(before: Any, change: Any) -> Any:
    """A changed value in the type that the setting has: JSON knows no tuples and no groups."""
    if is_dataclass(before) and isinstance(change, Mapping):
        assert isinstance(before, SettingsGroup)
        return before.replace(**change)
    if isinstance(before, tuple) and isinstance(change, list | tuple):
        return tuple(tuple(one) if isinstance(one, list) else one for one in change)
    return change


def _check_range(name: str, value: Any, low: float, high: float | None) -> None:
    values = value if isinstance(value, tuple) else (value,)
    for number in values:
        if not isinstance(number, int | float):
            raise InvalidSettings(f"{name}: {number!r} is not a number")
        if high is None and not number >= low:
            raise InvalidSettings(f"{name}: {number} is below {low:g}")
        if high is not None and not low <= number <= high:
            raise InvalidSettings(f"{name}: {number} is not between {low:g} and {high:g}")
