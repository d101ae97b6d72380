"""Killed before or after any durable action, the monitor ends where it would have ended."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import actors.coordinator
import actors.run_monitor  # noqa: F401
import monitor.store.version_and_settled_commit  # noqa: F401
from monitor.store.atomic_files import declared
from tests.actors.crashing import KILLED, at, drain
from tests.actors.story import Story, outcome, tell_story, with_oracle

#: Not passed by a feed in which everything goes well; each has a test of its own.
ELSEWHERE = (
    "compact.",
    "coordinator.",
    "example.",
    "migrate.",
    "people.",
    "pool.before_give_up",
    "pool.after_give_up",
    "purge.",
    "release.",
    "retention.",
    "spool.",
    "backup.",
)
POINTS = [name for name in declared() if not name.startswith(ELSEWHERE)]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="module")
def undisturbed(story: Story) -> dict[str, Any]:
    """What a run that nobody interrupts comes to."""
    state = story.folder / "undisturbed"
    shutil.copytree(story.state, state)
    assert drain(with_oracle(at(story.config, state))) == 0
    return outcome(state)


def test_the_story_is_worth_telling(undisturbed: dict[str, Any]) -> None:
    assert [name for _, name, _ in undisturbed["classes"]] == ["forest", "water", "sand"]
    assert len(undisturbed["verdicts"]) == 240
    assert undisturbed["discoveries"]
    assert len(undisturbed["settled"]) == 240
    (sand,) = (class_id for class_id, name, _ in undisturbed["classes"] if name == "sand")
    assert {picture.by for picture in undisturbed["pictures"][sand]} == {"pseudo-label"}


@pytest.mark.parametrize(
    ("point", "turn"),
    # The commit of a batch is passed many times: it also dies in the middle of the feed.
    [(name, 1) for name in POINTS] + [(n, 3) for n in POINTS if n.startswith("commit.")],
)
def test_a_crash_costs_time_only(
    point: str, turn: int, story: Story, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    shutil.copytree(story.state, state)
    config = with_oracle(at(story.config, state))
    killed = drain(config, fault=f"{point}:{turn}") == KILLED
    assert killed, f"{point} is not passed {turn} times: name it in ELSEWHERE, test it there"
    assert drain(config) == 0
    assert outcome(state) == undisturbed
