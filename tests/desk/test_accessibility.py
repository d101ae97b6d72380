"""Usable by everybody: axe-core finds nothing serious, and the focus can always be seen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from monitor.desk.roles_and_tokens import Role, add_token
from monitor.store import Store
from tests.desk.axe import fetch, violations
from tests.desk.browser import DESKTOP, PHONE, Browser, chromium, config_of, served


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fetch(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="module")
def browser(mould: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("accessible")
    state = shutil.copytree(mould, folder / "state")
    with chromium(folder / "profile") as driver, served(config_of(state)) as url:
        yield Browser(driver, url)


@pytest.mark.parametrize(
    "path", ["/", "/questions", "/images", "/map", "/classes", "/history", "/api", "/sign-in"]
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_violation(
    browser: Browser, axe: str, path: str, scheme: str
) -> None:
    browser.prefer(scheme)
    for size in (DESKTOP, PHONE):
        browser.resize(size)
        browser.visit(path)
        assert violations(browser, axe) == []


@pytest.mark.parametrize(
    ("path", "keys", "selector"),
    [
        ("/questions", "n", None),
        ("/questions", " ", None),
        ("/images", Keys.ENTER, None),
        ("/images", "x", '[data-act="name"]'),
        ("/images", "x", '[data-act="known"]'),
        ("/map", Keys.ARROW_RIGHT + "x", '[data-act="name"]'),
        ("/classes", None, '[data-samples="yes"]'),
        ("/classes", None, ".strip button"),
        ("/classes", None, '[data-do="rename"]'),
        ("/classes", None, '[data-do="retire"]'),
        ("/classes", None, '[data-do="samples"]'),
        ("/history", None, '[data-do="rollback"]'),
    ],
)
def test_no_dialog_has_a_serious_violation(
    browser: Browser, axe: str, path: str, keys: str | None, selector: str | None
) -> None:
    for scheme, size in (("light", DESKTOP), ("dark", PHONE)):
        browser.prefer(scheme)
        browser.resize(size)
        browser.visit(path)
        if keys is not None:
            browser.press(keys)
        if selector is not None:
            browser.click(selector)
        browser.until(lambda: browser.all("dialog[open]"))
        assert violations(browser, axe) == []


def test_signing_in_is_accessible_too(
    browser: Browser, axe: str, mould: Path, tmp_path: Path
) -> None:
    state = shutil.copytree(mould, tmp_path / "state")
    with Store.open(state) as store:
        token = add_token(store, "ada", Role.ANNOTATOR)
    with served(config_of(state)) as url:
        other = Browser(browser.driver, url)
        other.resize(DESKTOP)
        other.driver.get(url + "/questions")
        other.one("#token").send_keys("wrong", Keys.ENTER)
        other.until(lambda: "not known here" in other.body().text)
        assert violations(other, axe) == []
        other.one("#token").send_keys(token, Keys.ENTER)
        other.until(lambda: other.body().get_attribute("data-ready") == "yes")
        assert "ada" in other.one(".person").text
        other.press(Keys.ENTER)
        other.until(lambda: len(other.cards()) == 19)
        other.click("#sign-out")
        other.until(lambda: other.all("#token"))


def test_whatever_has_the_focus_can_be_seen(browser: Browser) -> None:
    browser.prefer("light")
    browser.resize(DESKTOP)
    for path in ("/", "/questions", "/images", "/map", "/classes", "/history"):
        browser.visit(path)
        seen = set()
        for _ in range(12):
            browser.press(Keys.TAB)
            focused = browser.driver.switch_to.active_element
            if focused.tag_name == "body":
                break
            outline = focused.value_of_css_property("outline-style")
            assert outline != "none", focused.get_attribute("outerHTML")
            seen.add(focused.id)
        assert len(seen) > 3
        assert browser.driver.find_elements(By.CSS_SELECTOR, "main")
