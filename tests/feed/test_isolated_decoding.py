"""Decoding apart: whatever an image does to its decoder costs that image and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from monitor.feed import batch_reader
from monitor.feed.batch_plan import plan_batches
from monitor.feed.batch_reader import BatchReader
from monitor.feed.feed_storage import FeedStorage
from monitor.images import isolated_decoding
from monitor.images.decode import MAX_PIXELS, Decoded, Decoding, decode
from monitor.images.decoder_process import FAULTS, LEAST_SECONDS, _limit_time
from monitor.images.errors import DecodersFailed
from monitor.images.image_formats import MOST_PARTS, check_on_sight, stated_work
from monitor.images.image_stats import image_stats
from monitor.images.isolated_decoding import Decoders
from monitor.images.reject_reasons import Reason, Rejected
from monitor.images.thumbnail import render_thumbnail
from tests.feed import bombs
from tests.feed.make import encoded, picture

GOOD = [
    encoded(picture(seed=seed, width=20 + seed), kind)
    for seed, kind in enumerate(["JPEG", "PNG", "WEBP", "TIFF"] * 8)
]


@pytest.fixture(scope="module")
def decoders() -> Iterator[Decoders]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FAULTS, "1")
        with contextlib.closing(Decoders(Decoding(max_pixels=1 << 20))) as opened:
            yield opened


def outcomes(decoders: Decoders, images: list[bytes]) -> list[Decoded | Rejected]:
    """Every image with a copy of its pixels, which the next part overwrites."""
    found: list[Decoded | Rejected] = []
    for part in decoders.decode(images, min_side=16):
        assert part.first == len(found)
        for one in part.found:
            found.append(Decoded(one.pixels.copy(), one.size) if isinstance(one, Decoded) else one)
    return found


def reasons(found: list[Decoded | Rejected]) -> list[Reason | None]:
    return [one.reason if isinstance(one, Rejected) else None for one in found]


def test_pixels_stats_and_thumbnails_are_those_of_this_process(decoders: Decoders) -> None:
    expected = [decode(image, min_side=16) for image in GOOD]
    found = outcomes(decoders, GOOD)
    for one, other in zip(found, expected, strict=True):
        assert isinstance(one, Decoded)
        assert isinstance(other, Decoded)
        assert one.size == other.size
        np.testing.assert_array_equal(one.pixels, other.pixels)
    parts = list(decoders.decode(GOOD, min_side=16, stats=True))
    stats = image_stats([one.pixels for one in expected if isinstance(one, Decoded)])
    np.testing.assert_allclose(np.concatenate([part.stats for part in parts]), stats, rtol=1e-4)
    for image in GOOD[:4]:
        assert decoders.thumbnail(image, 64) == render_thumbnail(image, side=64)
    assert decoders.thumbnail(b"GIF89a", 64) == render_thumbnail(b"GIF89a", side=64)


@pytest.mark.parametrize("at", [0, 17, 31])
@pytest.mark.parametrize("how", ["crash", "hoard", "open"])
def test_one_killer_among_thirty_two_costs_one_image(decoders: Decoders, how: str, at: int) -> None:
    images = [*GOOD[:at], bombs.misbehaving(how), *GOOD[at + 1 :]]
    found = reasons(outcomes(decoders, images))
    assert found == [None] * at + [Reason.DECODER_DIED] + [None] * (31 - at)


def test_several_killers_cost_several_images(decoders: Decoders) -> None:
    killer = bombs.misbehaving("crash")
    found = reasons(outcomes(decoders, [killer, GOOD[0], killer, killer, GOOD[1], killer]))
    assert [reason is None for reason in found] == [False, True, False, False, True, False]
    assert isinstance(decoders.thumbnail(killer, 64), Rejected)


@pytest.mark.parametrize(
    ("how", "reason"), [("hang", Reason.DECODER_DIED), ("spin", Reason.TOO_LARGE)]
)
def test_a_hang_ends_by_itself(
    decoders: Decoders, monkeypatch: pytest.MonkeyPatch, how: str, reason: Reason
) -> None:
    monkeypatch.setattr(isolated_decoding, "STILL_SECONDS", 0.2)
    monkeypatch.setattr(isolated_decoding, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(isolated_decoding, "SECONDS", 0.3)
    with contextlib.closing(Decoders(Decoding())) as quick:
        found = reasons(outcomes(quick, [*GOOD[:3], bombs.misbehaving(how), *GOOD[:3]]))
    assert found == [None] * 3 + [reason] + [None] * 3


def test_an_image_beyond_the_limits_is_refused(decoders: Decoders) -> None:
    assert reasons(outcomes(decoders, [bombs.png(2048, 2048), GOOD[0]])) == [Reason.TOO_LARGE, None]
    huge = GOOD[0] + bytes(isolated_decoding.ENCODED_BYTES)
    assert reasons(outcomes(decoders, [GOOD[0], huge, GOOD[1]])) == [None, Reason.TOO_LARGE, None]


def test_large_images_come_some_at_a_time(
    decoders: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated_decoding, "REQUEST_BYTES", 1 << 20)
    images = [encoded(picture(640, 480, seed=seed)) for seed in range(6)]
    parts = list(decoders.decode(images, min_side=None))
    assert len(parts) > 1
    assert sum(len(part.found) for part in parts) == 6


def test_a_decoder_that_somebody_else_killed_costs_nothing(decoders: Decoders) -> None:
    outcomes(decoders, GOOD[:1])
    idle = decoders._idle.queue[0]
    os.kill(idle.number, signal.SIGKILL)
    assert reasons(outcomes(decoders, GOOD)) == [None] * len(GOOD)


def test_many_threads_decode_side_by_side(decoders: Decoders) -> None:
    images = [*GOOD, bombs.misbehaving("crash")]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: reasons(outcomes(decoders, images)), range(8)))
    assert found == [[None] * len(GOOD) + [Reason.DECODER_DIED]] * 8


def test_decoders_end_with_their_owner(decoders: Decoders) -> None:
    with contextlib.closing(Decoders(Decoding())) as short:
        outcomes(short, GOOD[:1])
        number = short._idle.queue[0].number
        assert "0" in limits_of(number)["Max open files"]
    deadline = time.monotonic() + 10
    while Path(f"/proc/{number}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{number}").exists()


def limits_of(number: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{number}/limits").read_text().splitlines()
    return {line[:25].strip(): line[26:].split() for line in lines}


def test_decoders_that_cannot_start_are_an_error_of_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with contextlib.closing(Decoders(Decoding())) as broken, pytest.raises(DecodersFailed):
        outcomes(broken, GOOD[:1])


def test_rows_that_share_one_large_image_are_read_one_at_a_time(tmp_path: Path) -> None:
    """In the footer they are as small as one of them; expanded at once they would be gigabytes."""
    bombs.dictionary_bomb(tmp_path / "a.parquet", megabytes=8, rows=64)
    assert (tmp_path / "a.parquet").stat().st_size < 20_000
    source = FeedStorage.at(tmp_path)
    [file] = source.list()
    before, most, rows = resident(), 0, 0
    with BatchReader(source) as reader:
        for planned in plan_batches(source, file):
            for row in reader.iter_rows(planned):
                rows += 1
                most = max(most, resident() - before)
                del row
    assert rows == 64
    assert most < 400 << 20


def test_rows_beyond_what_their_file_could_hold_are_rejected_unread(tmp_path: Path) -> None:
    """As many as fit a budget that follows from the file's size, wherever reading began."""
    bombs.dictionary_bomb(tmp_path / "a.parquet", megabytes=40, rows=2000)
    source = FeedStorage.at(tmp_path)
    [file] = source.list()
    began = time.process_time()
    whole: list[Reason | None] = []
    with BatchReader(source) as reader:
        for planned in plan_batches(source, file, rows_per_batch=500):
            batch = reader.read(planned)
            whole += [None] * len(batch.rows) + [row.reason for row in batch.rejected]
    with BatchReader(source) as reader:
        last = reader.read(planned)
    assert whole == [None] * 6 + [Reason.TOO_LARGE] * 1994
    assert [row.reason for row in last.rejected] == whole[-500:]
    assert "holds too much for its file" in last.rejected[0].detail
    assert time.process_time() - began < 10, "2,000 rows of 40 MB each were read"


