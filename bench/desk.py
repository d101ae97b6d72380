"""Fifty annotators answer five thousand questions at once: how long, and is anything lost?

python -m bench.desk [--people 50] [--questions 5000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from monitor.desk.roles_and_tokens import Role, add_token
from monitor.desk.server import start
from monitor.store import Store, check
from tests.desk.browser import config_of
from tests.desk.storm import assert_whole, storm
from tests.people import world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--questions", type=int, default=5000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with Store.open(state) as store:
            world.fit(store)
            world.ask(store, chosen.questions, budget=chosen.questions)
            tokens = [
                add_token(store, f"annotator {n}", Role.ANNOTATOR) for n in range(chosen.people)
            ]
            handle = start(config_of(state))
            began = time.perf_counter()
            try:
                tally = storm(handle.url, tokens)
            finally:
                seconds = time.perf_counter() - began
                handle.stop()
            assert_whole(store, tally)
            damaged = [str(one) for one in check(store) if one.severity == "error"]
    waits = sorted(tally.seconds)
    print(
        json.dumps(
            {
                "people": chosen.people,
                "questions": chosen.questions,
                "seconds": round(seconds, 1),
                "answers_per_second": round(tally.fates["accepted"] / seconds, 1),
                "requests": len(waits),
                "median_ms": round(1000 * statistics.median(waits), 1),
                "p99_ms": round(1000 * waits[int(0.99 * (len(waits) - 1))], 1),
                "fates": dict(tally.fates),
                "undone": tally.undone,
                "lessons": len(tally.lessons),
                "damaged": damaged,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
