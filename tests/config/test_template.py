"""The commented file is complete, valid, and safe to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from monitor.config import Config, load
from monitor.config.errors import ConfigExists
from monitor.config.fields import fields_of
from monitor.config.template import commented_yaml, scalar, write_template
from monitor.config.yaml_document import read_document


def test_the_template_sets_every_key_to_its_default(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    write_template(file)
    assert load(file, environ={}).config == Config()
    assert set(read_document(file)) == set(fields_of(Config))


def test_every_key_says_what_it_does() -> None:
    assert [f.dotted for f in fields_of(Config).values() if not f.description] == []


def test_the_repository_ships_what_init_writes() -> None:
    shipped = Path(__file__).parents[2] / "ray_config.yaml"
    assert shipped.read_text() == commented_yaml(), "run: conclad init --force"


def test_an_existing_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("mine")
    with pytest.raises(ConfigExists, match="--force"):
        write_template(file)
    assert file.read_text() == "mine"
    write_template(file, force=True)
    assert file.read_text() == commented_yaml()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigExists, match="No such file"):
        write_template(tmp_path / "none" / "c.yaml")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    )
)
def test_a_value_survives_being_written(value: Any) -> None:
    assert yaml.safe_load(scalar(value)) == value
