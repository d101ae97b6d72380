"""The presets of the method by name, and settings as a snapshot stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.errors import InvalidSettings
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.robust.robust_settings import RobustSettings

PRESETS: Mapping[str, type[MethodSettings]] = {
    settings.preset: settings for settings in (RobustSettings, PaperSettings)
}


def preset_settings(name: str) -> MethodSettings:
    """The settings of a preset.

    >>> preset_settings("paper").variance
    0.995
    """
    if name not in PRESETS:
        raise InvalidSettings(f"no preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]()


def settings_to_dict(settings: MethodSettings) -> dict[str, Any]:
    """All numbers and the preset that they belong to, for JSON."""
    return {"preset": settings.preset, **settings.to_dict()}


def settings_from_dict(data: Mapping[str, Any]) -> MethodSettings:
    """What :func:`settings_to_dict` gave.

    >>> settings_from_dict({"preset": "robust", "variance": 0.95}).variance
    0.95
    """
    numbers = dict(data)
    return preset_settings(str(numbers.pop("preset"))).replace(**numbers)
