"""What every command shares: help, versions, errors, exit codes, streams."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from monitor import __version__
from monitor.cli import root
from monitor.cli.root import COMMANDS, run
from monitor.store import Store


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert "Usage: conclad" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_the_command_says(name: str) -> None:
    target, summary = COMMANDS[name]
    module, _, attribute = target.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert (command.help or "").splitlines()[0] == summary


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from monitor.cli.root import run; run(['--help']);"
        "print(sorted({'torch', 'numpy', 'pyarrow', 'pydantic', 'timm'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_is_immediate() -> None:
    def seconds() -> float:
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "monitor.cli", "--help"], check=True, capture_output=True
        )
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])

    # Of the processor, not of the clock, and the best of several: others are at work, too.
    assert min(seconds() for _ in range(5)) < 0.3


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nope"]) == 2
    assert "No such command 'nope'" in capsys.readouterr().err


def test_a_mendable_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--set", "feed.pth=x"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "conclad: --set feed.pth: unknown key; did you mean feed.path?\n"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(root.cli, "main", broken)
    with pytest.raises(ZeroDivisionError):
        run([])


def test_an_interrupt_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(root.cli, "main", interrupted)
    assert run([]) == 130
    assert capsys.readouterr().err == "conclad: interrupted\n"


def test_a_closed_pipe_is_quiet() -> None:
    # A reader that is gone before the first byte; many lines, so that a buffer must be flushed.
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} -m monitor.cli config show | true; echo ${{PIPESTATUS[0]}}",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.strip() in {"0", "1"}


def test_config_show_hides_what_lets_people_in(capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        "webhooks.urls=['https://hooks.example.org/services/T0PSECRET']",
        "messages.targets=['slack://hooks.example.org/T1SECRET?x=T2SECRET', "
        "'smtp://me:T3SECRET@mail.example.org/?to=a@example.org']",
        "state.url=postgresql://conclad:T4SECRET@db/x?sslpassword=T5SECRET",
    ]
    assert run(["config", "show", *(word for one in given for word in ("--set", one))]) == 0
    shown = capsys.readouterr().out
    assert "SECRET" not in shown
    assert "https://hooks.example.org/***" in shown


def test_config_show_says_where_values_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAD_FEED__PATH", "s3://bucket/feed")
    assert run(["init"]) == 0
    assert run(["init"]) == 2
    capsys.readouterr()
    secret = "state.url=postgresql://me:secret@host/db"
    assert run(["config", "show", "--json", "--set", secret]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["feed.path"] == {
        "value": "s3://bucket/feed",
        "from": "environment CONCLAD_FEED__PATH",
    }
    assert shown["state.dir"]["from"].startswith("ray_config.yaml:")
    assert shown["state.url"]["value"] == "postgresql://me:***@host/db"


def test_status_waits_for_no_numbers_library(tmp_path: Path) -> None:
    """It is asked every few seconds by people and scripts: SQLAlchemy is all that it loads."""
    with Store.open(tmp_path / "state"):
        pass
    program = (
        "import sys; from monitor.cli.root import run;"
        f"code = run(['status', '--set', 'state.dir={tmp_path / 'state'}']);"
        "heavy = {'numpy', 'pyarrow', 'torch', 'ray', 'sqlalchemy.dialects.postgresql'};"
        "sys.exit(code or ', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
