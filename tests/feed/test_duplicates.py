"""One image counts once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.feed.duplicates import KEY_BYTES, Duplicates, sample_key

pairs = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)))


@given(pairs)
def test_keys_differ_exactly_when_source_or_id_does(rows: list[tuple[str, str]]) -> None:
    assert len({sample_key(*row) for row in rows}) == len(set(rows))
    assert all(len(sample_key(*row)) == KEY_BYTES for row in rows)


@given(pairs)
def test_the_first_of_each_stays_and_the_rest_are_counted(rows: list[tuple[str, str]]) -> None:
    seen = Duplicates()
    kept = [row for row in rows if seen.is_new(sample_key(*row))]
    assert kept == list(dict.fromkeys(rows))
    assert seen.dropped == len(rows) - len(kept)
    assert len(seen) == len(kept)


def test_what_an_earlier_run_took_is_not_taken_again() -> None:
    seen = Duplicates([sample_key("cam-7", "1")])
    assert not seen.is_new(sample_key("cam-7", "1"))
    assert seen.is_new(sample_key("cam-8", "1"))
