"""The screenshots of the desk in the documentation, taken from the present code.

    python -m bench.desk_pictures docs/images

Scenes of the demo's painter stand in for a feed; the desk and the browser are real.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from selenium.webdriver.common.keys import Keys

from monitor.demo.scenes.catalog import jpeg, render
from monitor.store import Store
from tests.desk import gallery_world
from tests.desk.browser import Browser, chromium, config_of, served
from tests.people import world

SIZE = (1440, 900)
SCENE = {"dune": "dunes", "ship": "harbour", "snow": "snow", "forest": "forest", "water": "water"}


def picture(kind: str, seed: int, side: int = 240) -> bytes:
    """A drawn scene in place of the plain pictures of the tests."""
    return jpeg(render(SCENE.get(kind, "snow"), (seed,), 128))


@contextmanager
def desk(folder: Path) -> Iterator[str]:
    with served(config_of(folder / "state", f"feed.path={folder / 'feed'}")) as url:
        yield url


def main(out: Path) -> None:
    world.picture = picture
    with (
        tempfile.TemporaryDirectory() as name,
        chromium(Path(name) / "profile") as driver,
    ):
        asking, seeing = Path(name) / "asking", Path(name) / "seeing"
        for folder in (asking, seeing):
            gallery_world.make_feed(folder / "feed")
        with Store.open(asking / "state") as store:
            world.fit(store)
            world.ask(store, 20)
        gallery_world.make(seeing / "state", images=600, novel=240)
        with desk(asking) as url:
            browser = Browser(driver, url)
            browser.resize(SIZE)
            browser.visit()
            browser.press("x", Keys.ARROW_RIGHT, "x", Keys.ARROW_RIGHT, "x")
            _take(browser, out / "desk.png")
        with desk(seeing) as url:
            browser = Browser(driver, url)
            browser.resize(SIZE)
            browser.visit("/images")
            browser.press(Keys.ARROW_RIGHT, "x", *[Keys.ARROW_RIGHT] * 3, "x")
            _take(browser, out / "desk-images.png")
            browser.visit("/map")
            browser.until(lambda: browser.one("#map").get_attribute("data-settled") == "yes")
            _take(browser, out / "desk-map.png")
            with Store.open(seeing / "state") as store:
                world.ask(store, 24, pool=2)
                world.discover(store, "dune", 24, pool=2)
                world.ask(store, 8, pool=3)
                with store.transaction() as tx:
                    tx.notes.set("monitor", "coordinator", {"seen_at": tx.now.isoformat()})
            browser.visit("/")
            _take(browser, out / "desk-home.png")


def _take(browser: Browser, path: Path) -> None:
    time.sleep(3.0)  # pictures come one after the other; a screenshot has no hurry
    taken = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
    # 256 colours of their own: a third of the bytes, and nobody sees it.
    taken.quantize(256, dither=Image.Dither.FLOYDSTEINBERG).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
