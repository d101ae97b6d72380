"""A fixed camera in the monitor: unchanged frames get verdicts, and are no evidence."""

from __future__ import annotations

import io
import shutil
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from monitor.jobs.fit_detector import fit
from monitor.jobs.score_files import score
from monitor.store import Store
from monitor.store.read_verdicts import read_verdicts
from tests.actors.crashing import KILLED, at, drain
from tests.actors.story import KINDS, OVERRIDES, Story, outcome, with_oracle
from tests.jobs.feeds import config_for, picture, write_feed

#: What stands before the camera, one letter for each second: mostly nothing that moves.
CHAPTERS = ("w" * 40 + "f" * 8, "w" * 12 + "s" * 12 + "w" * 12 + "s" * 12, "f" * 48)
FRAMES = sum(map(len, CHAPTERS))


def frame(view: bytes, seed: int) -> bytes:
    """A view once more, with the noise of a quiet camera."""
    with Image.open(io.BytesIO(view)) as image:
        pixels = np.asarray(image).astype(int)
    noisy = pixels + np.random.default_rng(seed).integers(-1, 2, pixels.shape)
    file = io.BytesIO()
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def frames(chapter: str, first: int) -> list[bytes]:
    """Whatever comes before the camera looks a little different each time."""
    found: list[bytes] = []
    for letter, stay in groupby(chapter):
        view = picture(KINDS[letter], 1000 + first + len(found))
        found += [frame(view, first + len(found) + second) for second, _ in enumerate(stay)]
    return found


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("still")
    labelled = write_feed(folder / "labelled.parquet", ["water", "forest"] * 100, first_id=100_000)
    first = 0
    for number, chapter in enumerate(CHAPTERS):
        path = folder / "feed" / f"{number}.parquet"
        kinds = [KINDS[letter] for letter in chapter]
        write_feed(path, kinds, first_id=first, images=frames(chapter, first))
        first += len(chapter)
    own = ("feed.batch_rows=24", "pools.least=4")
    config = config_for(folder, f"feed.path={folder / 'feed'}", *OVERRIDES, *own)
    fit(config, [str(labelled)])
    return Story(config, folder)


def run(story: Story, state: Path, fault: str | None = None) -> dict[str, Any]:
    shutil.copytree(story.state, state)
    config = with_oracle(at(story.config, state))
    if fault is not None:
        assert drain(config, fault=fault) == KILLED
    assert drain(config) == 0
    return outcome(state)


@pytest.fixture(scope="module")
def undisturbed(story: Story) -> dict[str, Any]:
    return run(story, story.folder / "undisturbed")


def rows_of(state: Path) -> dict[str, dict[str, Any]]:
    with Store.open(state) as store:
        return {row["image_id"]: row for batch in read_verdicts(store) for row in batch.to_pylist()}


def test_every_frame_has_a_verdict_and_few_are_evidence(
    story: Story, undisturbed: dict[str, Any]
) -> None:
    rows = rows_of(story.folder / "undisturbed")
    assert len(rows) == FRAMES
    copies = {id: row for id, row in rows.items() if row["same_as"] is not None}
    assert len(copies) > FRAMES / 2
    alike = ("score", "verdict_immediate", "settled_verdict", "class_name", "pool", "source_id")
    for row in copies.values():
        shown = rows[row["same_as"]]
        assert shown["same_as"] is None
        assert [row[name] for name in alike] == [shown[name] for name in alike]
    counters = undisturbed["counters"]
    judged = counters["images", "cam-1", "known"] + counters.get(("images", "cam-1", "novel"), 0)
    assert judged == FRAMES
    assert counters["reused", "cam-1", ""] == len(copies)
    pooled = sum(size for _, _, size, *_ in undisturbed["pools"])
    assert pooled == len(undisturbed["settled"]) == FRAMES - len(copies)
    scored = sum(value for (name, *_), value in counters.items() if name == "score_ratio")
    assert scored == pooled
    assert counters["reuse_checks", "cam-1", ""] >= 4


def test_nobody_is_asked_about_a_copy(undisturbed: dict[str, Any], story: Story) -> None:
    rows = rows_of(story.folder / "undisturbed")
    asked = {image for _, _, image, _ in undisturbed["questions"]}
    assert not any(rows[image]["same_as"] for image in asked)


@pytest.mark.parametrize("fault", ["commit.before_commit:2", "commit.after_commit:1"])
def test_a_crash_costs_time_only(
    fault: str, story: Story, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    assert run(story, tmp_path / "state", fault) == undisturbed


def test_a_job_reuses_as_the_monitor_does(story: Story, tmp_path: Path) -> None:
    found = score(story.config, [story.folder / "feed"], tmp_path / "out")
    assert found.known + found.novel == found.images == FRAMES
    assert found.reused > FRAMES / 2
    feed = story.config.feed.model_copy(update={"reuse_unchanged": "never"})
    config = story.config.model_copy(update={"feed": feed})
    every = score(config, [story.folder / "feed"], tmp_path / "every")
    assert (every.reused, every.images) == (0, FRAMES)
    assert abs(every.novel - found.novel) <= FRAMES / 20
