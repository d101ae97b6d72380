"""The demo from end to end, small: a feed is made, learnt from, watched and measured."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from PIL import Image

from monitor.cli import demo as command
from monitor.cli.root import run as conclad
from monitor.demo.demo_folder import DemoFolder, free_port
from monitor.demo.errors import FolderTaken, RunFailed
from monitor.demo.image_source import DrawnImages
from monitor.demo.measure import DemoOutcome, Share, first_use
from monitor.demo.play import DemoOptions, Played, play, to_dict
from monitor.demo.run_picture import describe, draw
from monitor.jobs.progress import JobProgress
from monitor.store import Store
from monitor.store.verdict_columns import current, read_table

# The tiny backbone needs no weights and sees little, so that pools are asked about without waiting
# for evidence. Without Ray, which has tests of its own.
SETTINGS = (
    "run.address=none",
    "pools.trigger=any",
    "backbone.name=tiny",
    "backbone.engine=torch",
    "metrics.enabled=false",
)
# Seconds on a quiet machine, but four processes one after the other on a crowded one.
pytestmark = pytest.mark.timeout(900)
SIZES = {"days": 8, "per_day": 14, "training": 30}


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def seen() -> list[JobProgress]:
    return []


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> DemoOptions:
    return DemoOptions(tmp_path_factory.mktemp("play") / "demo", story=SIZES, settings=SETTINGS)


@pytest.fixture(scope="module")
def played(
    options: DemoOptions,
    told: list[str],
    seen: list[JobProgress],
    tmp_path_factory: pytest.TempPathFactory,
) -> Played:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONCLAD_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        return play(options, say=told.append, progress=seen.append)


def test_every_image_of_the_feed_is_judged_once(played: Played) -> None:
    assert len(played.outcome.judgements) == played.written.images == 8 * 3 * 14
    with Store.open(played.folder.state) as store:
        ids = [
            image
            for name in current(store.folder, "verdicts")
            for image in read_table(store.folder, name).column("image_id").to_pylist()
        ]
    assert max(Counter(ids).values()) == 1


def test_something_new_is_found_within_the_budget(played: Played) -> None:
    outcome = played.outcome
    assert outcome.discovered
    found = {c.version for c in outcome.classes if c.arrived_at and c.version is not None}
    assert found <= set(range(2, outcome.version + 1)), "further versions refine classes"
    pools = sum(outcome.pools.values())
    assert 0 < outcome.questions <= pools * 4
    assert sum(c.answers for c in outcome.classes) == outcome.questions


def test_verdicts_are_measured_against_the_version_that_gave_them(played: Played) -> None:
    versions = {c.label: c.version for c in played.outcome.classes}
    for judgement in played.outcome.judgements:
        version = versions[judgement.label]
        assert judgement.truly_novel == (version is None or judgement.version < version)
    truly = [j for j in played.outcome.judgements if j.truly_novel]
    assert played.outcome.recall == Share(sum(j.novel for j in truly), len(truly))
    clean = [j for j in played.outcome.judgements if j.novel and not j.dirty]
    assert played.outcome.precision == Share(sum(j.truly_novel for j in clean), len(clean))


def test_both_kinds_of_verdict_are_told_of_learnt_classes(played: Played) -> None:
    for found in played.outcome.classes:
        its = [j for j in played.outcome.judgements if j.label == found.label and not j.dirty]
        known = [j for j in its if not j.truly_novel]
        assert found.false_novel == Share(sum(j.novel for j in known), len(known))
        odd = sum(j.settled in ("new", "undecided") for j in known)
        assert found.settled_novel == Share(odd, len(known))


def test_a_class_is_found_after_it_appeared(played: Played) -> None:
    for found in played.outcome.classes:
        if found.arrived_at is not None and found.found_at is not None:
            assert found.found_at > found.arrived_at


def test_the_run_is_told_as_it_happens(
    played: Played, told: list[str], seen: list[JobProgress]
) -> None:
    text = "\n".join(told)
    assert "$ conclad fit" in text
    assert "$ conclad run" in text
    for label in played.outcome.discovered:
        assert f"NEW CLASS {label}" in text
    assert {progress.stage for progress in seen} == {"make the feed", "watch"}
    assert seen[-1].done == seen[-1].total == played.written.images


def test_the_figures_and_the_picture_are_left_in_the_folder(played: Played) -> None:
    folder = played.folder
    assert json.loads(folder.result.read_text()) == json.loads(json.dumps(to_dict(played)))
    with Image.open(folder.picture) as picture:
        assert picture.format == "PNG"
        assert picture.width > picture.height > 400
    assert folder.picture.stat().st_size < 200_000
    text = command.describe(played)
    for label in played.story.labels:
        assert label in text
    for place in (folder.picture, folder.config_file, folder.state):
        assert str(place) in text


def test_the_picture_in_words_names_every_new_class(played: Played) -> None:
    words = describe(played.outcome)
    for arrival in played.story.arrivals:
        assert arrival.label in words


def test_a_run_without_discoveries_can_be_drawn(played: Played, tmp_path: Path) -> None:
    blind: DemoOutcome = replace(
        played.outcome,
        classes=tuple(
            replace(c, found_at=None, version=None) if c.arrived_at else c
            for c in played.outcome.classes
        ),
    )
    draw(blind, played.story, DrawnImages(0), tmp_path / "blind.png", title="nothing found")
    assert (tmp_path / "blind.png").stat().st_size > 10_000


def test_keep_goes_on_from_what_is_there(
    options: DemoOptions, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = {path: path.stat().st_ino for path in options.folder.rglob("feed/*/*.parquet")}
    again = play(replace(options, keep=True))
    assert {path: path.stat().st_ino for path in made} == made
    assert again.outcome == played.outcome


def test_keep_refuses_a_demo_of_other_images(options: DemoOptions, played: Played) -> None:
    with pytest.raises(FolderTaken, match="a demo of other images"):
        play(replace(options, keep=True, seed=5))


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FolderTaken, match="not a demo's"):
        play(DemoOptions(tmp_path, story=SIZES))
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_command_that_fails_ends_the_demo_in_one_sentence(tmp_path: Path) -> None:
    sizes = {"days": 8, "per_day": 5, "training": 2}
    with pytest.raises(RunFailed, match="conclad fit ended with code 2"):
        play(DemoOptions(tmp_path / "demo", story=sizes, settings=SETTINGS))


def test_the_command_line_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").touch()
    assert conclad(["demo", "--dir", str(tmp_path)]) == 2
    assert "name another folder with --dir" in capsys.readouterr().err


def test_the_command_line_explains_itself() -> None:
    shown = CliRunner().invoke(command.demo, ["--help"]).output
    for flag in ("--data", "--dir", "--interactive", "--seed", "--keep", "--json"):
        assert flag in shown


def test_a_port_that_is_taken_is_passed_over() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) != port


def test_the_configuration_suits_the_story(tmp_path: Path, played: Played) -> None:
    config = DemoFolder(tmp_path).configure(played.story, seed=3).config
    assert config.pools.size * 8 == played.story.images
    assert config.run.seed == 3


def test_a_version_is_in_use_from_its_first_verdict_on(played: Played) -> None:
    judgements = played.outcome.judgements
    assert first_use(judgements, 1) == judgements[0].captured_at
    assert first_use(judgements, 99) == judgements[-1].captured_at


def test_the_labels_of_the_feed_are_the_story(played: Played) -> None:
    feed = sorted(played.written.feed.rglob("*.parquet"))
    labels = {label for path in feed for label in pq.read_table(path).column("label").to_pylist()}
    assert labels == set(played.story.labels)
