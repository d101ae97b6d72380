"""Names as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.people.class_names import LONGEST, alike, clean_name
from monitor.people.errors import BadName


@pytest.mark.parametrize(
    ("typed", "other"),
    [
        ("Truck", "trucks"),
        ("dump truck", "Dump-Truck"),
        ("Möwe", "mowe"),
        ("excavator", "excavatro"),
    ],
)
def test_slips_of_the_finger_are_noticed_both_ways(typed: str, other: str) -> None:
    assert alike(typed, ["bus", other]) == [other]
    assert alike(other, ["bus", typed]) == [typed]


@pytest.mark.parametrize(("typed", "other"), [("car", "cat"), ("bus", "truck"), ("sea", "seal")])
def test_other_words_are_left_alone(typed: str, other: str) -> None:
    assert alike(typed, [other]) == []


def test_a_name_is_not_alike_to_itself() -> None:
    assert alike("truck", ["truck"]) == []


@pytest.mark.parametrize("text", ["", "  ", "x" * (LONGEST + 1), "a\u200bb", "a\x00b"])
def test_what_cannot_be_a_name_is_refused(text: str) -> None:
    with pytest.raises(BadName):
        clean_name(text)


@given(st.text())
def test_cleaning_twice_changes_nothing(text: str) -> None:
    try:
        once = clean_name(text)
    except BadName:
        return
    assert clean_name(once) == once
    assert once == once.strip()
