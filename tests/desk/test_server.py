"""The desk as a process: it says where it is, ends when told to, and never outlives its parent."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from monitor.cli.root import run
from monitor.desk.errors import CannotStart
from monitor.desk.server import listen, start
from monitor.store import Store
from tests.desk.browser import config_of
from tests.people import world


def healthy(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/health", timeout=30) as reply:
        return bool(json.load(reply) == {"status": "ok"})


def send_rubbish(port: int) -> None:
    for rubbish in (
        b"\x00" * 100,
        b"GET /\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as wire:
            wire.sendall(rubbish)
            wire.shutdown(socket.SHUT_WR)
            while wire.recv(4096):
                pass
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/thumbnails/..%2f..%2fconclad.db")
    assert connection.getresponse().status == 404
    connection.close()


def test_it_starts_beside_us_outlives_rubbish_and_stops_when_told_to(state: Path) -> None:
    handle = start(config_of(state))
    try:
        assert healthy(handle.url)
        assert handle.alive()
        send_rubbish(int(handle.url.rpartition(":")[2]))
        assert healthy(handle.url)
    finally:
        handle.stop()
    assert not handle.alive()
    assert handle.process.returncode == 0
    handle.stop()


def test_it_does_not_outlive_its_parent(state: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from monitor.desk.server import start;"
        "from tests.desk.browser import config_of;"
        "handle = start(config_of(Path(sys.argv[1])));"
        "print(handle.url, handle.process.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert parent.stdout is not None
    url, child = parent.stdout.readline().split()
    assert healthy(url)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    # Its port is free again only once it has gone; waiting for the process itself is not ours.
    descriptor = os.pidfd_open(int(child)) if _lives(int(child)) else None
    if descriptor is not None:
        import select

        assert select.select([descriptor], [], [], 60)[0], "the desk is still there"
        os.close(descriptor)
    with pytest.raises(OSError):
        healthy(url)


def test_it_ends_quietly_if_its_parent_is_killed_while_it_starts(state: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "monitor.desk"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    child.stdin.write(config_of(state).model_dump_json() + "\n")
    child.stdin.flush()
    # Its input stays open: that nobody hears its address is enough.
    assert child.wait(120) == 0
    assert "Traceback" not in child.stderr.read()
    child.stdin.close()
    child.stderr.close()


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_taken_port_is_named(state: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=rf"127.0.0.1:{port}: cannot listen"):
            start(config_of(state, f"desk.port={port}"))


def test_strangers_are_kept_out_from_the_start(state: Path) -> None:
    with pytest.raises(CannotStart, match="nobody has a token"):
        start(config_of(state, "desk.host=0.0.0.0"))


def test_ipv6_loopback_is_loopback(state: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("MISSING: IPv6 on this machine")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("MISSING: IPv6 on this machine")
    handle = start(config_of(state, "desk.host=::1"))
    try:
        assert handle.url.startswith("http://[::1]:")
        assert healthy(handle.url)
    finally:
        handle.stop()


def test_the_command_serves_until_it_is_interrupted(state: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "monitor.cli",
            "desk",
            "--set",
            f"state.dir={state}",
            "--set",
            "desk.port=0",
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    url = line.split()[4]
    assert healthy(url)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (0, 130)


def test_tokens_from_the_terminal(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--json", "--set", f"state.dir={state}"]
    assert run(["tokens", "add", "ada", "--role", "admin", *where]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["token"].startswith("conclad_")
    assert run(["tokens", "list", *where]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["role"]) == ("ada", "admin")
    assert made["token"] not in json.dumps(listed)
    assert run(["tokens", "add", "ada", *where]) == 2
    assert run(["tokens", "remove", "ada", *where]) == 0
    assert run(["tokens", "remove", "ada", *where]) == 2


def test_a_source_is_purged_from_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = world.make(tmp_path / "state", 8)
    where = ["--set", f"state.dir={state}"]
    assert run(["purge", "--source", "cam-2", "--before", "yesterday", *where]) == 2
    assert "is not a date" in capsys.readouterr().err
    assert run(["purge", "--source", "cam-2", "--before", "2024-01-01", "--yes", *where]) == 0
    assert "no rows; 0 pictures" in capsys.readouterr().out
    arguments = ["purge", "--source", "cam-2", "--before", "2025-01-01T00:00Z", *where]
    assert run([*arguments, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["thumbnails"] == 4
    with Store.open(state) as store, store.reading() as tx:
        shown = {question.source_id: question.thumbnail for question in tx.questions.of_pool(1)}
    assert shown["cam-2"] is None
    assert shown["cam-1"] is not None
