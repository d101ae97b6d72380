"""Every number of the method has a place, a range and a reason."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from monitor.novelty.common_settings import GraphSettings, MethodSettings
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.errors import InvalidSettings
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.presets import (
    PRESETS,
    preset_settings,
    settings_from_dict,
    settings_to_dict,
)
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.settings_group import SettingsGroup, setting
from monitor.novelty.settings_table import settings_tables
from monitor.novelty.trigger.trigger_settings import (
    PoolNoveltySettings,
    SensitivitySettings,
    TriggerSettings,
)

GROUPS: tuple[type[SettingsGroup], ...] = (
    PaperSettings,
    RobustSettings,
    GraphSettings,
    PoolNoveltySettings,
    TriggerSettings,
    SensitivitySettings,
    DriftSettings,
)
ROOT = Path(__file__).parents[2]


def test_presets_differ_where_they_should() -> None:
    paper, robust = preset_settings("paper"), preset_settings("robust")
    assert (type(paper), type(robust)) == (PaperSettings, RobustSettings)
    assert (paper.variance, robust.variance) == (0.995, 0.90)
    assert (paper.squared, robust.squared) == (False, True), "the paper's FRE is a norm"
    assert (paper.folds, robust.folds) == (0, 10)
    with pytest.raises(InvalidSettings, match="there are robust, paper"):
        preset_settings("papr")


@pytest.mark.parametrize("name", PRESETS)
def test_settings_go_through_json_and_come_back_equal(name: str) -> None:
    chosen = preset_settings(name).replace(
        variance=0.7, graph={"neighbours": 4}, pool={"skew": (0.2, 1.5)}
    )
    again = settings_from_dict(json.loads(json.dumps(settings_to_dict(chosen))))
    assert again == chosen
    assert type(again) is type(chosen)
    assert again.pool.skew == (0.2, 1.5), "a tuple, not the list that JSON has"


def test_what_a_snapshot_leaves_out_has_its_default() -> None:
    assert settings_from_dict({"preset": "robust", "far": 3.0}) == RobustSettings(far=3.0)


def test_no_setting_of_one_preset_is_accepted_by_the_other() -> None:
    """A number that does nothing must not seem to be set."""
    paper, robust = (
        {one.name for one in fields(group)} - {one.name for one in fields(MethodSettings)}
        for group in (PaperSettings, RobustSettings)
    )
    assert paper & robust == {"query"}
    with pytest.raises(InvalidSettings, match="no setting 'alpha'"):
        RobustSettings().replace(alpha=0.3)
    with pytest.raises(InvalidSettings, match="no setting 'mind_shift'"):
        PaperSettings().replace(mind_shift=False)


@pytest.mark.parametrize(
    ("settings", "changes", "match"),
    [
        (RobustSettings(), {"varianc": 0.5}, "did you mean variance"),
        (RobustSettings(), {"whitening": 2}, "whitening: 2 is not between 0.001 and 1"),
        (RobustSettings(), {"query": "best"}, "peaks, top, random"),
        (RobustSettings(), {"views": ("direction", "x")}, "'x' is none of direction"),
        (RobustSettings(), {"far": "much"}, "far: 'much' is not a number"),
        (RobustSettings(), {"graph": {"neighbors": 3}}, "did you mean neighbours"),
        (RobustSettings(), {"graph": {"neighbours": 0}}, "neighbours: 0 is below 1"),
        (RobustSettings(), {"pool": {"skew": (0.1, 99.0)}}, "skew: 99.0 is not between"),
        (PaperSettings(), {"alpha": 2}, "alpha: 2 is not between"),
        (PaperSettings(), {"query": "peaks"}, "ambiguous, top, random"),
        (TriggerSettings(), {"probe": -1}, "probe: -1 is below 0"),
        (DriftSettings(), {"quiet_pools": 1}, "quiet_pools: 1 is below 2"),
    ],
)
def test_wrong_settings_are_named(
    settings: SettingsGroup, changes: dict[str, object], match: str
) -> None:
    with pytest.raises(InvalidSettings, match=match):
        settings.replace(**changes)


@pytest.mark.parametrize("group", GROUPS)
def test_every_number_has_a_reason_and_a_range(group: type[SettingsGroup]) -> None:
    for one in fields(group):
        if one.name in ("graph", "pool"):
            continue
        why = one.metadata["why"]
        assert why[0].isupper(), one.name
        assert why.endswith("."), one.name
        assert len(why) > 25, f"{one.name}: too short to be a reason"
        checked = one.metadata["low"] is not None or one.metadata["among"]
        assert checked or isinstance(one.default, bool) or one.name == "windows", one.name


@pytest.mark.parametrize("group", GROUPS)
def test_defaults_lie_within_their_ranges_and_changes_leave_them_alone(
    group: type[SettingsGroup],
) -> None:
    before = group()
    for one in fields(group):
        if one.metadata.get("low") is None or isinstance(one.default, tuple):
            continue
        edge = before.replace(**{one.name: one.metadata["low"]})
        assert getattr(edge, one.name) == one.metadata["low"]
    assert before == group()
    with pytest.raises(AttributeError):
        setattr(before, fields(group)[0].name, 1)


def test_a_group_may_hold_another() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Inner(SettingsGroup):
        share: float = setting(0.5, "Half: an example.", low=0, high=1)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Outer(SettingsGroup):
        inner: Inner = Inner()

    changed = Outer().replace(inner={"share": 0.1})
    assert changed.inner.share == 0.1
    assert Outer().replace(inner=Inner(share=0.2)).inner.share == 0.2
    assert Outer.from_dict(changed.to_dict()) == changed


def test_the_windows_of_the_trigger_share_its_whole_level() -> None:
    assert sum(part for _, part in TriggerSettings().windows) == pytest.approx(1.0)


def test_the_page_lists_every_number() -> None:
    page = (ROOT / "docs" / "method-settings.md").read_text()
    written = page.partition("<!-- numbers: written by `conclad config numbers` -->\n")[2]
    assert written == settings_tables(), "paste the output of: conclad config numbers"
    for group in GROUPS:
        for one in fields(group):
            assert one.name in ("graph", "pool") or f"{one.name}`" in page, one.name
