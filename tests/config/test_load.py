"""A mistake is reported where it was made, and later layers win."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.config import load
from monitor.config.errors import ConfigError, ConfigInvalid, ConfigMissing, ConfigSyntax
from monitor.config.yaml_document import parse_document


@pytest.fixture(autouse=True, scope="module")
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Away from the repository, whose own ray_config.yaml would be found."""
    with contextlib.chdir(tmp_path_factory.mktemp("empty")):
        yield


MISTAKES = {
    "feed:\n  pth: x\n": "{file}:2:3: feed.pth: unknown key; did you mean feed.path?",
    "path: x\n": "{file}:1:1: path: unknown key; did you mean feed.path?",
    "fed:\n  path: x\n": "{file}:2:3: fed: unknown key; did you mean feed?",
    "feed:\n  columns:\n    imag: x\n": (
        "{file}:3:5: feed.columns.imag: unknown key; did you mean feed.columns.image?"
    ),
    "feed:\n  path:\n    x: 1\n": (
        "{file}:3:5: feed.path.x: unknown key; feed.path takes a value and has no keys"
    ),
    "feed:\n  path: 3\n": "{file}:2:9: feed.path: should be text; put it in quotes (got 3)",
    "feed: 5\n": "{file}:1:7: feed: a section; set one of its keys",
    "novelty:\n  preset: robus\n": (
        "{file}:2:11: novelty.preset: should be 'robust' or 'paper' (got 'robus')"
    ),
    "state:\n  dir: a\n  dir: b\n": ("{file}:3:3: state.dir is set a second time; see {file}:2:3"),
    "state:\n  dir: &a x\n  url: *a\n": (
        "{file}:3:8: aliases (*name) are not supported; write the value out"
    ),
    "- a\n": "{file}:1:1: expected sections such as 'feed:'",
    "? [a]\n: 1\n": "{file}:1:3: a key is a plain word, not a list or a mapping",
    "state:\n  dir: 2024-13-45\n": "{file}:2:8: month must be in 1..12",
    "feed: [\n": "{file}:2:1: not valid YAML: expected the node content, but found '<stream end>'",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_names_its_line_and_column(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    assert str(caught.value) == MISTAKES[text].format(file=file)


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("feed:\n  pth: x\nstate:\n  dir: 1\n")
    with pytest.raises(ConfigInvalid) as caught:
        load(file, environ={}, overrides=["backbon.name=x"])
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("feed.pth=x", "--set feed.pth: unknown key; did you mean feed.path?"),
        ("feed=5", "--set feed: a section; set one of its keys"),
        ("feed.path", "--set feed.path: write it as section.key=value"),
        ("=x", "--set =x: write it as section.key=value"),
        ("novelty.preset=1", "--set novelty.preset: should be 'robust' or 'paper' (got '1')"),
    ],
)
def test_a_mistake_in_a_flag_names_the_flag(override: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(environ={}, overrides=[override])
    assert str(caught.value) == message


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(environ={"CONCLAD_STATE__DIRR": "x"})
    assert str(caught.value) == (
        "environment CONCLAD_STATE__DIRR: state.dirr: unknown key; did you mean state.dir?"
    )


def test_later_layers_win_and_are_named(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("state:\n  dir: from-file\n  url: null\nfeed:\n  path: from-file\n")
    loaded = load(
        file,
        environ={"CONCLAD_FEED__PATH": "from-environment", "CONCLAD_FEED__COLUMNS__IMAGE": "jpeg"},
        overrides=["feed.path=from-flag"],
    )
    assert loaded.config.state.dir == "from-file"
    assert str(loaded.origin("state.dir")) == f"{file}:2:8"
    assert loaded.config.feed.path == "from-flag"
    assert str(loaded.origin("feed.path")) == "--set feed.path"
    assert loaded.config.feed.columns.image == "jpeg"
    assert str(loaded.origin("feed.columns.label")) == "default"


def test_variables_that_name_no_section_are_not_ours() -> None:
    assert load(environ={"CONCLAD_TOKEN": "secret", "PATH": "/bin"}).origins == {}


def test_a_number_stays_text_where_text_is_due() -> None:
    loaded = load(environ={"CONCLAD_STATE__DIR": "007"}, overrides=["feed.path=2024"])
    assert (loaded.config.state.dir, loaded.config.feed.path) == ("007", "2024")


def test_a_section_can_be_given_whole_by_a_flag() -> None:
    loaded = load(environ={}, overrides=["feed={path: x, columns: {image: jpeg}}"])
    assert (loaded.config.feed.path, loaded.config.feed.columns.image) == ("x", "jpeg")


def test_an_optional_key_can_be_emptied() -> None:
    assert load(environ={}, overrides=["state.url="]).config.state.url is None


@pytest.mark.parametrize("text", ["", "# nothing\n", "feed:\n", "feed: {}\n", "---\n", "null\n"])
def test_nothing_said_means_defaults(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    assert load(file, environ={}).config == load(environ={}).config


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigMissing, match="conclad init"):
        load(tmp_path / "none.yaml", environ={})


def test_a_folder_or_other_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigMissing, match="cannot be read"):
        load(tmp_path, environ={})
    (tmp_path / "latin1.yaml").write_bytes(b"feed:\n  path: caf\xe9\n")
    with pytest.raises(ConfigSyntax, match="not UTF-8"):
        load(tmp_path / "latin1.yaml", environ={})


def test_the_working_folder_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(environ={}).config.state.dir == "state"
    Path("ray_config.yaml").write_text("state: {dir: here}\n")
    assert load(environ={}).config.state.dir == "here"


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_our_words(text: str) -> None:
    try:
        parse_document(text, "c.yaml")
    except ConfigError as error:
        assert str(error).startswith("c.yaml")


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_flag_is_taken_or_refused_in_our_words(key: str, value: str) -> None:
    try:
        load(environ={}, overrides=[f"feed.{key}={value}"])
    except ConfigError as error:
        assert str(error)
