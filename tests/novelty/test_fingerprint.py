"""Features of another backbone are never taken for ours."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from typing import Any

import pytest

from monitor.novelty.fingerprint import Fingerprint

OURS = Fingerprint("efficientnet", "ab" * 32, json.dumps({"size": 224}), 1280, "float32")
OTHER: dict[str, Any] = {
    "backbone": "resnet",
    "weights": "cd" * 32,
    "preprocessing": json.dumps({"size": 160}),
    "dimension": 512,
    "precision": "bfloat16",
}


def test_the_test_knows_every_field() -> None:
    assert set(OTHER) == {one.name for one in fields(Fingerprint)}


@pytest.mark.parametrize("name", sorted(OTHER))
def test_every_field_makes_another_digest_and_is_named(name: str) -> None:
    changed = replace(OURS, **{name: OTHER[name]})
    assert changed.digest() != OURS.digest()
    said = changed.difference(OURS)
    assert said.startswith(f"{name} ")
    assert not any(f"{other} " in said for other in OTHER if other != name)


def test_equal_ones_differ_in_nothing() -> None:
    again = Fingerprint(**json.loads(json.dumps(asdict(OURS))))
    assert again == OURS
    assert again.digest() == OURS.digest()
    assert again.difference(OURS) == ""


def test_a_digest_is_the_same_in_every_process() -> None:
    # Of the cache on disk and of every published version: another spelling would orphan both.
    expected = "db1aac7e0657ad35"
    assert Fingerprint.of_features(8).digest()[:16] == expected


def test_the_input_size_is_that_of_the_preprocessing() -> None:
    assert OURS.input_size == 224
    assert Fingerprint.of_features(8).input_size is None
