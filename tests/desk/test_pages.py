"""Home, classes, history and the API page, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from monitor.store import Store
from tests.desk import gallery_world
from tests.desk.browser import DESKTOP, PHONE, Browser, answers, config_of, served
from tests.people import world


@pytest.fixture(scope="module")
def mould(fresh: Path) -> Path:
    return fresh


def test_two_classes_become_one_and_the_version_arrives(browser: Browser, state: Path) -> None:
    browser.visit("/classes")
    for box in browser.all(".choose"):
        box.click()
    browser.click("#merge")
    browser.until(lambda: browser.is_open("#merge-dialog"))
    browser.one('#merge-names input[value="c2"]').click()
    browser.until(lambda: "forest: 0 of the latest" in browser.text("#merge-means"))
    assert len(browser.all("#merge-means li")) == 1, "the other choice is not left behind"
    browser.click('#merge-dialog [type="submit"]')
    browser.until(lambda: "Detector version 2 is in use" in browser.toasts())
    with Store.open(state) as store, store.reading() as tx:
        assert [row.name for row in tx.classes.living()] == ["water"]
        current = tx.versions.current()
        assert current is not None
        assert current.number == 2
    browser.visit("/history")
    assert "forest merged into water" in browser.text(".versions .current")
    browser.click('.versions [data-version="1"]')
    browser.until(lambda: "It will also know forest." in browser.text("#version-changes"))
    browser.click("#version-go")
    browser.until(lambda: "first fit" in browser.text(".versions .current"))


def test_retiring_says_what_it_means_and_can_be_undone(browser: Browser, state: Path) -> None:
    browser.visit("/classes")
    browser.click('[data-class="c1"] [data-do="retire"]')
    browser.until(lambda: "images like it will look new again" in browser.text("#retire-means"))
    browser.click('#retire-dialog [type="submit"]')
    browser.until(lambda: "Detector version 2 is in use" in browser.toasts())
    assert not browser.all('[data-class="c1"]')
    browser.click(".toast .link")
    browser.until(lambda: browser.all('[data-class="c1"]'))
    browser.visit("/history")
    rows = browser.text(".versions")
    assert "forest retired" in rows, "the reason of a version stays with it"
    assert "taken back" in rows


def test_a_class_shows_all_its_pictures_large(browser: Browser) -> None:
    browser.visit("/classes")
    browser.click('[data-class="c1"] .strip button')
    browser.until(lambda: browser.is_open("#pictures-dialog"))
    assert browser.one("#pictures-large").size["height"] > 300
    assert len(browser.all("#pictures-all img")) == 4


def test_a_class_counts_each_of_its_images_once(browser: Browser, state: Path) -> None:
    """Images that were asked about have a picture of their question; they are no further images."""
    browser.visit()
    browser.press(Keys.ENTER, Keys.ENTER)
    browser.until(lambda: list(answers(state).values()) == ["dune"] * 2)
    with Store.open(state) as store:
        dune = world.discover(store, "dune", 20)
    browser.visit("/questions")
    browser.until(lambda: browser.all(".outcome .strip img"))
    said = browser.one(".outcome .strip img").get_attribute("src")
    browser.visit("/classes")
    browser.click(f'[data-class="{dune}"] .strip button')
    browser.until(lambda: browser.text("#pictures-title") == "dune: 20 pictures")
    assert len(browser.all("#pictures-all .by-person")) == 6
    first = browser.one("#pictures-all img")
    assert first.get_attribute("className") == "by-person"
    assert "1-0002" in str(first.get_attribute("title"))
    assert said == first.get_attribute("src"), "what people said is shown first"


def test_what_the_detector_concluded_is_seen_and_contradicted(
    browser: Browser, state: Path
) -> None:
    with Store.open(state) as store:
        dune = world.discover(store, "dune", 20)
    browser.visit("/classes")
    browser.click(f'[data-class="{dune}"] [data-do="samples"]')
    browser.until(lambda: browser.all("#samples img"))
    assert len(browser.all("#samples img")) == 14
    # The first is at hand for the keyboard, the second for the mouse.
    browser.until(lambda: browser.driver.switch_to.active_element.tag_name == "input")
    browser.press(" ")
    browser.click("#samples li:nth-child(2) img")
    browser.until(lambda: browser.text("#samples-go") == "2 are not dune")
    browser.click("#samples-go")
    browser.until(lambda: "Detector version 3 is in use" in browser.toasts())
    with Store.open(state) as store, store.reading() as tx:
        assert tx.counters.value("pseudo_labels", "", "contradicted") == 2
    browser.click(f'[data-class="{dune}"] [data-do="samples"]')
    browser.until(lambda: len(browser.all("#samples img")) == 12)


def test_the_api_page_shows_fields_and_tries_them(browser: Browser, state: Path) -> None:
    browser.visit("/api")
    browser.driver.execute_script(
        "for (const one of document.querySelectorAll('.operation')) one.open = true"
    )
    assert "One question; without it, your whole last action." in browser.text("#main")
    browser.one('[data-path="/api/questions"] [name="which"]').send_keys("open")
    browser.click('[data-path="/api/questions"] button[type="submit"]')
    browser.until(lambda: '"question_id": 1' in browser.text('[data-path="/api/questions"] .reply'))
    browser.click('[data-path="/api/answers"] button[type="submit"]')
    browser.until(lambda: answers(state) == {1: "dune"})


def test_a_rollback_says_what_it_means_and_can_be_undone(browser: Browser, state: Path) -> None:
    with Store.open(state) as store:
        world.discover(store, "dune", 20)
    browser.visit("/history")
    browser.click('.versions [data-version="1"]')
    browser.until(lambda: "no longer know dune" in browser.text("#version-changes"))
    browser.one("#version-reason").send_keys("it was sand")
    browser.click("#version-go")
    browser.until(lambda: "Version 1 is in use" in browser.toasts())
    browser.until(lambda: "taken back: it was sand" in browser.text(".versions"))
    assert "found dune" in browser.text(".versions"), "its own reason stays"
    browser.click(".toast .link")
    browser.until(lambda: "found dune" in browser.text(".versions .current"))


def test_counts_stay_true_after_a_merge(browser: Browser, state: Path) -> None:
    with Store.open(state) as store:
        dune = world.discover(store, "dune", 20)
        world.ask(store, 20, pool=2)
        snow = world.discover(store, "snow", 20, pool=2)
    browser.visit("/classes")
    for class_id in (dune, snow):
        browser.click(f'[data-class="{class_id}"] .choose')
    browser.click("#merge")
    browser.until(lambda: "snow:" in browser.text("#merge-means"))
    browser.click('#merge-dialog [type="submit"]')
    browser.until(lambda: "12 by people · 28 by itself" in browser.text(f'[data-class="{dune}"]'))
    browser.click(f'[data-class="{dune}"] .more-button')
    browser.until(lambda: len(browser.all("#pictures-all img")) >= 40)


def test_a_name_that_exists_already_is_refused_in_words(browser: Browser) -> None:
    browser.visit("/classes")
    browser.click('[data-class="c1"] [data-do="rename"]')
    browser.until(lambda: browser.is_open("#rename-dialog"))
    field = browser.one("#rename-name")
    field.clear()
    field.send_keys("water")
    browser.click('#rename-dialog [type="submit"]')
    browser.until(lambda: "water" in browser.text("#rename-dialog .hint"))
    assert browser.is_open("#rename-dialog")
    browser.complaints()  # the browser notes the refusal


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sources over ten hours, of which everything looked new at first."""
    folder = tmp_path_factory.mktemp("seen")
    gallery_world.make_feed(folder / "feed")
    gallery_world.make(folder / "state", images=600, novel=240)
    return folder


