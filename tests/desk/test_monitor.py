"""A browser in front of a running monitor: it asks, a person answers, the next version arrives."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from monitor.people.version_manifest import current_knowledge
from monitor.store import Store, check
from tests.actors.story import KINDS, OVERRIDES, Story, tell_story
from tests.desk.browser import DESKTOP, Browser, chromium

#: Nothing new first, so that the trigger knows what is normal; then a third is sand.
CHAPTERS = ("wf" * 30, "wfs" * 20)
TRUTH = [KINDS[letter] for letter in "".join(CHAPTERS)]


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    return tell_story(tmp_path, chapters=CHAPTERS)


@pytest.fixture
def desk_url(story: Story) -> Iterator[str]:
    """``conclad run`` as people start it; its desk's address."""
    settings = [
        "backbone.name=tiny",
        "backbone.engine=torch",
        f"state.dir={story.state}",
        f"feed.path={story.folder / 'feed'}",
        "desk.port=0",
        "metrics.port=0",
        "pools.trigger=any",
        *OVERRIDES,
    ]
    command = [sys.executable, "-m", "monitor.cli", "run"]
    for setting in settings:
        command += ["--set", setting]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"desk: (http://\S+)", line):
                break
        else:
            pytest.fail("".join(said))
        yield found[1]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


def test_a_new_class_is_asked_about_answered_and_learnt(
    story: Story, desk_url: str, tmp_path: Path
) -> None:
    with chromium(tmp_path / "profile") as driver:
        browser = Browser(driver, desk_url)
        browser.resize(DESKTOP)
        browser.visit()
        while not knows_sand(story):
            browser.until(lambda: browser.cards() or knows_sand(story))
            if browser.cards():
                _answer(browser)
        browser.visit("/classes")
        assert "sand" in browser.text(".shelf")
        browser.until(lambda: shows_its_conclusions(browser))
        browser.visit("/history")
        assert "Discovered sand" in browser.text("#main")
        assert browser.complaints() == []
    with Store.open(story.state) as store:
        assert [finding for finding in check(store) if finding.severity == "error"] == []


def shows_its_conclusions(browser: Browser) -> bool:
    """Images that nobody was asked about are shown soon after the version is in use."""
    browser.visit("/classes")
    return bool(browser.all(".by-pseudo-label"))


def knows_sand(story: Story) -> bool:
    with Store.open(story.state) as store:
        return "sand" in {entry.name for entry in current_knowledge(store).classes.values()}


def _answer(browser: Browser) -> None:
    """Say the truth about the image in hand, by its key where it has one, else by its name."""
    image, names = browser.in_hand(), browser.palette()
    if image is None:
        return
    truth = TRUTH[int(image)]
    if truth in names:
        browser.press(str(1 + names.index(truth)))
    else:
        browser.press("n")
        browser.until(lambda: browser.is_open("#naming"))
        browser.press(truth, Keys.ENTER)
        browser.until(lambda: truth in browser.palette())
    browser.until(lambda: browser.in_hand() != image)
