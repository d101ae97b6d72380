"""How the tests are spread over processes when they run side by side (``pytest -n 2``).

The tests of a file share what is expensive to make (a fitted state, a browser, a server), so a
file stays in one process. Everything that starts a Ray of its own stays in one process as well:
two at once on two cores would only wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# A deadline for single examples measures how busy the machine is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

#: Files that start Ray; also the longest, hence the first.
RAY = ("tests/actors/test_ray.py", "tests/deploy/test_nodes.py")
#: The next longest: what begins late must not be what ends last.
EARLY = ("tests/actors/test_crashes.py", "tests/demo/test_play.py", "tests/desk/test_monitor.py")


def file_of(nodeid: str) -> str:
    """
    >>> file_of("tests/store/test_verdict_columns.py::test_a_file[sqlite]")
    'tests/store/test_verdict_columns.py'
    """
    return nodeid.partition("::")[0]


class Rooms(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole files, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return "ray" if file in RAY else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Rooms:
    # xdist would begin with the files of most tests, which here are the quickest.
    config.option.loadscopereorder = False
    return Rooms(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # xdist runs an id once: of tests that share one, all but the last would be left out silently.
    shared = [nodeid for nodeid, count in Counter(i.nodeid for i in items).items() if count > 1]
    if shared:
        raise pytest.UsageError(f"several tests have the id {shared[0]}; give each its own")
    first: Sequence[str] = (*RAY, *EARLY)

    def place(item: pytest.Item) -> int:
        file = file_of(item.nodeid)
        return first.index(file) if file in first else len(first)

    items.sort(key=place)
