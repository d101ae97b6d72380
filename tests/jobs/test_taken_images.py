"""One image counts once."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from monitor.images.image_identity import KEY_BYTES, image_key
from monitor.jobs.taken_images import TakenImages

pairs = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)))


@given(pairs)
def test_keys_differ_exactly_when_source_or_id_does(rows: list[tuple[str, str]]) -> None:
    assert len({image_key(*row) for row in rows}) == len(set(rows))
    assert all(len(image_key(*row)) == KEY_BYTES for row in rows)


@given(pairs, pairs)
def test_what_was_taken_is_found_again_and_nothing_else(
    rows: list[tuple[str, str]], others: list[tuple[str, str]]
) -> None:
    taken = TakenImages(image_key(*row) for row in rows)
    taken.add(image_key(*row) for row in rows)
    assert len(taken) == len(set(rows))
    keys = [image_key(*row) for row in rows + others]
    assert taken.among(keys) == {image_key(*row) for row in rows}
    taken.close()


def test_a_thousand_keys_are_one_question() -> None:
    keys = [image_key("cam-7", str(number)) for number in range(2000)]
    taken = TakenImages(keys[::2])
    assert taken.among(keys) == set(keys[::2])
    taken.close()


def test_a_million_images_need_no_more_memory() -> None:
    """In a process of its own, which has nothing else to grow by."""
    program = """
from pathlib import Path
from monitor.images.image_identity import image_key
from monitor.jobs.taken_images import TakenImages
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
taken = TakenImages()
marks = []
for start in range(0, 1_000_000, 10_000):
    taken.add(image_key("cam", str(n)) for n in range(start, start + 10_000))
    marks.append(resident())
print((marks[-1] - marks[59]) >> 20)
"""
    grown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert int(grown) <= 2  # MiB; a set in memory grows by 40
