"""Every row of every readable file gets a verdict or a reason, once, whatever is interrupted."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.config import Config
from monitor.jobs.errors import NoDetector, NothingReadable, OutputTaken
from monitor.jobs.feature_stream import cut_into_parts
from monitor.jobs.fit_detector import fit
from monitor.jobs.progress import JobProgress
from monitor.jobs.score_files import score
from monitor.store.errors import BackboneMismatch
from tests.jobs.feeds import NOON, config_for, picture, write_feed

COLUMNS = [
    "image_id",
    "source_id",
    "captured_at",
    "score",
    "score_ratio",
    "p_known",
    "verdict",
    "nearest_class",
    "nearest_class_name",
    "shift_corrected",
    "same_as",
    "detector_version",
    "file",
    "row",
]


def verdicts(out: Path) -> pa.Table:
    return pq.read_table(out / "verdicts").sort_by([("file", "ascending"), ("row", "ascending")])


def rejected(out: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(out / "rejected").to_pylist()
    return rows


def contents(out: Path) -> dict[str, str]:
    files = sorted(path for path in out.rglob("*") if path.is_file())
    return {str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_new_things_are_novel_and_known_things_are_known(tmp_path: Path, fitted: Config) -> None:
    kinds = ["water"] * 50 + ["sand"] * 20 + ["forest"] * 50
    file = write_feed(tmp_path / "feed" / "a.parquet", kinds, first_id=1000)
    summary = score(fitted, [file], tmp_path / "out")
    found = verdicts(tmp_path / "out")
    assert found.column_names == COLUMNS
    rows = found.to_pylist()
    assert [row["row"] for row in rows] == list(range(120))
    assert all(
        r["verdict"] == "novel" for r, kind in zip(rows, kinds, strict=True) if kind == "sand"
    )
    known = [r for r, kind in zip(rows, kinds, strict=True) if kind != "sand"]
    assert sum(r["verdict"] == "novel" for r in known) <= 15
    right = [r["nearest_class_name"] == k for r, k in zip(rows, kinds, strict=True) if k != "sand"]
    assert all(right)
    assert all((r["score_ratio"] > 1) == (r["verdict"] == "novel") for r in rows)
    assert rows[0]["captured_at"] == NOON.replace(minute=16, second=40)
    assert {r["file"] for r in rows} == {str(file)}
    assert {r["detector_version"] for r in rows} == {1}
    assert (summary.images, summary.known + summary.novel) == (120, 120)
    assert summary.sources["cam-1"]["novel"] == summary.novel
    assert summary.images_per_second is not None


def test_a_bad_row_costs_one_row(tmp_path: Path, fitted: Config) -> None:
    good = picture("water", 1)
    images = [good, None, b"GIF89a", good[: len(good) // 2], picture("forest", 2)]
    file = write_feed(tmp_path / "a.parquet", ["x"] * 5, images=images)
    summary = score(fitted, [file], tmp_path / "out")
    assert verdicts(tmp_path / "out").column("row").to_pylist() == [0, 4]
    reasons = {row["row"]: row["reason"] for row in rejected(tmp_path / "out")}
    assert reasons == {1: "no_image", 2: "unknown_format", 3: "truncated"}
    assert summary.rejected_by_reason == {"no_image": 1, "unknown_format": 1, "truncated": 1}
    assert summary.images == 5


def test_the_first_of_two_equal_images_counts(tmp_path: Path, fitted: Config) -> None:
    a = write_feed(tmp_path / "a.parquet", ["water"] * 10)
    b = write_feed(tmp_path / "b.parquet", ["water"] * 10, first_id=5)
    other = write_feed(tmp_path / "c.parquet", ["water"] * 10, source="cam-2")
    summary = score(fitted, [a, b, other], tmp_path / "out")
    assert (summary.known + summary.novel, summary.duplicates) == (25, 5)
    assert {row["reason"] for row in rejected(tmp_path / "out")} == {"duplicate"}
    assert {row["file"] for row in rejected(tmp_path / "out")} == {str(b)}


def test_frames_that_show_a_duplicate_are_judged_all_the_same(
    tmp_path: Path, fitted: Config
) -> None:
    still = [picture("water", 1)] * 12
    a = write_feed(tmp_path / "a.parquet", ["water"], images=still[:1])
    b = write_feed(tmp_path / "b.parquet", ["water"] * 12, images=still)
    summary = score(fitted, [a, b], tmp_path / "out")
    assert (summary.images, summary.duplicates, summary.reused) == (13, 1, 10)
    found = verdicts(tmp_path / "out").to_pylist()
    assert [row["image_id"] for row in found] == [f"{i:06d}" for i in range(12)]
    assert {row["same_as"] for row in found} == {None, "000000"}
    assert len({row["score"] for row in found if row["same_as"]}) == 1


def test_an_image_that_could_not_be_read_does_not_take_its_name(
    tmp_path: Path, fitted: Config
) -> None:
    a = write_feed(tmp_path / "a.parquet", ["x"], images=[b"GIF89a"])
    b = write_feed(tmp_path / "b.parquet", ["water"])
    summary = score(fitted, [a, b], tmp_path / "out")
    assert (summary.known + summary.novel, summary.rejected, summary.duplicates) == (1, 1, 0)


def test_files_that_cannot_be_read_are_reported_and_the_rest_goes_on(
    tmp_path: Path, fitted: Config
) -> None:
    good = write_feed(tmp_path / "a.parquet", ["water"] * 10)
    partial = tmp_path / "b.parquet"
    partial.write_bytes(good.read_bytes()[:500])
    other = tmp_path / "c.parquet"
    pq.write_table(pa.table({"img": [b"x"]}), other)
    summary = score(fitted, [good, partial, other], tmp_path / "out")
    assert summary.images == 10
    assert [(p.file, p.kind) for p in summary.problems] == [
        (str(partial), "FileIncomplete"),
        (str(other), "ContractError"),
    ]
    with pytest.raises(NothingReadable, match=r"b\.parquet.*1 more"):
        score(fitted, [partial, other], tmp_path / "out2")


def test_a_partial_file_is_scored_once_it_is_whole(tmp_path: Path, fitted: Config) -> None:
    good = write_feed(tmp_path / "a.parquet", ["water"] * 10)
    late = tmp_path / "b.parquet"
    whole = write_feed(tmp_path / "later", ["water"] * 10, first_id=50).read_bytes()
    late.write_bytes(whole[:300])
    assert len(score(fitted, [good, late], tmp_path / "out").problems) == 1
    late.write_bytes(whole)
    summary = score(fitted, [good, late], tmp_path / "out")
    assert (summary.images, summary.skipped, summary.problems) == (20, 10, ())


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("after", [1, 400, 900])
def test_an_interrupted_run_goes_on_and_ends_the_same(
    tmp_path: Path, fitted: Config, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(cut_into_parts, "__defaults__", (256,))  # several parts in a small file
    kinds = ["water", "sand"] * 300
    files = [
        write_feed(tmp_path / "a.parquet", kinds, row_group_size=128),
        # Half of it is in the first file already: duplicates must be found across runs.
        write_feed(tmp_path / "b.parquet", kinds, first_id=300, row_group_size=128),
    ]
    straight = score(fitted, files, tmp_path / "straight")

    def stop(progress: JobProgress) -> None:
        if progress.stage == "score" and progress.done >= after:
            raise Interrupted

    with pytest.raises(Interrupted):
        score(fitted, files, tmp_path / "out", progress=stop)
    before = contents(tmp_path / "out")
    summary = score(fitted, files, tmp_path / "out")
    after_all = contents(tmp_path / "out")
    assert before.items() <= after_all.items(), "what was finished must not be touched"
    assert set(after_all) == set(contents(tmp_path / "straight"))
    assert (summary.skipped > 0) == (after > 256)
    for field in ("images", "known", "novel", "duplicates", "sources"):
        assert getattr(summary, field) == getattr(straight, field)
    one, two = verdicts(tmp_path / "straight"), verdicts(tmp_path / "out")
    figures = ["score", "score_ratio"]
    assert one.drop_columns(figures) == two.drop_columns(figures)
    # torch's last bits depend on which images share a batch, and batches begin elsewhere now.
    for name in figures:
        np.testing.assert_allclose(one.column(name), two.column(name), rtol=1e-4)


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path, fitted: Config) -> None:
    file = write_feed(tmp_path / "a.parquet", ["water"] * 10)
    first = score(fitted, [file], tmp_path / "out")
    before = contents(tmp_path / "out")
    again = score(fitted, [file], tmp_path / "out")
    assert contents(tmp_path / "out") == before
    assert (again.images, again.skipped, again.images_per_second) == (10, 10, None)
    assert again.sources == first.sources


def test_a_changed_file_is_loud(tmp_path: Path, fitted: Config) -> None:
    keep = write_feed(tmp_path / "a.parquet", ["water"] * 10)
    file = write_feed(tmp_path / "b.parquet", ["water"] * 10, first_id=50)
    score(fitted, [keep, file], tmp_path / "out")
    write_feed(file, ["water"] * 12, first_id=70)
    summary = score(fitted, [keep, file], tmp_path / "out")
    assert [p.kind for p in summary.problems] == ["FileChanged"]
    assert summary.images == 10


def test_the_folder_of_another_detector_is_refused(tmp_path: Path, fitted: Config) -> None:
    file = write_feed(tmp_path / "a.parquet", ["water"] * 10)
    score(fitted, [file], tmp_path / "out")
    before = contents(tmp_path / "out")
    other = config_for(tmp_path, f"state.dir={tmp_path / 'other'}")
    fit(other, [write_feed(tmp_path / "l.parquet", ["water", "sand"] * 40)])
    with pytest.raises(OutputTaken, match="detector_sha256"):
        score(other, [file], tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_a_folder_with_other_things_is_refused(tmp_path: Path, fitted: Config) -> None:
    file = write_feed(tmp_path / "in" / "a.parquet", ["water"])
    with pytest.raises(OutputTaken, match=r"a\.parquet"):
        score(fitted, [file], tmp_path / "in")


def test_another_backbone_is_refused(tmp_path: Path, fitted: Config) -> None:
    file = write_feed(tmp_path / "a.parquet", ["water"])
    other = config_for(tmp_path, "backbone.name=tiny+multi")
    with pytest.raises(BackboneMismatch, match="fit again"):
        score(other, [file], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_a_detector_it_says_what_to_do(tmp_path: Path) -> None:
    file = write_feed(tmp_path / "a.parquet", ["water"])
    with pytest.raises(NoDetector, match="conclad fit"):
        score(config_for(tmp_path), [file], tmp_path / "out")
    assert not (tmp_path / "state").exists()


def test_a_file_that_vanishes_half_way_leaves_no_half_verdicts(
    tmp_path: Path, fitted: Config
) -> None:
    a = write_feed(tmp_path / "a.parquet", ["water"] * 10)
    b = write_feed(tmp_path / "b.parquet", ["water"] * 10, first_id=50)
    c = write_feed(tmp_path / "c.parquet", ["water"] * 10, first_id=50)

    def vanish(progress: JobProgress) -> None:
        if progress.stage == "plan" and progress.done == progress.total:
            shutil.move(b, tmp_path / "gone")

    summary = score(fitted, [a, b, c], tmp_path / "out", progress=vanish)
    assert [(p.file, p.kind) for p in summary.problems] == [(str(b), "FileGone")]
    # Its images are free for the file that repeats them.
    assert (summary.images, summary.duplicates) == (20, 0)


def test_empty_files_are_no_problem(tmp_path: Path, fitted: Config) -> None:
    empty = write_feed(tmp_path / "a.parquet", [])
    full = write_feed(tmp_path / "b.parquet", ["water"])
    summary = score(fitted, [empty, full], tmp_path / "out")
    assert (summary.files, summary.images, summary.problems) == (2, 1, ())
