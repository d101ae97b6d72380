"""``conclad quarantine``, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monitor.cli.root import run
from monitor.store import Store
from tests.store.building import commit_batch, plan_feed, scored


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    with Store.open(tmp_path) as store:
        good, bad = plan_feed(store, "cam-7/a.parquet", rows=8)
        commit_batch(store, scored(good, file="cam-7/a.parquet"))
        with store.transaction() as tx:
            tx.batches.quarantine(bad.id, "failed 4 times")
    return ["--set", f"state.dir={tmp_path}"]


def test_what_is_quarantined_is_listed_with_its_reason(
    where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["quarantine", "list", *where]) == 0
    shown = capsys.readouterr().out
    assert "cam-7/a.parquet" in shown
    assert "failed 4 times" in shown
    assert run(["quarantine", "list", "--json", *where]) == 0
    (item,) = json.loads(capsys.readouterr().out)
    assert (item["images"], item["rows"]) == (4, [[4, 7]])


def test_the_check_of_the_store_says_so_too(
    where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(["store", "check", *where])
    shown = capsys.readouterr().out
    assert "4 of its images have no verdict (failed 4 times)" in shown
    assert "Images listed: 8 = 4 verdicts + 4 quarantined." in shown


@pytest.mark.parametrize("word", ["retry", "drop"])
def test_it_is_tried_again_or_given_up(
    where: list[str], capsys: pytest.CaptureFixture[str], word: str
) -> None:
    assert run(["quarantine", word, "cam-7/a.parquet", *where]) == 0
    assert run(["quarantine", "list", *where]) == 0
    assert "Nothing is quarantined." in capsys.readouterr().out
    assert run(["quarantine", word, "cam-7/a.parquet", *where]) == 2
    assert "is not quarantined" in capsys.readouterr().err


def test_all_of_it_has_to_be_said(where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quarantine", "drop", *where]) == 2
    assert "name the files, or say --all" in capsys.readouterr().err
    assert run(["quarantine", "retry", "--all", *where]) == 0
