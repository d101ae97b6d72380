"""Who does not embed does not load what embedding needs: seconds at every start, and memory."""

from __future__ import annotations

import subprocess
import sys


def test_only_embedders_load_torch() -> None:
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, actors.ray_worker_pool, actors.run_monitor\n"
            "print(sorted({'torch', 'timm', 'openvino'} & set(sys.modules)))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[]"
