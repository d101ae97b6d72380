"""What ``score`` and ``embed`` share: the plan of a folder, and the stream of its features."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from monitor.config import Config
from monitor.feed.engine import Engine
from monitor.jobs.outputs import JobFolder
from monitor.jobs.parts import columns_of
from monitor.jobs.plan import JobPlan, plan_parts
from monitor.jobs.progress import Report
from monitor.jobs.stream import Piece, embed_parts


def planned_pieces(
    config: Config,
    files: Sequence[str | os.PathLike[str]],
    folder: JobFolder,
    engine: Engine,
    progress: Report,
) -> tuple[JobPlan, Iterator[Piece]]:
    """What is to do for ``folder``, and the stream that does it; no image has been read yet."""
    columns = columns_of(config)
    plan = plan_parts(files, columns, folder, progress=progress)
    pieces = embed_parts(
        plan.open, plan.source, engine, columns, default_source=config.feed.default_source
    )
    return plan, pieces
