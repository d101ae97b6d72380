"""The examples run, from a folder of their own, and end with what they promise."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ENDS = {
    "python_api": "most like",
    "camera": "Next:",
    "satellite": "novel tiles in novel.geojson",
    "export_dataset": "45 images in dataset/",
}


@pytest.mark.parametrize("name", ENDS)
def test_example(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", str(tmp_path), "--backbone", "tiny"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(Path.cwd()),
            "CONCLAD_CACHE": str(tmp_path / "cache"),
            "CONCLAD_METRICS__ENABLED": "false",
        },
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ENDS[name] in done.stdout
    if name == "satellite":
        assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
        novel = json.loads((tmp_path / "novel.geojson").read_text())["features"]
        # The snow is nine tiles in the corner; the tiny backbone may call a few others novel.
        assert 7 <= len(novel) <= 30
    if name == "export_dataset":
        lines = (tmp_path / "dataset/metadata.jsonl").read_text().splitlines()
        assert all(
            (tmp_path / "dataset" / json.loads(line)["file_name"]).exists() for line in lines
        )


RUN_CELLS = """
import json, sys
cells = json.load(open(sys.argv[1]))["cells"]
space = {}
for cell in cells:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
"""


def test_notebook() -> None:
    """Its cells run in order; drawn images and the tiny backbone, so the figures differ."""
    folder = Path("examples").absolute()
    done = subprocess.run(
        [sys.executable, "-c", RUN_CELLS, "first_look.ipynb"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": f"{folder.parent}{os.pathsep}{folder}",
            "CONCLAD_BACKBONE__NAME": "tiny",
            "MPLBACKEND": "Agg",
        },
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of 72 images are novel" in done.stdout
    found = re.search(r"AUROC ([0-9.]+)", done.stdout)
    assert found is not None
    assert float(found[1]) > 0.8


def test_every_example_is_on_the_page_and_is_run() -> None:
    scripts = {path.stem for path in Path("examples").glob("*.py")} - {"drawn_images"}
    assert scripts == set(ENDS)
    page = Path("examples/README.md").read_text()
    assert all(f"({name}.py)" in page for name in scripts)
    assert "(first_look.ipynb)" in page
