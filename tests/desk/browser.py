"""A real Chromium, and a desk that it can visit."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from monitor.config import Config, load
from monitor.desk.server import serve
from monitor.people.exchange.question_records import read_questions
from monitor.store import Store
from tests.system import require_system

#: A crowded two-core machine takes seconds where an idle one takes milliseconds.
PATIENCE = float(os.environ.get("CONCLAD_PATIENCE", "60"))

DESKTOP, PHONE = (1440, 900), (390, 844)

#: Pages whose script says when it is done.
READY = ("/", "/questions", "/images", "/map", "/classes", "/history")

LISTEN = """
window.said = [];
new MutationObserver(changes => {
  for (const node of changes.flatMap(change => [...change.addedNodes])) {
    if (node.classList?.contains("toast")) window.said.push(node.textContent);
  }
}).observe(document, { childList: true, subtree: true });
"""


class Browser:
    """Chromium, driven as a person would: looks, keys and clicks."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self.url = driver, url

    def visit(self, path: str = "/questions") -> None:
        self.driver.get(self.url + path)
        if path.partition("?")[0] in READY:
            self.until(lambda: self.body().get_attribute("data-ready") == "yes")

    def until(self, condition: Callable[[], Any]) -> Any:
        waiting = WebDriverWait(
            self.driver,
            PATIENCE,
            poll_frequency=0.05,
            # The page renews itself; what was replaced while we looked is looked for again.
            ignored_exceptions=[StaleElementReferenceException],
        )
        return waiting.until(lambda _: condition())

    def body(self) -> WebElement:
        return self.driver.find_element(By.TAG_NAME, "body")

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """What can be read there, found and read in one moment: the page renews itself."""
        script = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.driver.execute_script(script, selector))

    def is_open(self, selector: str) -> bool:
        script = "return Boolean(document.querySelector(arguments[0])?.open)"
        return bool(self.driver.execute_script(script, selector))

    def press(self, *keys: str, shift: bool = False) -> None:
        """Keys go to whatever has the focus, as they do from a keyboard."""
        chain = ActionChains(self.driver)
        if shift:
            chain.key_down(Keys.SHIFT)
        chain.send_keys(*keys)
        if shift:
            chain.key_up(Keys.SHIFT)
        chain.perform()

    def click(self, selector: str, *, shift: bool = False, ctrl: bool = False) -> None:
        def click() -> bool:
            chain = ActionChains(self.driver)
            held = [key for key, is_down in ((Keys.SHIFT, shift), (Keys.CONTROL, ctrl)) if is_down]
            for key in held:
                chain.key_down(key)
            chain.click(self.one(selector))
            for key in held:
                chain.key_up(key)
            chain.perform()
            return True

        # A page that has just been resized is laid out once more: a click may land beside.
        self.until(lambda: self._stands_still(selector))
        # Again, if what was found is replaced before it is reached.
        self.until(click)

    def _stands_still(self, selector: str) -> bool:
        before = self.one(selector).rect
        time.sleep(0.1)
        return before == self.one(selector).rect

    def cards(self) -> list[int]:
        found = self.driver.execute_script(
            "return [...document.querySelectorAll('.card')].map(card => Number(card.dataset.id))"
        )
        return [int(one) for one in found]

    def palette(self) -> list[str]:
        """The names in the order of their keys, read in one moment: the page renews itself."""
        found = self.driver.execute_script(
            "return [...document.querySelectorAll('#palette .class')].map(one => one.dataset.name)"
        )
        return [str(one) for one in found]

    def in_hand(self) -> str | None:
        """The id of the image that an answer would go to."""
        found = self.driver.execute_script(
            "return document.querySelector('.card.current')?.dataset.image"
        )
        return None if found is None else str(found)

    def targets(self) -> list[str]:
        """The images whose pictures the answer panel names."""
        found = self.driver.execute_script(
            "return [...document.querySelectorAll('#target-pictures [data-look]')]"
            ".map(one => document.getElementById('q' + one.dataset.look).dataset.image)"
        )
        return [str(one) for one in found]

    def toasts(self) -> str:
        """Every small message since the page was loaded; they go before a slow machine looks."""
        return str(self.driver.execute_script("return window.said.join('\\n')"))

    def resize(self, size: tuple[int, int]) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {
                "width": size[0],
                "height": size[1],
                "deviceScaleFactor": 1,
                "mobile": size == PHONE,
            },
        )

    def prefer(self, scheme: str) -> None:
        feature = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})

    def complaints(self) -> list[str]:
        """What the page wrote to the console: errors, and what the policy blocked.

        A request that failed because a test stopped the server is not the page's fault.
        """
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")  # type: ignore[no-untyped-call]
            if "ERR_CONNECTION" not in entry["message"]
        ]


def answers(state: Path) -> dict[int, str | None]:
    """What was answered so far, by question."""
    with Store.open(state) as store:
        return {one.question.id: one.answered for one in read_questions(store, "answered")}


def config_of(state: Path, *overrides: str) -> Config:
    empty = state.parent / "empty.yaml"
    empty.touch()
    return load(
        empty, overrides=[f"state.dir={state}", "desk.port=0", *overrides], environ={}
    ).config


@contextlib.contextmanager
def served(config: Config) -> Iterator[str]:
    """The desk in a thread of ours; its address."""
    began: Future[str] = Future()
    stop = threading.Event()

    def run() -> None:
        try:
            serve(config, ready=began.set_result, stop=stop)
        except BaseException as error:
            if not began.done():
                began.set_exception(error)
            raise

    thread = threading.Thread(target=run, name="desk")
    thread.start()
    try:
        yield began.result(PATIENCE)
    finally:
        stop.set()
        thread.join(PATIENCE)


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """A Chromium of its own."""
    binary = require_system("chromium", "chromium")
    driver = require_system("chromedriver", "chromium-driver")
    options = Options()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # it refuses to run as root with one
    found = webdriver.Chrome(options=options, service=Service(driver))
    try:
        found.set_page_load_timeout(PATIENCE)
        found.set_script_timeout(PATIENCE)
        found.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LISTEN})
        yield found
    finally:
        found.quit()
