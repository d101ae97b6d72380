"""The gallery and the map move without stutter; ``bench/desk_smooth.py`` shows it at full size."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver

from tests.desk import gallery_world
from tests.desk.browser import DESKTOP, Browser, config_of, served
from tests.desk.page_trace import LONG_TASK_MS, PageTrace, paint_ms, scroll_through, zoom_map

PAINT_MS = 1000.0


def check(trace: PageTrace) -> None:
    assert trace.covered() >= 0.8
    # By the processor: what other programs took meanwhile is not the page's.
    assert [task for task in trace.tasks if task.cpu_ms > LONG_TASK_MS] == []


@pytest.mark.parametrize(("images", "novel", "path"), [(600, 600, "/images"), (2000, 500, "/map")])
def test_a_whole_gallery_and_a_map_move_without_long_tasks(
    driver: webdriver.Chrome, tmp_path: Path, images: int, novel: int, path: str
) -> None:
    gallery_world.make_feed(tmp_path / "feed")
    gallery_world.make(tmp_path / "state", images=images, novel=novel)
    with served(config_of(tmp_path / "state", f"feed.path={tmp_path / 'feed'}")) as url:
        browser = Browser(driver, url)
        browser.resize(DESKTOP)
        browser.visit(path)  # the server reads its files, and Chromium compiles the scripts
        browser.visit(path)
        assert paint_ms(driver) < PAINT_MS
        check(scroll_through(browser) if path == "/images" else zoom_map(browser))
        assert len(browser.all(".cell")) < 120, "only what is in view is in the page"
        driver.get("about:blank")
