"""Renders the images that people are asked about, and reads what a label column says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monitor.config import Config
from monitor.feed.source import Source
from monitor.jobs.parts import columns_of, decoding_of
from monitor.pipeline.pictures import Painter, Picture


class Querier:
    """Reads single rows of the feed."""

    def __init__(self, config: Config) -> None:
        columns = columns_of(config)
        if config.labels.oracle_column is not None:
            columns = replace(columns, label=config.labels.oracle_column)
        self._painter = Painter(
            Source.at(config.feed.path),
            columns,
            decoding_of(config),
            default_source=config.feed.default_source,
        )

    def ready(self) -> None:
        """Answers once it has started."""

    def paint(self, places: Sequence[tuple[str, int]]) -> list[Picture]:
        return self._painter.paint(places)