def test_history_has_one_scale_the_expected_rate_and_version_marks(
    driver: webdriver.Chrome, seen: Path
) -> None:
    with served(config_of(seen / "state", f"feed.path={seen / 'feed'}")) as url:
        browser = Browser(driver, url)
        zone = {"timezoneId": "Asia/Tokyo"}
        driver.execute_cdp_cmd("Emulation.setTimezoneOverride", zone)
        try:
            for size in (DESKTOP, PHONE):
                browser.resize(size)
                browser.visit("/history")
                assert len(browser.all(".plot")) == 3
                assert {one.text for one in browser.all(".plot .axis:first-child")} == {"100%"}
                assert len(browser.all(".plot .expected")) == 3
                assert {one.text for one in browser.all(".mark text")} == {"1"}
                browser.click(".bar-of:last-of-type .reach, .bar-of .reach")
                said = browser.text(".reading").replace("\u202f", " ")
                assert "May 17, 2024, 02:00 PM" in said, "in the zone of the reader"
                assert "look new" in said
                left = "return document.querySelector('.plot .axis').getBoundingClientRect().left"
                inside = "return document.querySelector('.plot').getBoundingClientRect().left"
                assert driver.execute_script(left) >= driver.execute_script(inside)
        finally:
            driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
        driver.get("about:blank")


def test_home_tells_what_goes_on(driver: webdriver.Chrome, seen: Path) -> None:
    with served(config_of(seen / "state", f"feed.path={seen / 'feed'}")) as url:
        browser = Browser(driver, url)
        browser.resize(DESKTOP)
        browser.visit("/")
        text = browser.text("#home")
        for word in ("The monitor is", "No questions", "Looked new lately", "cam-3", "Learnt"):
            assert word in text
        assert "May 17, 2024" in text, "nobody counts hundreds of days"
        loaded = "return [...document.querySelectorAll('#newest img')].every(i => i.naturalWidth)"
        browser.until(lambda: driver.execute_script(loaded))
        browser.click('.sources a[href="/images?source=cam-2"]')
        browser.until(lambda: browser.text("#gallery-count") == "80 images")
        driver.get("about:blank")


@pytest.mark.parametrize("path", ["/", "/questions", "/classes", "/history"])
def test_a_phone_reaches_every_page(browser: Browser, path: str) -> None:
    browser.resize(PHONE)
    browser.visit(path)
    browser.until(lambda: browser.text("#open-count") == "20")
    assert browser.one(".top").size["height"] < 50, "the pages take one line, counts or not"
    links = [one for one in browser.all(".top a") if one.is_displayed()]
    assert {str(one.get_attribute("href")).rpartition("/")[2] for one in links} == {
        *("", "questions", "images", "map", "classes", "history", "api")
    }
    cells = browser.all("tbody td, tbody th")
    assert cells or path not in ("/", "/history")
    for one in links + cells:
        assert one.rect["x"] >= 0
        assert one.rect["x"] + one.rect["width"] <= PHONE[0], one.text
