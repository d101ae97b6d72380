"""The demo's folder: its configuration, and what an earlier demo left there."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from monitor.config import Config, load
from monitor.config.load import Loaded
from monitor.demo.errors import FolderTaken
from monitor.demo.story import POOLS, Story
from monitor.demo.story_files import FEED, LABELLED

CONFIG = "ray_config.yaml"
STATE = "state"
LOG = "run.log"
PICTURE = "timeline.png"
RESULT = "result.json"
PLAN = "images.json"

BUDGET = 0.03
"""Of each pool. More than the product's default, because the demo's pools are small: a few
questions are needed to meet a class at all."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where everything lies.

    >>> DemoFolder(Path("demo")).config_file.as_posix()
    'demo/ray_config.yaml'
    """

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG

    @property
    def labelled(self) -> Path:
        return self.path / LABELLED

    @property
    def feed(self) -> Path:
        return self.path / FEED

    @property
    def state(self) -> Path:
        return self.path / STATE

    @property
    def log(self) -> Path:
        return self.path / LOG

    @property
    def plan(self) -> Path:
        return self.path / PLAN

    @property
    def picture(self) -> Path:
        return self.path / PICTURE

    @property
    def result(self) -> Path:
        return self.path / RESULT

    def prepare(self, of: Mapping[str, Any], *, keep: bool) -> bool:
        """Make the folder; whether it holds the images of this very demo already.

        What an earlier demo left there is removed, unless it is to be kept. ``of`` is what the
        images depend on.
        """
        if self.path.exists() and any(self.path.iterdir()) and not self.config_file.exists():
            raise FolderTaken(
                f"{self.path}: holds files that are not a demo's; name another folder with --dir"
            )
        if keep and self.plan.exists():
            if json.loads(self.plan.read_text()) != of:
                raise FolderTaken(
                    f"{self.path}: holds a demo of other images; name another folder with --dir, "
                    "or replace it by leaving out --keep"
                )
            return True
        for mine in (self.feed, self.state):
            shutil.rmtree(mine, ignore_errors=True)
        for file in (self.plan, self.labelled, self.log, self.picture, self.result):
            file.unlink(missing_ok=True)
        self.path.mkdir(parents=True, exist_ok=True)
        return False

    def note_images(self, of: Mapping[str, Any]) -> None:
        """All images are there: the next demo with --keep may use them."""
        self.plan.write_text(json.dumps(of) + "\n")

    def configure(self, story: Story, *, seed: int) -> Loaded:
        """Write the configuration of the demo and load it as any command would."""
        defaults = Config()
        chosen: dict[str, dict[str, Any]] = {
            "feed": {"path": str(self.feed.resolve())},
            "state": {"dir": str(self.state.resolve())},
            "fit": {"seed": seed},
            "run": {"seed": seed},
            "pools": {"size": story.images // POOLS},
            "labels": {"budget": BUDGET, "least": 4},
            "desk": {"port": free_port(defaults.desk.port)},
            "metrics": {"port": free_port(defaults.metrics.port)},
        }
        note = "# Written by 'conclad demo'; every other key has its default.\n"
        self.config_file.write_text(note + yaml.safe_dump(chosen, sort_keys=False))
        return load(self.config_file)


def free_port(preferred: int) -> int:
    """The preferred port of this machine if nobody listens there, else any free one."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return 0
