"""Settings refuse what the method cannot mean, by name."""

from __future__ import annotations

import pytest

from monitor.novelty.errors import InvalidSettings
from monitor.novelty.settings import Settings


def test_presets_differ_where_they_should() -> None:
    paper, robust = Settings.preset("paper"), Settings.preset("robust")
    assert (paper.labeller, robust.labeller) == ("linear", "graph")
    assert (paper.variance, robust.variance) == (0.995, 0.90)
    with pytest.raises(InvalidSettings, match="paper"):
        Settings.preset("papr")


def test_settings_go_round_as_plain_values() -> None:
    chosen = Settings.preset("paper").replace(alpha=0.3, query="top")
    assert Settings.from_dict(chosen.to_dict()) == chosen


def test_wrong_settings_are_named() -> None:
    with pytest.raises(InvalidSettings, match="did you mean variance"):
        Settings().replace(varianc=0.5)
    with pytest.raises(InvalidSettings, match="alpha: 2"):
        Settings(alpha=2)
    with pytest.raises(InvalidSettings, match="ambiguous, top, random"):
        Settings().replace(query="best")
