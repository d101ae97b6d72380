"""The images that looked new: seen, filtered, chosen and taught, in a real browser."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from monitor.people.version_manifest import current_knowledge
from monitor.store import Store
from tests.desk import gallery_world
from tests.desk.browser import PHONE, Browser

IMAGES, NOVEL = 600, 150


@pytest.fixture
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    gallery_world.make_feed(tmp_path / "feed")
    novel = getattr(request, "param", NOVEL)
    gallery_world.make(tmp_path / "state", images=IMAGES, novel=novel)
    return tmp_path / "state"


def shown(browser: Browser) -> list[int]:
    """The rows of the images in view, in their order."""
    found = browser.driver.execute_script(
        "return [...document.querySelectorAll('.cell')]"
        ".sort((a, b) => a.dataset.index - b.dataset.index)"
        ".map(cell => Number(cell.firstChild.alt.match(/Image (\\d+)/)[1]))"
    )
    return [int(one) for one in found]


def known(state: Path) -> dict[str, tuple[int, int]]:
    with Store.open(state) as store:
        classes = current_knowledge(store).classes.values()
        return {entry.name: (entry.human, entry.pseudo) for entry in classes}


def loaded(browser: Browser) -> bool:
    script = "return [...document.querySelectorAll('.cell img')].every(i => i.naturalWidth == 320)"
    return bool(browser.driver.execute_script(script))


def test_what_looked_new_is_shown_whole_and_filtered(browser: Browser) -> None:
    browser.visit("/images")
    assert browser.text("#gallery-count") == f"{NOVEL} images"
    browser.until(lambda: loaded(browser))
    fit = "return getComputedStyle(document.querySelector('.cell img')).objectFit"
    assert browser.driver.execute_script(fit) == "contain", "people judge whole pictures"
    assert shown(browser)[0] == NOVEL - 1, "the latest first"
    browser.driver.execute_script(
        "const f = document.getElementById('filters'); f.elements.source.value = 'cam-2';"
        "f.dispatchEvent(new Event('change'))"
    )
    browser.until(lambda: browser.text("#gallery-count") == f"{NOVEL // 3} images")
    browser.until(lambda: all(row % 3 == 1 for row in shown(browser)))
    browser.driver.execute_script(
        "const f = document.getElementById('filters'); f.elements.least.value = '1.6';"
        "f.elements.order.value = 'score'; f.dispatchEvent(new Event('change'))"
    )
    browser.until(lambda: "very unusual" in browser.text(".cell"))
    browser.driver.execute_script(
        "const f = document.getElementById('filters'); f.elements.since.value = '2099-01-01T00:00';"
        "f.dispatchEvent(new Event('change'))"
    )
    browser.until(lambda: "Choose fewer filters" in browser.text("#gallery-empty"))


def test_the_address_keeps_what_is_shown(browser: Browser) -> None:
    browser.visit("/images?source=cam-2&order=score&least=1.6")
    form = "const f = document.getElementById('filters').elements; return "
    read = browser.driver.execute_script
    assert read(f"{form} [f.source.value, f.order.value, f.least.value]") == [
        *("cam-2", "score", "1.6")
    ]
    browser.until(lambda: all(row % 3 == 1 for row in shown(browser)))
    read(
        "const f = document.getElementById('filters'); f.elements.least.value = '';"
        "f.dispatchEvent(new Event('change'))"
    )
    browser.until(lambda: browser.driver.current_url.endswith("source=cam-2&order=score"))
    browser.until(lambda: browser.text("#gallery-count") == f"{NOVEL // 3} images")


def test_images_are_chosen_by_keyboard_named_and_taken_back(browser: Browser, state: Path) -> None:
    browser.visit("/images")
    browser.driver.execute_script("document.getElementById('gallery').focus()")
    rows = shown(browser)
    dunes = [index for index, row in enumerate(rows) if gallery_world.kind_of(row) == "dune"][:3]
    here = 0
    for index in dunes:
        browser.press(*[Keys.ARROW_RIGHT] * (index - here), "x")
        here = index
    browser.until(lambda: browser.text("#acting-words") == "3 images")
    assert len(browser.all("#acting-pictures img")) == 3
    browser.press("n")
    browser.until(lambda: browser.is_open("#naming"))
    browser.press("dune", Keys.ENTER)
    browser.until(lambda: "dune: 3 by you" in browser.toasts())
    human, pseudo = known(state)["dune"]
    assert human == 3
    assert pseudo >= 15, "others of the same kind follow, as they follow an answer"
    browser.until(lambda: int(browser.text("#gallery-count").split()[0]) == NOVEL - 3 - pseudo)
    browser.click(".toast .link")
    browser.until(lambda: "dune" not in known(state))
    browser.until(lambda: browser.text("#gallery-count") == f"{NOVEL} images")


def test_known_images_teach_their_class_and_blanks_are_marked(
    browser: Browser, state: Path
) -> None:
    browser.visit("/images")
    before = known(state)["water"]
    browser.click(".cell:nth-child(1)", ctrl=True)
    browser.click(".cell:nth-child(5)", shift=True)
    browser.until(lambda: browser.text("#acting-words") == "5 images")
    browser.click('[data-act="known"]')
    browser.until(lambda: browser.is_open("#known-dialog"))
    browser.click('#known-classes [data-name="water"]')
    browser.click('#known-dialog [type="submit"]')
    browser.until(lambda: "water: 5 by youUndo" in browser.toasts())
    browser.until(lambda: known(state)["water"] == (before[0] + 5, before[1]))
    browser.until(lambda: browser.text("#gallery-count") == f"{NOVEL - 5} images")
    browser.click(".cell:nth-child(1) .pick")
    browser.click('[data-act="bad"]')
    browser.until(lambda: browser.text("#gallery-count") == f"{NOVEL - 6} images")
    browser.click(".toast:last-child .link")
    browser.until(lambda: browser.text("#gallery-count") == f"{NOVEL - 5} images")


@pytest.mark.parametrize("state", [460, 540], indirect=True)
def test_all_are_chosen_also_those_that_were_not_scrolled_to(browser: Browser, state: Path) -> None:
    browser.visit("/images")
    total = int(browser.text("#gallery-count").split()[0])
    browser.click("#choose-all")
    browser.until(lambda: browser.text("#acting-words") == f"{min(total, 500)} images")
    assert ("The first 500 of 540 are chosen" in browser.toasts()) is (total == 540)


def test_one_image_is_seen_large_with_what_it_looks_like(browser: Browser) -> None:
    browser.visit("/images")
    browser.click(".cell:nth-child(1)")
    browser.until(lambda: browser.is_open("#large"))
    browser.until(lambda: len(browser.all("#large-alike img")) == 8)
    assert browser.all("#large-reference img")
    words = browser.text("#large-words")
    assert "cam-" in words
    assert "unusual (" in words
    assert "UTC" in words, "a time says its zone"
    assert f"{NOVEL - 1:05d}" in words, "its id is what other tools call it"
    browser.press(Keys.ARROW_RIGHT)
    browser.until(lambda: browser.text("#large-words") != words)
    browser.press("x")
    browser.until(lambda: browser.text("#large-choose") == "Chosen ✓")
    assert browser.text("#large-name") == "Name it…"
    browser.press(Keys.ARROW_RIGHT)
    browser.until(lambda: browser.text("#large-name") == "Name these 2…")
    assert browser.text("#large-known") == "These 2 are known…"
    assert browser.text("#large-bad") == "Not images (2)"
    browser.press(Keys.ESCAPE)
    assert browser.text("#acting-words") == "1 image"
    browser.press(Keys.ESCAPE, Keys.ENTER)
    browser.until(lambda: browser.is_open("#large"))
    browser.click("#large-name")
    browser.until(lambda: browser.text("#naming-title") == "What is it?")
    assert browser.text("#acting-words") == "1 image", "what is named is chosen, and seen"
    browser.press(Keys.ESCAPE, Keys.ESCAPE, Keys.ENTER)
    browser.until(lambda: browser.is_open("#large"))
    browser.click("#large-bad")
    browser.until(lambda: browser.text("#gallery-count") == f"{NOVEL - 1} images")


def test_a_lasso_on_the_map_chooses_what_lies_together(browser: Browser, state: Path) -> None:
    browser.visit("/map")
    browser.until(lambda: browser.one("#map").get_attribute("data-settled") == "yes")
    where = (
        "const map = document.getElementById('map');"
        "return map.ids().map(id => [id, map.whereIs(id)])"
    )
    corners = browser.driver.execute_script(where)
    assert len(corners) == IMAGES
    xs = [at["x"] for _, at in corners]
    ys = [at["y"] for _, at in corners]
    box = browser.one("#map").size
    left, top = min(xs) - 12, min(ys) - 12
    middle = (min(xs) + max(xs)) / 2
    inside = sum(x < middle for x in xs)
    assert 0 < inside < IMAGES
    half = (box["width"] / 2, box["height"] / 2)
    path = [(left, top), (middle, top), (middle, max(ys) + 12), (left, max(ys) + 12)]
    chain = ActionChains(browser.driver)
    chain.move_to_element_with_offset(
        browser.one("#map"), int(path[0][0] - half[0]), int(path[0][1] - half[1])
    ).click_and_hold()
    for before, after in pairwise(path):
        chain.move_by_offset(int(after[0]) - int(before[0]), int(after[1]) - int(before[1]))
    chain.release().perform()
    browser.until(lambda: browser.text("#acting-words") == f"{min(inside, 500)} images")
    now = browser.driver.execute_script(where)
    assert now == corners, "nothing moves under the pointer when the answers appear"
    browser.press(Keys.ESCAPE)
    browser.until(lambda: not browser.one("#acting").is_displayed())


def test_the_map_is_used_by_keyboard(browser: Browser) -> None:
    browser.visit("/map")
    browser.driver.execute_script("document.getElementById('map').focus()")
    browser.press(Keys.ARROW_RIGHT, "x", Keys.ARROW_RIGHT, "x")
    browser.until(lambda: browser.text("#acting-words") == "2 images")
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.is_open("#large"))


@pytest.mark.parametrize("path", ["/images", "/map"])
def test_a_phone_reaches_everything(browser: Browser, path: str) -> None:
    browser.resize(PHONE)
    browser.visit(path)
    width = browser.driver.execute_script("return document.documentElement.scrollWidth")
    assert width <= PHONE[0]
    if path == "/images":
        browser.click(".cell:nth-child(1) .pick")
        button = browser.one('[data-act="name"]')
        assert button.rect["y"] + button.rect["height"] <= PHONE[1]
        browser.click("#show-filters")
        browser.click("#show-filters")
        browser.click(".cell:nth-child(2) img")
        browser.until(lambda: browser.is_open("#large"))
        for one in browser.all("#large .zoom-actions button"):
            assert one.rect["x"] + one.rect["width"] <= PHONE[0]
            assert one.rect["y"] + one.rect["height"] <= PHONE[1], one.text
    for field in browser.all("#filters select, #filters input, .filters button"):
        assert field.rect["x"] + field.rect["width"] <= PHONE[0]


def test_two_fingers_move_and_zoom_the_map(browser: Browser) -> None:
    browser.resize(PHONE)
    browser.visit("/map")
    browser.until(lambda: browser.one("#map").get_attribute("data-settled") == "yes")
    before = points(browser)
    top = browser.one("#map").rect["y"]

    def touch(kind: str, *at: tuple[int, int]) -> None:
        fingers = [{"x": x, "y": top + y, "id": n} for n, (x, y) in enumerate(at)]
        params = {"type": kind, "touchPoints": fingers}
        browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", params)

    touch("touchStart", (150, 100))
    touch("touchStart", (150, 100), (250, 100))
    touch("touchMove", (100, 150), (300, 150))
    touch("touchEnd")
    after = browser.until(lambda: points(browser) if points(browser) != before else None)
    # Twice as large, and what was between the fingers still is.
    assert after[1][0] - after[0][0] == pytest.approx(2 * (before[1][0] - before[0][0]), abs=1)
    assert after[0][0] - 200 == pytest.approx(2 * (before[0][0] - 200), abs=20)
    assert after[0][1] - 150 == pytest.approx(2 * (before[0][1] - 100), abs=20)
    assert browser.one("#acting").is_displayed() is False


def points(browser: Browser) -> list[tuple[float, float]]:
    """Where two images lie on the map."""
    found = browser.driver.execute_script(
        "const map = document.getElementById('map');"
        "return map.ids().slice(0, 2).map(id => map.whereIs(id))"
    )
    return [(one["x"], one["y"]) for one in found]


def test_what_was_settled_is_joined_and_the_last_revision_stands(state: Path) -> None:
    import pyarrow as pa

    from monitor.config.desk_section import DeskSection
    from monitor.desk.app import build
    from monitor.desk.novel_images import image_key
    from monitor.store.records import OutputFile
    from monitor.store.verdict_columns import write_table
    from tests.desk.client import Client

    rows = {
        "image_id": ["00000", "00001", "00002", "00000", "00300"],
        "source_id": ["cam-1", "cam-2", "cam-3", "cam-1", "cam-1"],
        "verdict": ["new", "known", "undecided", "shifted", "new"],
        "class_id": ["c1", "c2", None, None, None],
        "by": ["spread", "score", "pool", "person", "spread"],
        "revision": [1, 1, 1, 2, 1],
        "detector_version": [1, 1, 1, 1, 1],
    }
    with Store.open(state) as store:
        staged = write_table(store.folder, "settled/b1.parquet", pa.table(rows))
        with store.transaction() as tx:
            output = OutputFile("settled", 1, 1, 0, staged.name, 5, 0, 1, staged.sha256, tx.now)
            tx.outputs.add(output)
        client = Client(build(store, DeskSection()))

        def found(query: str) -> list[str]:
            reply = client.get(f"/api/images?limit=500&{query}").json()
            return [one["image"] for one in reply["images"]]

        assert found("settled=shifted") == ["00000"]
        assert found("settled=new") == ["00300"], "it looked known at first"
        late = client.get("/api/images?settled=new").json()["images"][0]
        assert client.get(f"/pictures/{late['id']}").status == 200
        key = image_key("cam-3", "00002")
        body = {"action": "lesson-1", "images": [key], "answer": "class", "class": "snow"}
        assert client.post("/api/images/teach", body).status == 200
        assert "00002" not in found(""), "named after its pool was settled"
        undo = {"action": "unlearn-1", "of": "lesson-1"}
        assert client.post("/api/images/undo", undo).status == 200
        assert "00002" in found("")
        assert found("settled=known") == ["00001"]
        assert len(found("")) == NOVEL - 2, "what is undecided still looks new"
        assert len(found("all=true")) == NOVEL + 1


def test_a_whole_map_says_what_each_point_is(state: Path, tmp_path: Path) -> None:
    from monitor.config.desk_section import DeskSection
    from monitor.desk.app import build
    from tests.desk.client import Client

    with Store.open(state) as store:
        client = Client(build(store, DeskSection()))
        found: dict[str, Any] = json.loads(client.get("/api/pools/1/map").body)
        points = found["points"]
        assert len(points) == IMAGES
        assert all(0 <= one["x"] <= 1 and 0 <= one["y"] <= 1 for one in points)
        assert sum(one["novel"] for one in points) >= NOVEL * 0.9
        assert client.get("/api/pools/99/map").status == 404
