"""Results on stdout, the rest on stderr, and logs that stay readable."""

from __future__ import annotations

import io
import json

import pytest

from monitor.cli.output import Output
from monitor.jobs.progress import JobProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def steps(output: Output, clock: Clock, seconds: float) -> None:
    for done in range(101):
        output.progress(JobProgress("embed", done, 100, "images"))
        clock.now += seconds


def test_a_log_gets_a_line_now_and_then() -> None:
    stream, clock = io.StringIO(), Clock()
    with Output(stream=stream, clock=clock) as output:
        steps(output, clock, seconds=1.0)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "embed: 0 of 100 images (0%)"
    assert lines[1] == "embed: 10 of 100 images (10%), 1.0 images/s, 2 min left"
    assert lines[-1] == "embed: 100 of 100 images (100%), 1.0 images/s"
    assert len(lines) == 11


def test_a_terminal_gets_one_line_that_is_written_over() -> None:
    stream, clock = Terminal(), Clock()
    with Output(stream=stream, clock=clock) as output:
        steps(output, clock, seconds=1.0)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith("\n")


def test_work_of_an_earlier_run_does_not_count_as_speed() -> None:
    stream, clock = io.StringIO(), Clock()
    with Output(stream=stream, clock=clock) as output:
        output.progress(JobProgress("embed", 90, 100, "images"))
        clock.now += 10
        output.progress(JobProgress("embed", 100, 100, "images"))
    assert stream.getvalue().splitlines()[-1].endswith("1.0 images/s")


def test_quiet_is_quiet() -> None:
    stream = io.StringIO()
    with Output(quiet=True, stream=stream) as output:
        output.progress(JobProgress("embed", 1, 1, "images"))
        output.note("by the way")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_the_result_is_for_programs_or_for_people(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with Output(as_json=as_json) as output:
        output.note("by the way")
        output.result({"images": 3}, "3 images")
    captured = capsys.readouterr()
    assert (json.loads(captured.out) if as_json else captured.out) == (
        {"images": 3} if as_json else "3 images\n"
    )
    assert captured.err == "by the way\n"
