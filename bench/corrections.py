"""What a month of corrections costs the reader of verdicts.

    .venv/bin/python -m bench.corrections [--pools 20] [--days 30]

A class of a settled feed is given another name every day, so that every image of it is settled
again, and files are merged as a running monitor merges them. Reading all verdicts is timed before
the first correction, and later; the settled rows and files that the reader has to go through stand
beside it. Times are those of the processor.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.year import Feed
from monitor.config import Config
from monitor.people.resettle_corrections import resettle_corrections
from monitor.store import Store
from monitor.store.read_verdicts import read_verdicts
from monitor.store.record_states import ClassOrigin

# Reading takes a fraction of a second: the least of several times is the one without a disturbance.
TIMES = 5
#: The class of every image of the feed.
CLASS = "class-1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", type=int, default=20, help="of 2,048 images")
    parser.add_argument("--days", type=int, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corrections-") as place:
        feed = Feed(Path(place), sources=10)
        with feed.store.transaction() as tx:
            tx.classes.add("water", ClassOrigin.FIT, class_id=CLASS)
        for _ in range(given.pools):
            feed.bring_pool()
        feed.end_day(Config())
        print("| days of corrections | revisions | settled files | settled rows | reading |")
        print("| ---: | ---: | ---: | ---: | ---: |")
        print(line(feed.store, 0))
        for day in range(1, given.days + 1):
            rename(feed.store, CLASS, f"name of day {day}")
            while resettle_corrections(feed.store).more:
                pass
            feed.end_day(Config())
            if day in (1, 10, given.days):
                print(line(feed.store, day), flush=True)
        feed.store.close()


def rename(store: Store, class_id: str, name: str) -> None:
    with store.transaction() as tx:
        tx.classes.rename(class_id, name)
        tx.events.append("class.renamed", {"class_id": class_id, "name": name})


def line(store: Store, day: int) -> str:
    with store.reading() as tx:
        outputs = tx.outputs.of_kind("settled")
        revisions = tx.settlements.next_number() - 1
    seconds = min(reading(store) for _ in range(TIMES))
    rows = sum(output.rows for output in outputs)
    return f"| {day} | {revisions} | {len(outputs)} | {rows} | {seconds:.2f} s |"


def reading(store: Store) -> float:
    began = time.process_time()
    for _ in read_verdicts(store):
        pass
    return time.process_time() - began


if __name__ == "__main__":
    main()
