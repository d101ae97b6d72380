"""The Ray that conclad starts itself: closed to everybody else on the machine and beyond it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from monitor.config import Config
from tests.deploy.manifests import ROOT

pytestmark = pytest.mark.timeout(600)

#: Starts a Ray and an actor, tells about them, and ends when it is told to.
OWNER = """
import json, os, sys
from actors.ray_cluster import connect, disconnect
import ray
connect("local")

@ray.remote(num_cpus=0)
class Somebody:
    def number(self):
        return os.getpid()

somebody = Somebody.remote()
ray.get(somebody.number.remote())
context = ray.get_runtime_context()
told = {"address": context.gcs_address, "token": os.environ["RAY_AUTH_TOKEN"]}
told["session"] = ray._private.worker._global_node.get_session_dir_path()
print(json.dumps(told), flush=True)
sys.stdin.readline()
disconnect()
assert "RAY_AUTH_TOKEN" not in os.environ
"""

#: The one who watches the groups of sources: keeps their Ray, whose head dies.
KEEPER = """
import os, signal, subprocess, sys
from actors import group_processes
from tests.actors.test_local_ray import JOINER, below, is_called

group_processes.RAY_CHECK_SECONDS = 0.0
own = group_processes._OwnRay()
address = own.address
subprocess.run([sys.executable, "-c", JOINER, address], check=True)
(head,) = [pid for pid in below(os.getpid()) if is_called(pid, "gcs_server")]
own.keep()
assert is_called(head, "gcs_server"), "nothing was wrong with it"
os.kill(head, signal.SIGKILL)
os.waitpid(head, 0)
own.keep()
assert own.address == address
subprocess.run([sys.executable, "-c", JOINER, address], check=True)
"""

#: A group's monitor, which has inherited the token and knows the address.
JOINER = """
import sys
from actors.ray_cluster import connect, disconnect, living_nodes
connect(sys.argv[1])
assert living_nodes()
disconnect()
"""

#: Somebody else who would like to use it.
STRANGER = """
import sys
import ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False)
except BaseException as error:
    print(type(error).__name__, error)
    sys.exit(1)
"""


@contextmanager
def local_ray(home: Path) -> Iterator[dict[str, Any]]:
    unset = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**variables, "HOME": str(home)},
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    told = json.loads(owner.stdout.readline())
    try:
        yield {**told, "pid": owner.pid}
    finally:
        owner.stdin.write("\n")
        owner.stdin.close()
        owner.stdout.close()
        assert owner.wait(120) == 0


def below(process: int) -> set[int]:
    """A process and all that it started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(words[1])
    found = {process}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def is_called(process: int, name: str) -> bool:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip() == name
    except OSError:  # it has ended
        return False


def listening(processes: set[int]) -> dict[str, int]:
    """The addresses on which they accept connections, and how many sockets each has."""
    inodes: set[str] = set()
    for process in processes:
        for handle in Path(f"/proc/{process}/fd").iterdir():
            try:
                target = os.readlink(handle)
            except OSError:
                continue
            if match := re.fullmatch(r"socket:\[(\d+)\]", target):
                inodes.add(match[1])
    found: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                address = _address(words[1].partition(":")[0])
                found[address] = found.get(address, 0) + 1
    return found


def _address(text: str) -> str:
    """As the kernel writes it: words of 32 bits, each with its bytes reversed."""
    words = [bytes.fromhex(text[n : n + 8])[::-1] for n in range(0, len(text), 8)]
    found = ip_address(b"".join(words))
    return str(getattr(found, "ipv4_mapped", None) or found)


def test_a_local_ray_is_closed_to_others(tmp_path: Path) -> None:
    with local_ray(tmp_path) as ray:
        processes = below(ray["pid"])
        addresses = listening(processes)
        assert len(processes) > 4
        assert sum(addresses.values()) >= 4
        assert all(ip_address(address).is_loopback for address in addresses), addresses

        assert not (tmp_path / ".ray").exists(), "no token in the home folder"
        commands = [Path(f"/proc/{one}/cmdline") for one in processes]
        said = b"".join(one.read_bytes() for one in commands if one.exists())
        token = ray["token"].encode()
        assert len(token) == 64
        assert token not in said, "a command line is seen by everybody"
        for folder, _, names in os.walk(ray["session"]):
            for name in names:
                path = Path(folder, name)
                assert not path.is_file() or token not in path.read_bytes(), path

        refused = stranger(ray["address"], RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)
        assert refused.returncode == 1, "somebody joined with another token"
        assert "InvalidAuthToken" in refused.stdout + refused.stderr


def stranger(address: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Joins where loopback is taken for loopback, so that only the token is in the way."""
    return subprocess.run(
        [sys.executable, "-c", STRANGER, address],
        env={**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_head_of_the_ray_that_groups_share_may_die() -> None:
    """Another one takes its place, where the monitors look for it and with the same token."""
    subprocess.run([sys.executable, "-c", KEEPER], check=True, timeout=500)


def test_the_table_of_ports_says_what_is_so() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+? \|$", text, re.MULTILINE)
    table = dict(rows)
    config = Config()
    for what, port, host in (
        ("metrics", config.metrics.port, config.metrics.host),
        ("desk", config.desk.port, config.desk.host),
    ):
        assert table[f"{what}, {port}"] == "loopback"
        assert ip_address(host).is_loopback
    # What the other test sees.
    assert table["a local Ray (`run.address: local`): high ports"] == "loopback"
