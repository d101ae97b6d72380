"""A crowd of annotators loses nothing and counts nothing twice; ``bench/desk.py`` has fifty."""

from __future__ import annotations

from pathlib import Path

from monitor.desk.roles_and_tokens import Role, add_token
from monitor.desk.server import start
from monitor.store import Store, check
from tests.desk.browser import config_of
from tests.desk.storm import assert_whole, storm
from tests.people import world

PEOPLE, QUESTIONS = 8, 240


def test_nothing_is_lost_and_nothing_double(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Store.open(state) as store:
        world.fit(store)
        world.ask(store, QUESTIONS, budget=QUESTIONS)
        tokens = [add_token(store, f"annotator {n}", Role.ANNOTATOR) for n in range(PEOPLE)]
        handle = start(config_of(state))
        try:
            tally = storm(handle.url, tokens, lend=10)
        finally:
            handle.stop()
        assert tally.fates["repeated"] > 0
        assert tally.undone > 0
        assert tally.lessons
        assert_whole(store, tally)
        assert [finding for finding in check(store) if finding.severity == "error"] == []