@pytest.mark.parametrize("shared", [False, True], ids=["pages", "shared images"])
def test_a_large_file_is_no_better_for_being_cut_into_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Each group by itself would pass; two of two rows in full are what the file may hold."""
    monkeypatch.setattr(batch_reader, "BLOWN_UP_BYTES", 5 << 20)
    monkeypatch.setattr(batch_reader, "GROUP_BYTES", 1 << 20)
    make = bombs.dictionary_bomb if shared else bombs.page_bomb
    make(tmp_path / "a.parquet", megabytes=2 if shared else 1, rows=24, groups=12)
    source = FeedStorage.at(tmp_path)
    [file] = source.list()
    with BatchReader(source) as reader:
        [planned] = plan_batches(source, file)
        batch = reader.read(planned)
    assert len(batch.rows) == (0 if shared else 4)
    assert {row.reason for row in batch.rejected} == {Reason.TOO_LARGE}


def test_an_image_has_time_by_the_pixels_that_it_states() -> None:
    small, large = bombs.misbehaving("spin"), bombs.large_header("spin")
    assert stated_work(small, "JPEG") == 32 * 24
    assert stated_work(large, "JPEG") == 8192 * 8192
    assert stated_work(bombs.progressive_jpeg(16, 50), "JPEG") == 50 * 16 * 16
    assert stated_work(bombs.png(40, 30), "PNG") == 1200
    for kind in ("WEBP", "TIFF"):
        for options in ({}, {"lossless": True}) if kind == "WEBP" else ({},):
            data = encoded(picture(40, 30), kind, **options)
            assert stated_work(data, kind) == (1200 if kind == "WEBP" else None)
    given = [_time_given(data) for data in (small, large, encoded(picture(), "TIFF"), b"no image")]
    assert given == [LEAST_SECONDS, 3.0, 3.0, 3.0]
    assert stated_work(b"\xff\xd8" + b"\xff" * 100_000, "JPEG") is None, "nothing but filling"


def _time_given(data: bytes) -> float:
    try:
        _limit_time(data, MAX_PIXELS, 3.0)
        return round(signal.getitimer(signal.ITIMER_PROF)[0], 1)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("big", [False, True], ids=["classic", "BigTIFF"])
def test_a_tiff_of_a_million_strips_is_refused_on_sight(big: bool) -> None:
    for page in (0, 2):
        sound = bombs.tiff_of_strips(200, big=big, page=page)
        assert check_on_sight(sound, "TIFF", MAX_PIXELS) is None
        for count in (MOST_PARTS + 1, 1 << 20):
            found = check_on_sight(
                bombs.tiff_of_strips(count, big=big, page=page), "TIFF", MAX_PIXELS
            )
            assert found is not None
            assert f"{count} strips" in found.detail
    assert isinstance(decode(bombs.tiff_of_strips(200, big=big)), Decoded)
    for image in GOOD:
        if image[:4] in (b"II*\0", b"MM\0*"):
            assert check_on_sight(image, "TIFF", MAX_PIXELS) is None
    loop = bytearray(bombs.tiff_of_strips(1, big=big))
    loop[-8 if big else -4 :] = (16 if big else 8).to_bytes(8 if big else 4, "little")
    assert check_on_sight(bytes(loop), "TIFF", MAX_PIXELS) is None, "pages in a circle end"
