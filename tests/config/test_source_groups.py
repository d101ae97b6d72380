"""Groups of sources: what they share, what they do not, and mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.config import Loaded, load
from monitor.config.errors import ConfigError

TEXT = """\
feed:
  path: /data/feed
pools:
  size: 500
groups:
  harbour:
    labels:
      per_week: 50
    pools:
      size: 900
  forest:
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    return path


def of(file: Path, group: str, *overrides: str, **environ: str) -> Loaded:
    return load(file, overrides=overrides, environ=environ, group=group)


def test_what_a_group_does_not_say_is_as_for_all(file: Path) -> None:
    harbour, forest = of(file, "harbour").config, of(file, "forest").config
    assert (harbour.pools.size, forest.pools.size) == (900, 500)
    assert (harbour.labels.per_week, forest.labels.per_week) == (50, 1000)
    assert (harbour.group, forest.group) == ("harbour", "forest")


def test_places_follow_from_the_name(file: Path) -> None:
    harbour, forest = of(file, "harbour").config, of(file, "forest").config
    assert (harbour.feed.path, forest.feed.path) == ("/data/feed/harbour", "/data/feed/forest")
    assert (harbour.state.dir, forest.state.dir) == ("state/harbour", "state/forest")
    assert (harbour.metrics.port, forest.metrics.port) == (9464, 9465)
    assert (harbour.desk.port, forest.desk.port) == (8484, 8485)
    assert forest.desk_url == "http://localhost:8485"
    assert str(of(file, "forest").origin("state.dir")) == "group forest"


def test_a_group_may_choose_its_own_places(file: Path) -> None:
    own = "groups.forest={feed: {path: s3://woods}, desk: {port: 80}, state: {dir: /woods}}"
    forest = of(file, "forest", own).config
    assert (forest.feed.path, forest.desk.port, forest.state.dir) == ("s3://woods", 80, "/woods")
    assert of(file, "harbour", own).config.feed.path == "/data/feed/harbour"


def test_a_free_port_stays_free(file: Path) -> None:
    assert of(file, "forest", "desk.port=0").config.desk.port == 0


def test_later_layers_win_over_what_a_group_says_in_an_earlier_one(file: Path) -> None:
    assert of(file, "harbour", "pools.size=40").config.pools.size == 40
    assert of(file, "harbour", "groups.harbour.pools.size=41", "pools.size=40").config.pools.size
    found = of(file, "harbour", CONCLAD_GROUPS__HARBOUR__POOLS__SIZE="42").config
    assert found.pools.size == 42


def test_each_group_has_a_database(file: Path) -> None:
    url = "state.url=postgresql://conclad@db/conclad_{group}"
    assert of(file, "forest", url).config.state.url == "postgresql://conclad@db/conclad_forest"
    with pytest.raises(ConfigError, match=r"write \{group\} in place of its name"):
        load(file, overrides=["state.url=postgresql://conclad@db/conclad"], environ={})


def test_without_a_choice_all_are_at_hand(file: Path) -> None:
    loaded = load(file, environ={})
    assert list(loaded.each()) == ["harbour", "forest"]
    assert loaded.each()["harbour"] == of(file, "harbour").config
    assert list(of(file, "harbour").each()) == [""]


def test_a_group_with_nothing_to_say_is_a_group(file: Path) -> None:
    file.write_text("groups:\n  north: {}\n  south:\n  west:\n    pools: {}\n")
    found = load(file, overrides=["groups.south.pools.size=70"], environ={}).each()
    # In the order in which they are written: their ports follow from it.
    assert [(name, config.pools.size, config.desk.port) for name, config in found.items()] == [
        ("north", 2000, 8484),
        ("south", 70, 8485),
        ("west", 2000, 8486),
    ]


def test_a_group_may_be_chosen_as_a_key(file: Path) -> None:
    assert load(file, overrides=["group=forest"], environ={}).config.state.dir == "state/forest"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("    pols: {}\n    fed: 1\n", "13:5: fed: unknown key; did you mean feed?"),
        ("    pools: {size: few}\n", "12:19: pools.size: should be a valid integer (got 'few')"),
        ("    groups: {a: 1}\n", "groups: a group has no groups of its own"),
        ("  North: {}\n", "groups.North"),
    ],
)
def test_a_mistake_in_a_group_names_its_line(file: Path, more: str, message: str) -> None:
    file.write_text(TEXT + more)
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    assert message in str(caught.value)


def test_a_group_that_is_not_there(file: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    with pytest.raises(ConfigError, match="no such group; there are harbour, forest"):
        of(file, "desert")
    with pytest.raises(ConfigError, match="the configuration has none"):
        load(empty, environ={}, group="desert")
