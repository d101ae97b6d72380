"""An ingest that kills itself at a step: python -m tests.ingest.dying STEP TURN FEED SOURCE..."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

from monitor.ingest.batches import STEPS, Limits
from monitor.ingest.ingest_job import ingest
from monitor.ingest.ingest_options import Options, SceneOptions, VideoOptions

LIMITS = Limits(images=7)
OPTIONS = Options(limits=LIMITS, video=VideoOptions(fps=5), scenes=SceneOptions(tile=64))


def main(wanted: str, turn: int, feed: str, sources: list[str]) -> None:
    passes: Counter[str] = Counter()

    def step(name: str) -> None:
        assert name in STEPS
        passes[name] += 1
        if name == wanted and passes[name] == turn:
            os.kill(os.getpid(), signal.SIGKILL)

    ingest(sources, Path(feed), OPTIONS, step=step)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
