"""Ten thousand images in the gallery and two thousand points on the map: smooth, in flat memory?

    python -m bench.desk_smooth [--images 10000] [--points 2000] [--passes 2]

The desk is a process of its own. Chromium scrolls through the whole gallery with the wheel,
stopping every three screens until their pictures are loaded, and zooms the map. Tasks are those of
the page's main thread in Chromium's trace, by the clock and, for a machine that others use, by the
processor's time; a trace that holds tasks in less than 80% of its half seconds is refused. The
memory is that of the desk's process.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monitor.desk.server import Handle, start
from tests.desk import gallery_world
from tests.desk.browser import DESKTOP, PHONE, Browser, chromium, config_of
from tests.desk.page_trace import LONG_TASK_MS, PageTrace, paint_ms, scroll_through, zoom_map

LEAST_COVERED = 0.8
"""A trace that ended early shows nothing about what came after."""


def memory(handle: Handle) -> float:
    """Resident megabytes of the desk."""
    status = Path(f"/proc/{handle.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def moving(trace: PageTrace) -> dict[str, Any]:
    covered = trace.covered()
    if covered < LEAST_COVERED:
        raise SystemExit(f"the trace covers only {covered:.0%} of {trace.seconds:.0f} s")
    return {
        "moved_s": round(trace.seconds, 1),
        "traced": round(covered, 3),
        "tasks": len(trace.tasks),
        "longest_task_ms": round(max(task.wall_ms for task in trace.tasks), 1),
        "tasks_over_50_ms": sum(task.wall_ms > LONG_TASK_MS for task in trace.tasks),
        "longest_task_cpu_ms": round(max(task.cpu_ms for task in trace.tasks), 1),
    }


def gallery(browser: Browser, handle: Handle, passes: int) -> dict[str, Any]:
    browser.visit("/images")
    found: dict[str, Any] = {
        "shown": browser.text("#gallery-count"),
        "first_paint_cold_ms": round(paint_ms(browser.driver)),
    }
    sizes, traces = [], []
    for _ in range(passes):
        browser.visit("/images")
        found["first_paint_ms"] = round(paint_ms(browser.driver))
        traces.append(scroll_through(browser))
        sizes.append(round(memory(handle)))
    cells = len(browser.all(".cell"))
    return found | {
        "passes": [moving(trace) for trace in traces],
        "cells_in_the_page": cells,
        "memory_after_each_pass_mb": sizes,
    }


def map_of_a_pool(browser: Browser, handle: Handle) -> dict[str, Any]:
    browser.visit("/map")
    found = {"first_paint_ms": round(paint_ms(browser.driver))}
    return found | moving(zoom_map(browser)) | {"memory_mb": round(memory(handle))}


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
            with desk(place) as handle, chromium(folder / look) as driver:
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
