"""A Ray cluster of several nodes on this machine, for drivers in processes of their own."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Enough for the features of a few small batches.
MEMORY = 100 << 20
#: How often a node may fail to start in time.
TRIES = 8


class Nodes:
    """A head that computes nothing by default, and nodes that come and go."""

    def __init__(self, make: Callable[..., Any], head: dict[str, Any]) -> None:
        self._make, self._head = make, head
        self._cluster = _patiently(lambda: make(initialize_head=True, head_node_args=head))

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def raylets(self) -> set[int]:
        """The processes whose children are the workers."""
        cluster = self._cluster
        found = (node.all_processes.get("raylet", ()) for node in cluster.list_all_nodes())
        return {info.process.pid for infos in found for info in infos}

    def add(self, *, cpus: int = 0, **resources: float) -> Any:
        """A node with some resources of its own, and by default no CPU to speak of."""
        return _patiently(
            lambda: self._cluster.add_node(
                num_cpus=cpus,
                object_store_memory=MEMORY,
                resources=resources,
                include_dashboard=False,
            )
        )

    def lose_head(self) -> None:
        """The head is gone at once, with everything that it knew; nodes that are left end too."""
        self._cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)

    def start_head(self) -> None:
        """Another head at the same address, as a pod or a service is started again."""
        port = int(self.address.rpartition(":")[2])
        head = {**self._head, "gcs_server_port": port}
        for node in [*self._cluster.worker_nodes]:
            self.remove(node)

        def start() -> Any:
            try:
                return self._make(initialize_head=True, head_node_args=head)
            except Exception:
                # What it has started listens where the next try wants to.
                for pid in _children_on(port):
                    os.kill(pid, signal.SIGKILL)
                raise

        self._cluster = _patiently(start)

    def shutdown(self) -> None:
        self._cluster.shutdown()

    def remove(self, node: Any) -> None:
        """Gone at once, as if its power had failed."""
        self._cluster.remove_node(node, allow_graceful=False)


def _children_on(port: int) -> list[int]:
    """Processes of ours that were told to listen on a port, or to connect to it."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if parent == os.getpid() and str(port) in words:
            found.append(int(folder.name))
    return found


@contextmanager
def nodes(*, cpus: int = 2) -> Iterator[Nodes]:
    """Start a cluster whose head has some CPUs; this process does not join it."""
    # Short: the sockets below it may not have names of more than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    (folder / "ray").mkdir()
    before = dict(os.environ)
    os.environ["RAY_TMPDIR"] = str(folder)
    try:
        # Only those who ask for a cluster wait for Ray to be imported; ours goes first, because
        # it says how Ray should be.
        from ray.cluster_utils import Cluster

        import actors.ray_cluster  # noqa: F401

        head = {"num_cpus": cpus, "object_store_memory": MEMORY, "include_dashboard": False}
        cluster = Nodes(Cluster, head)
        try:
            yield cluster
        finally:
            cluster.shutdown()
    finally:
        os.environ.clear()
        os.environ |= before
        shutil.rmtree(folder, ignore_errors=True)


def _patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a node half a minute to start, which a crowded machine may not have."""
    for _ in range(TRIES - 1):
        try:
            return start()
        except Exception as error:  # Ray's own are bare Exceptions
            if "timed out during startup" not in str(error):
                raise
    return start()
