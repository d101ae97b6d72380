"""Disasters on several machines for real: what is lost (nothing), and how long recovery takes.

    sudo .venv/bin/python -m bench.drill [worker] [head] [partition] [--seconds 60]

Four machines (network namespaces with addresses of their own): a Ray head without work, two
workers, and the monitor's machine. Files of 64 images keep arriving. After the first verdicts a
worker is killed with everything on it, or the head is killed and started again, or a worker's
cable is pulled for a minute. Every part is started again when it ends, as Kubernetes or systemd
would do. In the end every image must have exactly one verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from monitor.config import Config
from monitor.jobs.fit_detector import fit
from monitor.store import Store, check
from monitor.store.verdict_columns import current, read_table
from tests.deploy.nodes import BIN, PORT, Network, Node, wait_for
from tests.jobs.feeds import config_for, picture, write_feed

ROOT = Path(__file__).parents[1]
ROWS = 64
#: Between two files: some 60 images a second, a third of what a crowded core embeds.
PAUSE = 1.0
RESTART_SECONDS = 2.0
#: Files that may be on their way without anybody being late.
SLACK = 6
#: The longest anything below may take on a crowded machine.
PATIENCE = 420.0


@dataclass(slots=True)
class Supervised:
    """A program on a machine that is started again whenever it ends, until it is let go."""

    net: Network
    node: Node
    command: Callable[[], list[str]]
    log: Path
    variables: dict[str, str] = field(default_factory=dict)
    starts: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _held: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with self.log.open("ab") as log:
            while not self._over.is_set():
                if not self._held.is_set():
                    self.starts += 1
                    process = self.net.start(self.node, *self.command(), log=log, **self.variables)
                    while process.poll() is None and not self._over.wait(0.2):
                        pass
                    if self._over.is_set():
                        process.terminate()
                        process.wait()
                self._over.wait(RESTART_SECONDS)

    def hold(self) -> None:
        """Do not start it again for now."""
        self._held.set()

    def release(self) -> None:
        self._held.clear()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(120)


@dataclass(slots=True)
class Feeding:
    """Files that keep arriving, until told to stop."""

    folder: Path
    files: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        images = [picture(kind, 1) for kind in ("water", "forest")] * (ROWS // 2)
        self._thread = threading.Thread(target=self._work, args=(images,), daemon=True)
        self._thread.start()

    def _work(self, images: list[bytes]) -> None:
        while not self._over.wait(PAUSE):
            name = self.folder / f"{self.files:05d}.parquet"
            part = write_feed(
                name.with_name(f"_{name.name}"),
                ["water", "forest"] * (ROWS // 2),
                first_id=self.files * ROWS,
                source=f"cam-{self.files % 8}",
                images=images,
            )
            part.rename(name)
            self.files += 1

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    _thread: threading.Thread = field(default_factory=threading.Thread)


@dataclass(slots=True)
class Stage:
    """The machines, what runs on them, and the feed."""

    net: Network
    feeding: Feeding
    store: Store
    head: Supervised
    workers: list[Supervised]
    monitor: Supervised

    def committed(self) -> int:
        with self.store.reading() as tx:
            return int(sum(count.value for count in tx.counters.all("images")))


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    os.environ["CONCLAD_CACHE"] = str(folder / "cache")
    config: Config = config_for(folder)
    fit(config, [write_feed(folder / "labelled.parquet", ["water", "forest"] * 60)])
    with Network() as net, Store.open(folder / "state") as store:
        nodes = {name: net.add(name) for name in ("head", "one", "two", "monitor")}
        address = f"{nodes['head'].address}:{PORT}"

        def ray(node: Node, *arguments: str) -> Callable[[], list[str]]:
            def command() -> list[str]:
                return [
                    *(str(BIN / "ray"), "start", "--block", *arguments),
                    *(f"--node-ip-address={node.address}", f"--temp-dir={net.sockets}"),
                    *("--object-store-memory=100000000", "--disable-usage-stats"),
                ]

            return command

        head = Supervised(
            net,
            nodes["head"],
            ray(nodes["head"], "--head", f"--port={PORT}", "--num-cpus=0",
                "--include-dashboard=false"),
            folder / "head.log",
        )  # fmt: skip
        workers = [
            Supervised(
                net,
                nodes[name],
                ray(nodes[name], f"--address={address}", "--num-cpus=1"),
                folder / f"{name}.log",
            )
            for name in ("one", "two")
        ]
        settings = (
            "backbone.name=tiny", "backbone.engine=torch", f"feed.path={folder / 'feed'}",
            f"state.dir={folder / 'state'}", "run.embedders=2", "run.embedder_cpus=1",
            "metrics.enabled=false", "desk.enabled=false",
        )  # fmt: skip
        monitor = Supervised(
            net,
            nodes["monitor"],
            lambda: [
                str(ROOT / "deploy" / "docker" / "conclad-node"),
                *(str(BIN / "conclad"), "run", f"--config={folder / 'empty.yaml'}"),
                *(f"--set={setting}" for setting in settings),
            ],
            folder / "monitor.log",
            {
                "RAY_HEAD": address,
                "RAY_NODE_IP": nodes["monitor"].address,
                "CONCLAD_CACHE": str(folder / "cache"),
            },
        )
        feeding = Feeding(folder / "feed")
        parts = [head, *workers, monitor]
        try:
            for part in parts:
                part.start()
            feeding.start()
            yield Stage(net, feeding, store, head, workers, monitor)
        finally:
            feeding.stop()
            for part in reversed(parts):
                part.stop()


@dataclass(slots=True)
class Watching:
    """How many images had a verdict, and how many files there were, twice a second."""

    scene: Stage
    seen: list[tuple[float, int, int]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(default_factory=threading.Thread)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._over.wait(0.5):
            now = time.monotonic()
            self.seen.append((now, self.scene.committed(), self.scene.feeding.files))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def longest_pause(self, since: float) -> float:
        """The longest time without a further verdict."""
        longest, at, number = 0.0, since, -1
        for now, committed, _ in self.seen:
            if now >= since and committed != number:
                longest, at, number = max(longest, now - at), now, committed
        return longest

    def behind(self, since: float) -> float:
        """How long after this moment files were last waiting."""
        late = [now for now, done, files in self.seen if done < (files - SLACK) * ROWS]
        return max((now - since for now in late if now >= since), default=0.0)


def drill(name: str, fault: Callable[[Stage], None], *, after: float) -> None:
    """Let it run, hurt it, go on for a while, and count."""
    with tempfile.TemporaryDirectory(prefix="drill-") as place, stage(Path(place)) as scene:
        watching = Watching(scene)
        try:
            first = wait_for(lambda: scene.committed() > 0, PATIENCE, what="a first verdict")
            wait_for(lambda: keeps_up(scene), PATIENCE, what="keeping up with the feed")
            watching.start()
            hurt = time.monotonic()
            fault(scene)
            repaired = time.monotonic()
            # What has noticed nothing yet may do so now: Ray gives its nodes half a minute.
            time.sleep(after)
            wait_for(lambda: keeps_up(scene), PATIENCE, what="catching up")
            watching.stop()
            scene.feeding.stop()
            total = scene.feeding.files * ROWS
            wait_for(lambda: scene.committed() >= total, PATIENCE, what="the last verdict")
            lost, twice, errors = count(scene.store, total)
        except (TimeoutError, AssertionError):
            for log in sorted(Path(place).glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}")
            raise
        starts = {"monitor": scene.monitor.starts, "head": scene.head.starts}
        starts |= {f"worker {n}": worker.starts for n, worker in enumerate(scene.workers)}
        print(
            f"{name:<10} first verdict {first:.0f} s after the start; "
            f"fault {repaired - hurt:.0f} s long; "
            f"longest pause {watching.longest_pause(hurt):.0f} s, files waited until "
            f"{watching.behind(hurt):.0f} s after it began; {total} images: {lost} lost, "
            f"{twice} twice, {errors} errors in the store; started: "
            + ", ".join(f"{part} {n}x" for part, n in starts.items()),
            flush=True,
        )


def keeps_up(scene: Stage) -> bool:
    return scene.committed() >= (scene.feeding.files - SLACK) * ROWS


def count(store: Store, total: int) -> tuple[int, int, int]:
    images = [
        image
        for name in current(store.folder, "verdicts")
        for image in read_table(store.folder, name)["image_id"].to_pylist()
    ]
    expected = {f"{number:06d}" for number in range(total)}
    errors = sum(finding.severity == "error" for finding in check(store))
    return len(expected - set(images)), len(images) - len(set(images)), errors


def kill_worker(scene: Stage) -> None:
    victim = scene.workers[0]
    victim.hold()
    scene.net.kill(victim.node)
    time.sleep(10)  # a machine does not come back at once
    scene.net.boot(victim.node)
    victim.release()


def kill_head(scene: Stage) -> None:
    scene.head.hold()
    scene.net.kill(scene.head.node)
    time.sleep(10)
    scene.net.boot(scene.head.node)
    scene.head.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", help="worker, head, partition; all without any")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the cable is out")
    parser.add_argument("--after", type=float, default=120.0, help="how long to go on afterwards")
    arguments = parser.parse_args()

    def partition(scene: Stage) -> None:
        scene.net.cut(scene.workers[0].node)
        time.sleep(arguments.seconds)
        scene.net.mend(scene.workers[0].node)

    drills = {"worker": kill_worker, "head": kill_head, "partition": partition}
    if os.geteuid() != 0:
        print("bench/drill.py needs root for network namespaces; nothing was measured")
        return
    for name in arguments.which or drills:
        drill(name, drills[name], after=arguments.after)


if __name__ == "__main__":
    main()
