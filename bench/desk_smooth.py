"""Ten thousand images in the gallery and two thousand points on the map: smooth, in flat memory?

    python -m bench.desk_smooth [--images 10000] [--points 2000] [--passes 2]

The desk is a process of its own. Chromium scrolls through the whole gallery with its own scroll
gestures, stopping often enough that the pictures of every page are loaded, and zooms the map with
the wheel. Tasks are those of the page's main thread in Chromium's trace, by the clock; the memory
is that of the desk's process.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver

from monitor.desk.server import Handle, start
from tests.desk import gallery_world
from tests.desk.browser import DESKTOP, PHONE, Browser, chromium, config_of, main_thread_tasks

LONG_MS = 50.0
"""What people notice as a stutter, and what Chromium calls a long task."""

STEP = 2400
"""Pixels between two stops: some three screens."""


def memory(handle: Handle) -> float:
    """Resident megabytes of the desk."""
    status = Path(f"/proc/{handle.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def paint_ms(driver: webdriver.Chrome) -> float:
    script = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return float(driver.execute_script(script))


def moving(driver: webdriver.Chrome, since: float) -> dict[str, Any]:
    """What the trace says since then; a driver hands its trace out once."""
    tasks = main_thread_tasks(driver, since)
    return {
        "traced_s": round(max(task.at for task in tasks) - since, 1),
        "tasks": len(tasks),
        "longest_task_ms": round(max(task.wall_ms for task in tasks), 1),
        "longest_task_cpu_ms": round(max(task.cpu_ms for task in tasks), 1),
        "tasks_over_50_ms": sum(task.wall_ms > LONG_MS for task in tasks),
    }


def scroll(driver: webdriver.Chrome, pixels: int) -> None:
    """As a person does with a wheel or a finger; returns when the page stands still."""
    gesture = {"x": 600, "y": 500, "yDistance": -pixels, "speed": 6000}
    driver.execute_cdp_cmd("Input.synthesizeScrollGesture", gesture)


def gallery(browser: Browser, handle: Handle, passes: int) -> dict[str, Any]:
    driver = browser.driver
    browser.visit("/images")
    found: dict[str, Any] = {
        "shown": browser.text("#gallery-count"),
        "first_paint_cold_ms": round(paint_ms(driver)),
    }
    browser.visit("/images")
    found["first_paint_ms"] = round(paint_ms(driver))
    sizes = []
    for number in range(passes):
        if number:
            browser.visit("/images")
        loaded(browser)
        script = "return document.getElementById('gallery').scrollHeight"
        stops = -(-int(driver.execute_script(script)) // STEP)
        since = time.monotonic()
        for _ in range(stops):
            scroll(driver, STEP)
            loaded(browser)
        sizes.append(round(memory(handle)))
        if not number:
            found |= {"scrolled_s": round(time.monotonic() - since, 1), "stops": stops}
            found |= moving(driver, since)
    cells = len(browser.all(".cell"))
    return found | {"cells_in_the_page": cells, "memory_after_each_pass_mb": sizes}


def loaded(browser: Browser) -> None:
    """Wait for the pictures in view."""
    script = (
        "return [...document.querySelectorAll('.cell img')]"
        ".every(one => one.src && one.complete && one.naturalWidth)"
    )
    browser.until(lambda: browser.driver.execute_script(script))


def map_of_a_pool(browser: Browser, handle: Handle) -> dict[str, Any]:
    driver = browser.driver
    browser.visit("/map")
    found: dict[str, Any] = {"first_paint_ms": round(paint_ms(driver))}
    browser.until(lambda: browser.one("#map").get_attribute("data-settled") == "yes")
    since = time.monotonic()
    for turn in range(60):
        wheel = {
            "type": "mouseWheel",
            "x": 700,
            "y": 500,
            "deltaX": 0,
            "deltaY": -120 if turn % 20 < 10 else 120,
        }
        driver.execute_cdp_cmd("Input.dispatchMouseEvent", wheel)
    time.sleep(0.3)
    return found | moving(driver, since) | {"memory_mb": round(memory(handle))}


@contextmanager
def desk(folder: Path) -> Iterator[Handle]:
    handle = start(config_of(folder / "state", f"feed.path={folder / 'feed'}"))
    try:
        yield handle
    finally:
        handle.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=2_000)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--phone", action="store_true", help="390 pixels wide")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many, pool = folder / "many", folder / "pool"
        gallery_world.make_feed(many / "feed", chosen.images)
        gallery_world.make(
            many / "state",
            images=chosen.images,
            novel=chosen.images,
            pictures=chosen.images,
        )
        gallery_world.make_feed(pool / "feed")
        gallery_world.make(pool / "state", images=chosen.points, novel=chosen.points // 4)
        found: dict[str, Any] = {}
        for place, look in ((many, "gallery"), (pool, "map")):
            with desk(place) as handle, chromium(folder / look, traced=True) as driver:
                browser = Browser(driver, handle.url)
                browser.resize(PHONE if chosen.phone else DESKTOP)
                if look == "gallery":
                    found[look] = gallery(browser, handle, chosen.passes)
                else:
                    found[look] = map_of_a_pool(browser, handle)
                driver.get("about:blank")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
