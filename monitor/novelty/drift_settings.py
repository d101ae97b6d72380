"""How drift is watched: every number by name."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.novelty.errors import InvalidSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSettings:
    """The settings of the watch over known classes.

    >>> DriftSettings(false_alarm_days=7).quiet_pools
    20
    """

    false_alarm_days: float = 30.0  # one false alarm in so many days, for each source
    quiet_pools: int = 20  # a source's first pools, from which its own normal look is learnt
    least_images: int = 60  # images of a source that make an observation; fewer are put together
    least_strength: float = 0.08  # in spreads of a class; pools one third new reach 0.06
    calm_pools: int = 3  # pools in a row that look normal again before a drift has ended
    conditions: int = 4  # looks that are normal for one source, such as day and night
    confirm_labels: int = 6  # questions that a shift alone may cost, once for each drift

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if not getattr(self, name) >= least:
                raise InvalidSettings(f"drift.{name}: {getattr(self, name)} is below {least}")


_LEAST = {
    "false_alarm_days": 0.01,
    "quiet_pools": 2,
    "least_images": 10,
    "least_strength": 0.0,
    "calm_pools": 1,
    "conditions": 1,
    "confirm_labels": 0,
}
