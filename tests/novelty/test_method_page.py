"""The page on the method names code that is there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "method.md").read_text()
HERE = "monitor/novelty/"


def named() -> list[tuple[str, str]]:
    """Every `file.py:name` of the page, paths as the repository has them."""
    found = re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE)
    return sorted({(HERE + path.removeprefix(HERE), name) for path, name in found})


def test_the_table_names_a_place_for_the_steps_of_the_paper() -> None:
    assert len(named()) >= 12


@pytest.mark.parametrize(("path", "name"), named(), ids=lambda value: value)
def test_a_named_function_exists(path: str, name: str) -> None:
    module = import_module(path.removesuffix(".py").replace("/", "."))
    found: object = module
    for part in name.split("."):
        found = getattr(found, part)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE))))
def test_a_named_file_exists(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / HERE / path).exists()


def test_methods_of_others_are_cited_where_they_are_implemented() -> None:
    """Authors, title and year, at the top of the file that computes it."""
    cited = {
        "subspace.py": ("Ndiour", "2022"),
        "paper/__init__.py": ("Rios", "2024"),
    }
    for path, words in cited.items():
        text = (ROOT / HERE / path).read_text()
        assert all(word in text for word in words), path
    baselines = ROOT / "monitor" / "evaluation" / "methods"
    for name in ("dfm", "incdfm", "er"):
        assert re.search(r"\b(19|20)\d\d\b", (baselines / f"{name}.py").read_text()), name
