"""A feed in a bucket that fails in every way for a while: the run ends as if it had not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pyarrow import fs

from actors.run_monitor import run
from monitor.config import Config
from tests.actors.story import Story, tell_story
from tests.actors.test_faults import (
    AWAY_SECONDS,
    assert_as_undisturbed,
    copied,
    striking,
    undisturbed,
)
from tests.buckets import bucket_at
from tests.faulty_proxy import Mode, Proxy, proxy

__all__ = ["undisturbed"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"))


@pytest.fixture
def bucket(told: Story, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Proxy, str]]:
    """The story's feed in a bucket, behind a server that can be told to fail."""
    with bucket_at("s3", "feed", monkeypatch) as template:
        (where,) = parse_qs(urlsplit(template).query)["endpoint_override"]
        host, _, port = where.partition(":")
        plain, root = fs.FileSystem.from_uri(template.format("feed"))
        for file in sorted(Path(told.config.feed.path).iterdir()):
            with plain.open_output_stream(f"{root}/cam/{file.name}") as sink:
                sink.write(file.read_bytes())
        with proxy(host, int(port)) as found:
            query = f"endpoint_override=127.0.0.1:{found.port}&scheme=http&region=us-east-1"
            yield found, f"s3://feed/cam?{query}"


@pytest.mark.parametrize("mode", ["500", "expired", "slow", "half", "refused"])
def test_a_bucket_that_fails_is_waited_for(
    told: Story,
    bucket: tuple[Proxy, str],
    undisturbed: dict[str, Any],
    tmp_path: Path,
    mode: Mode,
) -> None:
    server, address = bucket
    config: Config = copied(told, tmp_path)
    feed = config.feed.model_copy(update={"path": address})
    config = config.model_copy(update={"feed": feed})
    summary = run(
        config,
        once=True,
        open_engine=striking(lambda: server.fail(mode, 2 * AWAY_SECONDS)),
    )
    assert server.failed > 0
    assert_as_undisturbed(config, summary, undisturbed)
