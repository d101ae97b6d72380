"""What the main thread of a page did, from Chromium's own trace."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import websocket
from selenium import webdriver

from tests.desk.browser import Browser

#: Chromium's buffer ends the trace when it is full. A minute of scrolling fills some 40 MB.
BUFFER_KB = 512 * 1024

#: Where the developer tools take the tasks of a thread from.
CATEGORY = "disabled-by-default-devtools.timeline"

#: Pixels of one turn of the wheel. A mouse's notch is 120; people who look for something turn more.
TURN = 240

#: Turns after which the list stands still until its pictures are there: some three screens.
LOOK_AFTER = 10

#: What people notice as a stutter, and what Chromium calls a long task.
LONG_TASK_MS = 50.0

AT_END = (
    "const place = document.getElementById('gallery');"
    "return place.scrollTop + place.clientHeight >= place.scrollHeight - 1"
)


@dataclass(frozen=True)
class PageTask:
    """One task of a page's main thread: when, how long by the clock, and on the processor."""

    at: float
    wall_ms: float
    cpu_ms: float


@dataclass
class PageTrace:
    """Filled when the trace has ended; times are those of ``time.monotonic``."""

    began: float = 0.0
    ended: float = 0.0
    tasks: list[PageTask] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def covered(self) -> float:
        """The share of its half seconds in which it has a task: a page that moves always has."""
        slots = max(1, round(self.seconds * 2))
        held = {int((task.at - self.began) * 2) for task in self.tasks}
        return len(held & set(range(slots))) / slots

    def longer_than(self, milliseconds: float) -> list[PageTask]:
        return [task for task in self.tasks if task.wall_ms > milliseconds]


@contextlib.contextmanager
def tracing(driver: webdriver.Chrome) -> Iterator[PageTrace]:
    """Trace what happens inside, over an own connection: the driver's log loses long traces."""
    address = driver.capabilities["goog:chromeOptions"]["debuggerAddress"]
    with urllib.request.urlopen(f"http://{address}/json/version") as reply:
        endpoint = json.load(reply)["webSocketDebuggerUrl"]
    connection = websocket.create_connection(endpoint, suppress_origin=True, timeout=120)
    try:
        config = {
            "recordMode": "recordUntilFull",
            "traceBufferSizeInKb": BUFFER_KB,
            "includedCategories": [CATEGORY],
            "excludedCategories": ["*"],
        }
        _send(connection, 1, "Tracing.start", {"traceConfig": config})
        while "id" not in _receive(connection):
            pass
        found = PageTrace(began=time.monotonic())
        yield found
        found.ended = time.monotonic()
        _send(connection, 2, "Tracing.end", {})
        found.tasks = _tasks(_collected(connection), found.began)
    finally:
        connection.close()


def paint_ms(driver: webdriver.Chrome) -> float:
    script = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return float(driver.execute_script(script))


def scroll_through(browser: Browser) -> PageTrace:
    """Through the whole gallery with the wheel, looking at its pictures now and then."""
    wait_for_pictures(browser)
    with tracing(browser.driver) as trace:
        for turn in itertools.count(1):
            turn_wheel(browser.driver, TURN)
            if turn % LOOK_AFTER == 0:
                wait_for_pictures(browser)
                if browser.driver.execute_script(AT_END):
                    break
    return trace


def wait_for_pictures(browser: Browser) -> None:
    script = (
        "return [...document.querySelectorAll('.cell img')]"
        ".every(one => one.src && one.complete && one.naturalWidth)"
    )
    browser.until(lambda: browser.driver.execute_script(script))


def zoom_map(browser: Browser) -> PageTrace:
    """In and out with the wheel."""
    browser.until(lambda: browser.one("#map").get_attribute("data-settled") == "yes")
    with tracing(browser.driver) as trace:
        for turn in range(60):
            turn_wheel(browser.driver, -120 if turn % 20 < 10 else 120)
    return trace


def turn_wheel(driver: webdriver.Chrome, pixels: int) -> None:
    """One turn over the page; returns when the page has taken it."""
    wheel = {"type": "mouseWheel", "x": 300, "y": 500, "deltaX": 0, "deltaY": pixels}
    driver.execute_cdp_cmd("Input.dispatchMouseEvent", wheel)


def _send(connection: websocket.WebSocket, number: int, method: str, params: Any) -> None:
    connection.send(json.dumps({"id": number, "method": method, "params": params}))


def _receive(connection: websocket.WebSocket) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(connection.recv())
    assert "error" not in found, found["error"]
    return found


def _collected(connection: websocket.WebSocket) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while True:
        message = _receive(connection)
        if message.get("method") == "Tracing.dataCollected":
            events += message["params"]["value"]
        elif message.get("method") == "Tracing.tracingComplete":
            assert not message["params"]["dataLossOccurred"], "the trace has lost events"
            return events


def _tasks(events: list[dict[str, Any]], since: float) -> list[PageTask]:
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        PageTask(event["ts"] / 1e6, event["dur"] / 1000, event.get("tdur", 0) / 1000)
        for event in events
        if event["name"] == "RunTask"
        and event["ph"] == "X"
        and (event["pid"], event["tid"]) in mains
        and event["ts"] >= since * 1e6
    ]
    assert tasks, "the trace holds no task of a page"
    return tasks
