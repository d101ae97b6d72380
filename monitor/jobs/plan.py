"""What a job has to do: parts to do, parts already done, and files that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from monitor.feed.arguments import find_files
from monitor.feed.contract import Columns
from monitor.feed.errors import FeedError, FileChanged
from monitor.feed.plan import plan_files
from monitor.feed.source import Source
from monitor.jobs.errors import NothingReadable
from monitor.jobs.outputs import JobFolder, PartName
from monitor.jobs.progress import Progress, Report
from monitor.jobs.stream import Part, cut_into_parts


@dataclass(frozen=True, slots=True)
class Problem:
    """A file of which nothing, or not everything, could be read."""

    file: str
    kind: str
    sentence: str

    @classmethod
    def of(cls, file: str, error: FeedError) -> Problem:
        return cls(file, type(error).__name__, str(error))


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The work, in the order of the files."""

    source: Source
    files: int
    rows: int
    """Of all readable files, done or not."""
    open: tuple[Part, ...]
    finished: tuple[str, ...]
    """Names of the parts that an earlier run wrote."""
    problems: tuple[Problem, ...]


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
    problems: list[Problem] = []
    for done, plan in enumerate(plan_files(source, found, columns), start=1):
        problem = plan.problem
        if problem is None and folder.changed(plan.file):
            problem = FileChanged(
                f"{source.where(plan.file.path)}: has changed since {folder.folder} was written; "
                "files must not change, so give the new one a new name, or name another folder"
            )
        if problem is not None:
            problems.append(Problem.of(plan.file.path, problem))
        else:
            parts += cut_into_parts(plan.batches)
        progress(Progress("plan", done, len(found), "files"))
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
