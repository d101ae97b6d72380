"""What `score` and `embed` have to do: parts to do, parts done, files that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monitor.backbones.embed_images import Reuse
from monitor.backbones.engine import Engine
from monitor.config import Config
from monitor.feed.batch_plan import plan_files
from monitor.feed.errors import FeedError, FileChanged
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.file_arguments import find_files
from monitor.feed.input_contract import Columns
from monitor.jobs.errors import NothingReadable
from monitor.jobs.feature_stream import Part, Piece, cut_into_parts, embed_parts
from monitor.jobs.from_config import columns_of
from monitor.jobs.job_folder import JobFolder, PartName
from monitor.jobs.progress import JobProgress, Report


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file of which nothing, or not everything, could be read."""

    file: str
    kind: str
    sentence: str

    @classmethod
    def of(cls, file: str, error: FeedError) -> FileProblem:
        return cls(file, type(error).__name__, str(error))


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The work, in the order of the files."""

    source: FeedStorage
    files: int
    rows: int
    """Of all readable files, done or not."""
    open: tuple[Part, ...]
    finished: tuple[str, ...]
    """Names of the parts that an earlier run wrote."""
    problems: tuple[FileProblem, ...]


def plan_parts(
    files: Sequence[str | os.PathLike[str]],
    columns: Columns,
    folder: JobFolder,
    *,
    progress: Report,
) -> JobPlan:
    """Read the footers of all files, and nothing else.

    A file that was scored before and has other content now is a problem, not new work: two
    contents under one name would leave verdicts that nobody can trace back.
    """
    source, found = find_files(files)
    parts: list[Part] = []
    problems: list[FileProblem] = []
    for done, plan in enumerate(plan_files(source, found, columns), start=1):
        problem = plan.problem
        if problem is None and folder.changed(plan.file):
            problem = FileChanged(
                f"{source.where(plan.file.path)}: has changed since {folder.folder} was written; "
                "files must not change, so give the new one a new name, or name another folder"
            )
        if problem is not None:
            problems.append(FileProblem.of(plan.file.path, problem))
        else:
            parts += cut_into_parts(plan.batches)
        progress(JobProgress("plan", done, len(found), "files"))
    if problems and len(problems) == len(found):
        more = f" (and {len(problems) - 1} more files)" if len(problems) > 1 else ""
        raise NothingReadable(f"{problems[0].sentence}{more}")
    return JobPlan(
        source=source,
        files=len(found),
        rows=sum(part.rows for part in parts),
        open=tuple(part for part in parts if not folder.is_done(part)),
        finished=tuple(
            PartName.of(part.file, part.first_row).text for part in parts if folder.is_done(part)
        ),
        problems=tuple(problems),
    )


def planned_pieces(
    config: Config,
    files: Sequence[str | os.PathLike[str]],
    folder: JobFolder,
    engine: Engine,
    progress: Report,
    reuse: Reuse = "never",
) -> tuple[JobPlan, Iterator[Piece]]:
    """What is to do for ``folder``, and the stream that does it; no image has been read yet."""
    columns = columns_of(config)
    plan = plan_parts(files, columns, folder, progress=progress)
    pieces = embed_parts(
        plan.open,
        plan.source,
        engine,
        columns,
        default_source=config.feed.default_source,
        reuse=reuse,
    )
    return plan, pieces
