"""The page in a real browser: what a person does in a minute, with the keyboard alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from monitor.store import Store
from monitor.store.answer_kinds import AnswerKind
from monitor.store.record_states import ClassOrigin, QuestionState
from monitor.store.records import Count
from tests.desk.browser import DESKTOP, PHONE, Browser, answers, config_of, served
from tests.people import world


@pytest.fixture(scope="module")
def mould(fresh: Path) -> Path:
    return fresh


def test_twenty_questions_by_keyboard_alone(browser: Browser, state: Path) -> None:
    browser.visit()
    assert len(browser.cards()) == 20
    for left in range(20, 10, -1):  # ten look like dunes: Enter agrees
        assert len(browser.cards()) == left
        browser.press(Keys.ENTER)
    browser.press(Keys.ENTER, "t", "b", "1", Keys.ENTER)  # five look like water
    assert len(browser.cards()) == 5
    browser.press(Keys.ENTER)  # nobody has a name for these yet, so one is asked for
    browser.until(lambda: browser.is_open("#naming"))
    browser.press("glacier", Keys.ENTER)
    browser.until(lambda: len(browser.cards()) == 4)
    browser.until(lambda: "glacier" in browser.palette())
    number = 1 + browser.palette().index("glacier")
    browser.press(*[str(number)] * 4)
    browser.until(lambda: "All answered" in browser.text("#main"))
    browser.until(lambda: len(answers(state)) == 20)
    found = answers(state)
    assert sorted(str(name) for name in found.values()) == sorted(
        ["dune"] * 10 + ["water"] * 2 + ["None"] * 2 + ["glacier"] * 5 + [_first(browser)]
    )


def _first(browser: Browser) -> str:
    """The class under key 1."""
    return browser.palette()[0]


def test_what_is_shown_is_what_is_answered(browser: Browser, state: Path) -> None:
    """Click A, click B, click B again, press 1: B is shown, so B is answered and A is not."""
    browser.visit()
    a, b, *_ = browser.cards()
    browser.click(f"#q{a}")
    browser.click(f"#q{b}")
    browser.click(f"#q{b}")
    shown = browser.one("#stage-image").get_attribute("alt")
    assert shown == f"Image {browser.in_hand()}"
    assert browser.targets() == [browser.in_hand()]
    browser.press("1")
    browser.until(lambda: len(answers(state)) == 1)
    assert list(answers(state)) == [b]


def test_looking_elsewhere_keeps_what_is_chosen_and_says_so(browser: Browser, state: Path) -> None:
    browser.visit()
    a, b, c, *_ = browser.cards()
    browser.click(f"#q{a} .pick")
    browser.click(f"#q{b}", ctrl=True)
    assert browser.text("#target") == "2 images"
    assert not browser.one("#aside").is_displayed()
    browser.click(f"#q{c}")
    assert browser.one("#aside").is_displayed()
    assert browser.text("#target") == "2 images"
    browser.press("1")
    browser.until(lambda: sorted(answers(state)) == [a, b])
    assert c in browser.cards()


def test_large_only_the_image_that_is_shown_is_answered(browser: Browser, state: Path) -> None:
    """Choose A, look at B, show it large, answer: B is answered, and A stays chosen."""
    browser.visit()
    a, b, c, *_ = browser.cards()
    browser.click(f"#q{a} .pick")
    browser.click(f"#q{b}")
    browser.press(" ")
    browser.until(lambda: browser.is_open("#zoom"))
    assert browser.text("#zoom .accept-word") == "Yes, dune"
    browser.press("1")
    browser.until(lambda: list(answers(state)) == [b])
    browser.until(lambda: browser.in_hand() == f"1-{c - 1:04d}")
    browser.press("n")
    browser.until(lambda: browser.is_open("#naming"))
    assert browser.is_open("#zoom"), "what is named can be seen"
    browser.press("glacier", Keys.ENTER)
    browser.until(lambda: list(answers(state)) == [b, c])
    browser.press(Keys.ESCAPE)
    browser.until(lambda: not browser.is_open("#zoom"))
    browser.until(lambda: browser.text("#target") == "1 image, chosen")
    assert browser.targets() == [f"1-{a - 1:04d}"]


def test_any_set_can_be_chosen_by_keyboard_alone(browser: Browser, state: Path) -> None:
    browser.visit()
    cards = browser.cards()
    right = Keys.ARROW_RIGHT
    browser.press("x", right, right, "x", right)
    browser.press(right, right, shift=True)
    assert len(browser.targets()) == 5
    browser.press("x")  # the last of the range is not meant after all
    browser.press("t")
    wanted = sorted([cards[0], cards[2], cards[3], cards[4]])
    browser.until(lambda: sorted(answers(state)) == wanted)


def test_each_undo_takes_back_its_own_action(browser: Browser, state: Path) -> None:
    browser.visit()
    first, second, *_ = browser.cards()
    browser.press("t")
    browser.press("b")
    browser.until(lambda: len(answers(state)) == 2)
    words = browser.one(".toast:nth-child(1) span").rect
    link = browser.one(".toast:nth-child(1) .link").rect
    assert link["x"] >= words["x"] + words["width"], "a message and its button are on one line"
    browser.click(".toast:nth-child(1) .link")
    browser.until(lambda: list(answers(state)) == [second])
    browser.until(lambda: first in browser.cards())


def test_a_whole_group_is_accepted_with_one_click(browser: Browser, state: Path) -> None:
    browser.visit()
    browser.click('.group[data-suspect="c2"] .accept-group')
    browser.until(lambda: list(answers(state).values()) == ["water"] * 5)
    browser.click(".toast .link")
    browser.until(lambda: answers(state) == {})


def test_each_question_says_why_it_is_asked(browser: Browser) -> None:
    browser.visit()
    assert browser.text("#look .why") == "Confirms dune: is it one of them?"
    card = browser.driver.execute_script(
        "return document.querySelector('.card[data-suspect=\"\"]').dataset.why"
    )
    assert card == "Looks new: nothing known looks like it."


def test_without_a_suggestion_the_most_similar_class_is_one_click_away(
    browser: Browser, state: Path
) -> None:
    browser.visit()
    assert browser.text(".answers .other") == "n\nSomething else…"
    assert "What are these? most like" in browser.text('.group[data-suspect=""] h2')
    browser.click('.card[data-suspect=""]')
    wanted = browser.one(".card.current")
    question, nearest = (
        int(str(wanted.get_attribute("data-id"))),
        wanted.get_attribute("data-nearest"),
    )
    number = 1 + browser.palette().index(str(nearest))
    assert browser.text(".answers .other") == f"{number}\nIt is {nearest}"
    browser.click(".answers .other")
    browser.until(lambda: answers(state) == {question: nearest})


def test_when_a_round_ends_the_page_says_what_came_of_it(browser: Browser, state: Path) -> None:
    browser.visit()
    browser.press("g")
    browser.press(Keys.ENTER, "g", Keys.ENTER, "g", "t")
    browser.until(lambda: len(answers(state)) == 20)
    browser.until(lambda: "uses them when it is back" in browser.text("#doing"))
    with Store.open(state) as store:
        dune = world.discover(store, "dune", 20)
    browser.until(lambda: "dune new: 6 by you, 14 by itself" in browser.text(".outcomes"))
    browser.click(".outcome a")
    browser.until(lambda: browser.driver.current_url.endswith(f"/classes#{dune}"))


def test_a_group_is_labelled_at_once_and_taken_back_at_once(browser: Browser, state: Path) -> None:
    browser.visit()
    browser.press("g")
    assert browser.text("#target") == "10 images"
    assert len(browser.targets()) == 10, "a bulk answer is seen before it is given"
    browser.press(Keys.ENTER)
    browser.until(lambda: len(answers(state)) == 10)
    assert len(browser.cards()) == 10
    browser.press("u")
    browser.until(lambda: len(browser.cards()) == 20)
    assert answers(state) == {}
    assert "10 answers taken back" in browser.toasts()


def test_a_range_is_chosen_with_shift_and_one_answer_is_undone_after_a_reload(
    browser: Browser, state: Path
) -> None:
    browser.visit()
    first, *_ = browser.cards()
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, shift=True)
    assert browser.text("#target") == "3 images"
    browser.press(Keys.ESCAPE)
    cards = browser.cards()
    browser.click(f"#q{cards[4]}")
    browser.click(f"#q{cards[7]}", shift=True)
    assert browser.text("#target") == "4 images"
    browser.press(Keys.ESCAPE, Keys.ARROW_LEFT)
    browser.press(Keys.ENTER)
    browser.until(lambda: len(answers(state)) == 1)
    [answered] = answers(state)
    browser.visit()
    assert answered not in browser.cards()
    browser.press("u")
    browser.until(lambda: answered in browser.cards())
    with Store.open(state) as store, store.reading() as tx:
        assert tx.questions.get(answered).state is QuestionState.OPEN
        kinds = [one.kind for one in tx.answers.of_question(answered)]
    assert kinds == [AnswerKind.NEW_CLASS, AnswerKind.UNDO]
    assert first in browser.cards()


def test_a_name_that_is_nearly_another_offers_that_one_first(browser: Browser, state: Path) -> None:
    browser.visit()
    browser.press("n")
    browser.until(lambda: browser.is_open("#naming"))
    browser.press("Waters", Keys.ENTER)
    browser.until(lambda: "already “water”" in browser.text("#naming-hint"))
    assert answers(state) == {}
    browser.press(Keys.ENTER)  # the one that exists comes first
    browser.until(lambda: list(answers(state).values()) == ["water"])
    browser.press("n")
    browser.until(lambda: browser.is_open("#naming"))
    browser.press("Waters", Keys.ENTER)
    browser.until(lambda: browser.text("#naming-other") == "No, “Waters” is another class")
    browser.click("#naming-other")
    browser.until(lambda: sorted(map(str, answers(state).values())) == ["Waters", "water"])


def test_a_phone_has_everything_in_reach(browser: Browser, state: Path) -> None:
    browser.resize(PHONE)
    browser.visit()
    first, *_ = browser.cards()
    browser.click(f"#q{first} img")
    browser.until(lambda: browser.is_open("#zoom"))
    text = browser.text("#zoom")
    for word in ("Confirms dune", "2024", "cam-1", "1-0000", "Nearest known", "Yes, dune", "Undo"):
        assert word in text
    for word in ("Not an image", "Can’t tell", "Close"):
        assert word in text
    for button in browser.all("#zoom .accept, #zoom .other"):
        assert button.size["height"] >= 44, "large enough for a thumb"
        assert button.rect["y"] + button.rect["height"] <= PHONE[1]
    browser.click('#zoom [data-do="accept"]')
    browser.until(lambda: list(answers(state)) == [first])
    browser.click('#zoom [data-do="undo"]')
    browser.until(lambda: answers(state) == {})


def test_a_swipe_on_the_large_picture_answers(browser: Browser, state: Path) -> None:
    browser.resize(PHONE)
    browser.visit()
    first, second, *_ = browser.cards()
    browser.click(f"#q{first} img")
    browser.until(lambda: browser.is_open("#zoom"))
    swipe = (
        "const z = document.getElementById('zoom'), [from, to] = arguments;"
        "const touch = x => [new Touch({identifier: 1, target: z, clientX: x, clientY: 300})];"
        "z.dispatchEvent(new TouchEvent('touchstart', {touches: touch(from)}));"
        "z.dispatchEvent(new TouchEvent('touchend', {changedTouches: touch(to)}));"
    )
    browser.driver.execute_script(swipe, 300, 100)  # to the left: skip
    browser.until(lambda: first not in browser.cards())
    assert answers(state) == {}
    magnify = "Emulation.setPageScaleFactor"
    browser.driver.execute_cdp_cmd(magnify, {"pageScaleFactor": 2})
    browser.until(lambda: browser.driver.execute_script("return visualViewport.scale") == 2)
    browser.driver.execute_script(swipe, 100, 300)  # moves what is seen, and answers nothing
    browser.driver.execute_cdp_cmd(magnify, {"pageScaleFactor": 1})
    browser.until(lambda: browser.driver.execute_script("return visualViewport.scale") == 1)
    assert second in browser.cards()
    browser.driver.execute_script(swipe, 100, 300)  # to the right: yes
    browser.until(lambda: list(answers(state)) == [second])


def test_a_message_stays_while_somebody_is_about_to_use_it(browser: Browser, state: Path) -> None:
    browser.visit()
    browser.driver.execute_script(
        "const real = window.setTimeout;"
        "window.setTimeout = (run, ms, ...rest) => real(run, ms >= 1000 ? ms / 20 : ms, ...rest);"
    )
    first, *_ = browser.cards()
    browser.press("t")
    pointer = ActionChains(browser.driver)
    pointer.move_to_element(browser.one(".toast .link")).perform()
    # Its own time has run out by then: timers of the page go off in their order.
    browser.driver.execute_async_script("setTimeout(arguments[0], 12000)")
    browser.one(".toast .link").click()
    browser.until(lambda: answers(state) == {} and first in browser.cards())
    pointer.move_to_element(browser.one("#stage")).perform()
    browser.until(lambda: not browser.all(".toast"))


def test_times_are_in_the_zone_of_the_reader(browser: Browser) -> None:
    zone = {"timezoneId": "Asia/Tokyo"}
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", zone)
    try:
        browser.visit()
        assert "02:00 PM" in browser.text("#look .fact-time").replace("\u202f", " ")
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})


def test_twenty_answers_take_at_most_two_keys_each(browser: Browser, state: Path) -> None:
    browser.visit()
    keys = 0
    while len(browser.cards()) > 5:  # what has a suggestion needs one key
        browser.press(Keys.ENTER)
        keys += 1
    while browser.cards():  # what has none needs the number of its class
        browser.press("1")
        keys += 1
    browser.until(lambda: len(answers(state)) == 20)
    assert keys <= 2 * 20


def test_skipping_leaves_a_question_open(browser: Browser, state: Path) -> None:
    browser.visit()
    first, second, *_ = browser.cards()
    browser.press("s")
    assert browser.cards()[0] == second
    assert "1 skipped for now" in browser.text("#skipped")
    # Found and clicked in one moment: the page renews itself, and this line of it with it.
    browser.driver.execute_script("document.getElementById('unskip').click()")
    browser.until(lambda: browser.cards()[0] == first)
    assert answers(state) == {}


def test_space_shows_it_large_with_what_it_is_like(browser: Browser) -> None:
    browser.visit()
    browser.press(" ")
    browser.until(lambda: browser.is_open("#zoom"))
    picture = browser.one("#zoom-image")
    assert picture.size["width"] > 500
    before = picture.get_attribute("src")
    browser.press(Keys.ARROW_RIGHT)
    assert picture.get_attribute("src") != before
    assert "Nearest known" in browser.text("#zoom")
    browser.press(Keys.ESCAPE)
    browser.until(lambda: not browser.is_open("#zoom"))


def test_questions_and_versions_arrive_by_themselves(browser: Browser, state: Path) -> None:
    browser.visit()
    assert len(browser.cards()) == 20
    with Store.open(state) as store:
        world.discover(store, "dune", 20)  # what the monitor does when a round has ended
        world.ask(store, 4, pool=2)
    browser.until(lambda: browser.cards() and min(browser.cards()) > 20)
    assert len(browser.cards()) == 4
    browser.until(lambda: "Detector version 2 is in use" in browser.toasts())


def test_nothing_is_lost_when_the_server_goes_away(driver: webdriver.Chrome, state: Path) -> None:
    with served(config_of(state)) as url:
        port = url.rpartition(":")[2]
        browser = Browser(driver, url)
        browser.resize(DESKTOP)
        browser.visit()
        browser.press(Keys.ENTER)
        browser.until(lambda: len(answers(state)) == 1)
    browser.press(Keys.ENTER, Keys.ENTER)
    browser.until(lambda: "cannot be reached" in browser.toasts())
    assert len(browser.cards()) == 17
    assert len(answers(state)) == 1
    with served(config_of(state, f"desk.port={port}")):
        browser.until(lambda: len(answers(state)) == 3)
        browser.until(lambda: len(browser.cards()) == 17)
        browser.complaints()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_everything_fits_and_is_within_reach(
    browser: Browser, state: Path, size: tuple[int, int], tmp_path: Path
) -> None:
    camera = "drone-07.north-east-quay.port-authority.example.org"
    with Store.open(state) as store, store.transaction() as tx:
        for number in range(12):
            tx.classes.ensure(f"a class with rather a long name, {number}", ClassOrigin.PERSON)
        tx.notes.set("source", camera, {"last_captured_at": tx.now.isoformat()})
        tx.counters.add([Count("images", camera, "known", 799)])
        tx.events.append("questions.opened", {"pool": 1, "count": 3}, source=camera)
    browser.resize(size)
    for path in ("/", "/questions", "/images", "/map", "/classes", "/history", "/api"):
        browser.visit(path)
        width = browser.driver.execute_script("return document.documentElement.scrollWidth")
        assert width <= size[0], f"{path} scrolls sideways"
        for cell in browser.all(".sources tr > *, .timeline .tag"):
            assert cell.rect["x"] + cell.rect["width"] <= size[0], f"{path}: {cell.text} is cut off"
        assert browser.driver.save_screenshot(str(tmp_path / f"{path.strip('/') or 'home'}.png"))
    browser.visit()
    names = browser.driver.execute_script(
        "return [...document.querySelectorAll('#look .compare h3')]"
        ".filter(one => one.scrollWidth > one.offsetWidth).map(one => one.innerText)"
    )
    assert names == [], "what it is compared with is named in full"
    accept = browser.one('[data-do="accept"]')
    assert accept.rect["y"] + accept.rect["height"] <= size[1], (
        "the first answer needs no scrolling"
    )
    # What is fixed to the edge of the window does not make the page scroll: it is cut off.
    for button in browser.all(".actions button"):
        if button.is_displayed():
            right = button.rect["x"] + button.rect["width"]
            assert right <= size[0], f"{button.text} lies outside of the window"
    card = browser.one(".card img")
    assert card.size["width"] >= 150, "large enough to judge"
