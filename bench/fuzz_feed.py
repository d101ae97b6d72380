"""Fuzz the feed at length: python -m bench.fuzz_feed 10000 [first seed]."""

from __future__ import annotations

import sys
import time

from tests.feed.fuzz import run


def main(count: int, first: int) -> int:
    began = time.monotonic()
    report = run(first, count)
    print(f"{count} cases from seed {first} in {time.monotonic() - began:.0f} s")
    print(f"slowest case {report.slowest:.2f} s")
    for outcome, times in report.outcomes.most_common():
        print(f"{times:8}  {outcome}")
    for failure in report.failures:
        print(failure)
    print(f"{len(report.failures)} failures")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, int((sys.argv[2:] or ["0"])[0]))
    )
