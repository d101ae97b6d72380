#!/usr/bin/env python3
"""The first hour of a new user, by the commands of the README: from JPEGs to a learnt class.

    scripts/first_hour.py FOLDER [--small]

Draws pictures of two cameras, brings them into a feed, learns two classes from class folders,
watches the feed, answers at the desk, and ends with 0 once a class is learnt that nobody had
labelled. `--small` takes few pictures, the tiny backbone and no Ray: minutes become seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from monitor.demo.scenes.catalog import jpeg, render

KNOWN, NEW = ("water", "forest"), "snow"
# The tiny backbone tells colours apart and little else, and few pictures make small pools.
SMALL = {
    "backbone.name": "tiny",
    "backbone.engine": "torch",
    "run.address": "none",
    "pools.size": "120",
    "pools.least": "20",
    "labels.budget": "0.2",
    "novelty.settings": "{least: 4}",
    "gate.false_novel_most": "0.5",
    "gate.stolen_most": "0.5",
    "feed.batch_rows": "32",
}
LEARNT_SECONDS = 240.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true", help="few pictures, the tiny backbone")
    parser.add_argument("--port", type=int, default=8484, help="of the desk; metrics next to it")
    chosen = parser.parse_args()
    folder: Path = chosen.folder
    labelled, pictures = (60, 120) if chosen.small else (100, 1000)
    draw(folder, labelled=labelled, pictures=pictures)

    settings = {"feed.path": "feed", "desk.port": str(chosen.port)}
    settings |= {"metrics.port": str(chosen.port + 1), **(SMALL if chosen.small else {})}
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    began = time.monotonic()
    ingested = json.loads(conclad(folder, "ingest", "pictures", "--to", "feed", "--json"))
    assert ingested["images"] == 2 * pictures, ingested
    assert set(ingested["sources"]) == {"cam-1", "cam-2"}, ingested
    say(f"ingested {ingested['images']} images of two sources", began)
    say(conclad(folder, "fit", "--data", "labelled", *flags), began)
    say(conclad(folder, "run", "--once", *flags), began)

    watching = subprocess.Popen([*program(), "run", *flags], cwd=folder)
    try:
        answered = answer_until_learnt(folder, chosen.port, flags)
    finally:
        watching.send_signal(signal.SIGTERM)
        watching.wait(60)
    say(conclad(folder, "status", *flags), began)
    say(f"{NEW!r} is learnt after {answered} answers at the desk", began)
    return 0


def draw(folder: Path, *, labelled: int, pictures: int) -> None:
    """Class folders, and a folder for each camera; the second sees something new half way."""
    rng = random.Random(0)
    for name in KNOWN:
        for number in range(labelled):
            put(folder / f"labelled/{name}/{number:04d}.jpg", name, number)
    for camera, source in enumerate(("cam-1", "cam-2")):
        for number in range(pictures):
            is_new = camera == 1 and number > pictures // 2 and rng.random() < 0.5
            kind = NEW if is_new else rng.choice(KNOWN)
            seed = 10_000 * (camera + 1) + number
            put(folder / f"pictures/{source}/{number:04d}-{kind}.jpg", kind, seed)


def put(path: Path, kind: str, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jpeg(render(kind, (seed,))))


def answer_until_learnt(folder: Path, port: int, flags: list[str]) -> int:
    """What a person does at the desk: looks at each question and names what they see."""
    desk, answered = f"http://127.0.0.1:{port}", 0
    deadline = time.monotonic() + LEARNT_SECONDS
    while time.monotonic() < deadline:
        try:
            questions = call(f"{desk}/api/questions")["questions"]
        except OSError:  # the desk is not up yet
            questions = []
        answers = [
            # The picture's file is named by what it shows, which stands for a person's eyes.
            {"question_id": q["question_id"], "answer": "class", "class": seen(q["image_id"])}
            for q in questions
        ]
        if answers:
            call(f"{desk}/api/answers", {"action": uuid.uuid4().hex, "answers": answers})
            answered += len(answers)
        classes = json.loads(conclad(folder, "classes", "--json", *flags))
        if any(one["name"] == NEW and one["created_in"] for one in classes):
            return answered
        time.sleep(1)
    raise SystemExit(f"{NEW!r} was not learnt within {LEARNT_SECONDS:.0f} s")


def seen(image_id: str) -> str:
    return image_id.rpartition("-")[2].partition(".")[0]


def call(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def conclad(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*program(), *arguments], cwd=folder, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"conclad {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def program() -> list[str]:
    """The command as it is installed beside this Python, else the module."""
    beside = Path(sys.executable).with_name("conclad")
    is_other = "PYTHONPATH" in os.environ  # a tree that is not the installed one
    return [sys.executable, "-m", "monitor.cli"] if is_other or not beside.exists() else [beside]


def say(text: str, began: float) -> None:
    print(f"[{time.monotonic() - began:.0f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
