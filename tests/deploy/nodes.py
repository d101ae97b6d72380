"""Several machines on one: network namespaces, each with its own address and its own Ray node.

What a cluster suffers can be done to them for real: a node killed with everything on it, a cable
pulled for a minute. Needs root and the `ip` program.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pytest

from tests.system import require_system

BIN = Path(sys.executable).parent
#: Ray starts in seconds on a quiet machine; a crowded one has taken forty.
START_SECONDS = 120
TRIES = 3
PORT = 6379


def require_namespaces() -> None:
    """Skip, naming what is missing, where network namespaces cannot be made."""
    require_system("ip", "iproute2")
    if os.geteuid() != 0:
        sentence = "MISSING PRIVILEGE: network namespaces need root"
        if os.environ.get("CI") == "true" or os.environ.get("CONCLAD_REQUIRE_SYSTEM") == "1":
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)


@dataclass(slots=True)
class Node:
    """One machine: its network, its address, a folder for its Ray, and its first process.

    Its processes see each other and nobody else, as on a machine of its own: a Ray driver looks
    for its node among the processes around it.
    """

    name: str
    cable: str
    address: str
    folder: Path
    first: subprocess.Popen[bytes] | None = None


@dataclass(slots=True)
class Network:
    """A switch and the machines on it; leaving it ends every process on them.

    The machines share the disk of the one they run on, as a cluster shares a network disk, but
    for the folder of Ray's sockets: that one is each machine's own. A driver would otherwise
    find the node of another machine there, and take it for its neighbour.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(32))
    nodes: dict[str, Node] = field(default_factory=dict)
    _tag: str = field(default_factory=lambda: secrets.token_hex(2))
    _home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="cn-", dir="/tmp")))
    _third: int = field(default_factory=lambda: secrets.randbelow(200) + 20)

    def __enter__(self) -> Self:
        _ip("link", "add", self._switch, "type", "bridge")
        _ip("addr", "add", f"10.213.{self._third}.254/24", "dev", self._switch)
        _ip("link", "set", self._switch, "up")
        self.sockets.mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            self.kill(node)
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", node.name)
        _ip("link", "del", self._switch)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def _switch(self) -> str:
        return f"cnb{self._tag}"

    # -- machines ---------------------------------------------------------------------------

    def add(self, name: str) -> Node:
        """A machine with a cable to the switch; nothing runs on it yet."""
        number = len(self.nodes) + 1
        folder = self._home / str(number)
        node = Node(
            f"cn{self._tag}-{number}",
            f"cnv{self._tag}{number}",
            f"10.213.{self._third}.{number}",
            folder,
        )
        _ip("netns", "add", node.name)
        self.nodes[name] = node
        _ip("link", "add", node.cable, "type", "veth", "peer", "name", "eth0", "netns", node.name)
        _ip("link", "set", node.cable, "master", self._switch, "up")
        for command in (
            ("addr", "add", f"{node.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
            # It leads nowhere, but Ray asks for it to learn which address is ours.
            ("route", "add", "default", "via", f"10.213.{self._third}.254"),
        ):
            _ip("-n", node.name, *command)
        self.boot(node)
        return node

    def boot(self, node: Node) -> None:
        """Switch a machine on; it has an empty folder for Ray, as after a reboot."""
        shutil.rmtree(node.folder, ignore_errors=True)
        node.folder.mkdir()
        setup = 'mount -t proc proc /proc && mount --bind "$1" "$2" && exec sleep infinity'
        node.first = subprocess.Popen(
            [
                *("ip", "netns", "exec", node.name),
                *("unshare", "--pid", "--mount", "--fork", "--kill-child"),
                *("sh", "-c", setup, "sh", str(node.folder), str(self.sockets)),
            ],
            stdin=subprocess.DEVNULL,
        )
        wait_for(lambda: _comm(_child(node.first)) == "sleep", START_SECONDS, what="a boot")

    def start(
        self, node: Node, *command: str, log: IO[bytes] | None = None, **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start a program on a machine, with the cluster's token and nothing of our own Ray."""
        return subprocess.Popen(
            self._on(node, *command),
            env=self._environment(node) | variables,
            stdin=subprocess.DEVNULL,
            stdout=log or subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ask(self, node: Node, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program on a machine to its end."""
        return subprocess.run(
            self._on(node, *command),
            env=self._environment(node),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )

    def _on(self, node: Node, *command: str) -> list[str]:
        assert node.first is not None, f"{node.name} is switched off"
        inside = f"--target={_child(node.first)}"
        return ["nsenter", inside, "--net", "--mount", "--pid", *command]

    @property
    def sockets(self) -> Path:
        """The folder for Ray's files: the same path everywhere, and another place on each."""
        return self._home / "ray"

    def _environment(self, node: Node) -> dict[str, str]:
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "CONCLAD_"))}
        return ours | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(self.sockets),
        }

    def kill(self, node: Node) -> None:
        """Pull the plug: every process of the machine is gone at once."""
        if node.first is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(_child(node.first), signal.SIGKILL)
            node.first.kill()
            node.first.wait()
            node.first = None

    def cut(self, node: Node) -> None:
        """Pull the cable; the machine goes on without the others."""
        _ip("link", "set", node.cable, "down")

    def mend(self, node: Node) -> None:
        _ip("link", "set", node.cable, "up")

    # -- Ray --------------------------------------------------------------------------------

    def ray_head(self, node: Node, *, cpus: int = 0) -> str:
        """Start the head; returns the address of the cluster."""
        self._ray(node, "--head", f"--port={PORT}", "--include-dashboard=false", cpus=cpus)
        return f"{node.address}:{PORT}"

    def ray_worker(self, node: Node, head: str, *, cpus: int = 1) -> None:
        self._ray(node, f"--address={head}", cpus=cpus)

    def _ray(self, node: Node, *arguments: str, cpus: int) -> None:
        """Start a Ray node, on a fresh machine each time: Ray gives itself 30 s and no more."""
        for _ in range(TRIES):
            done = self.ask(
                node,
                *(str(BIN / "ray"), "start", *arguments),
                f"--node-ip-address={node.address}",
                f"--num-cpus={cpus}",
                f"--temp-dir={self.sockets}",
                "--object-store-memory=100000000",
                "--disable-usage-stats",
            )
            if done.returncode == 0:
                return
            self.kill(node)
            self.boot(node)
        raise AssertionError(done.stdout[-2000:] + done.stderr[-2000:])


def _child(process: subprocess.Popen[bytes] | None) -> int:
    """The first process inside a machine, as the one outside sees it; 0 if it is not there yet."""
    assert process is not None
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    found = listed.read_text().split() if listed.exists() else []
    return int(found[0]) if found else 0


def _comm(pid: int) -> str:
    name = Path(f"/proc/{pid}/comm")
    return name.read_text().strip() if pid and name.exists() else ""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    require_namespaces()
    with Network() as made:
        yield made


def wait_for(condition: Any, seconds: float, *, what: str) -> float:
    """Wait until something holds; returns how long that took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{what} did not happen within {seconds:g} s")
        time.sleep(0.2)
    return time.monotonic() - began
