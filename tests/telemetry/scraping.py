"""Reading the page as Prometheus does."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Page:
    """The samples of one scrape, found by name and labels."""

    def __init__(self, url: str) -> None:
        with urllib.request.urlopen(url) as answer:
            self.text = answer.read().decode()
        self.families = list(text_string_to_metric_families(self.text))
        self.series: Series = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def get(self, name: str, **labels: str) -> float | None:
        return self.series.get((f"conclad_{name}", frozenset(labels.items())))

    def sources(self) -> set[str]:
        return {label for _, labels in self.series for key, label in labels if key == "source"}
