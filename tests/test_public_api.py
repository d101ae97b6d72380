"""What programs may import is what the page says, and the page's programs run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import conclad
from tests.jobs.feeds import write_feed

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_names_every_public_name() -> None:
    table = re.findall(r"^\| (.*?) \|", PAGE, re.MULTILINE)
    named = {name for row in table for name in re.findall(r"`(\w+)[`(]", row)}
    assert named == {name for name in conclad.__all__ if name != "__version__"}


def test_every_public_name_is_there_and_documented() -> None:
    for name in conclad.__all__:
        assert getattr(conclad, name).__doc__, name
    assert dir(conclad) == conclad.__all__
    with pytest.raises(AttributeError, match="nonsense"):
        conclad.nonsense  # noqa: B018


def test_importing_it_brings_neither_torch_nor_ray() -> None:
    told = (
        "import sys, conclad; print([m for m in ('torch', 'ray', 'sklearn') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_feed(tmp_path / "labelled.parquet", ["water", "forest"] * 60)
    write_feed(tmp_path / "feed" / "day.parquet", ["water", "sand", "forest"] * 40, first_id=1000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_program_with_a_feed_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PROGRAMS[0], "docs/python.md", "exec"), {})
    said = capsys.readouterr().out
    assert "['forest', 'water']" in said
    assert "('sand',)" in said
    config = conclad.configure({"state.dir": "state"})
    rows = sum(batch.num_rows for batch in conclad.read_verdicts(config))
    assert rows == 120
    assert {known.name for known in conclad.load_detector(config).classes} == {
        "forest",
        "sand",
        "water",
    }
    assert len(conclad.load_detector(config, version=1).classes) == 2


def test_the_program_without_a_feed_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PROGRAMS[1], "docs/python.md", "exec"), {})
    said = capsys.readouterr().out
    assert "['ship']" in said
    assert "['forest', 'water', 'ship']" in said
