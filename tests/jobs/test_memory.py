"""Memory stays flat, however many images there are."""

from __future__ import annotations

from pathlib import Path

from monitor.config import Config
from monitor.jobs.progress import JobProgress
from monitor.jobs.score_files import score
from tests.jobs.feeds import picture, write_feed

IMAGES = 24_000
FILES = 8


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_scoring_more_images_takes_no_more_memory(tmp_path: Path, fitted: Config) -> None:
    each = IMAGES // FILES
    images = [picture(kind, seed) for seed in range(50) for kind in ("water", "sand")]
    for number in range(FILES):
        write_feed(
            tmp_path / "feed" / f"{number}.parquet",
            ["x"] * each,
            first_id=number * each,
            images=(images * (each // len(images) + 1))[:each],
            row_group_size=500,
        )
    marks: dict[int, int] = {}

    def watch(progress: JobProgress) -> None:
        if progress.stage == "score":
            marks[progress.done] = resident()

    score(fitted, [tmp_path / "feed"], tmp_path / "out", progress=watch)
    warm = max(size for done, size in marks.items() if done <= IMAGES // 3)
    end = max(size for done, size in marks.items() if done > IMAGES // 3)
    assert end < warm * 1.05, f"{warm >> 20} MiB grew to {end >> 20} MiB"
