"""Lessons of the gallery in any order, repeated and taken back: what is known stays right."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from monitor.config.schema import GateSection
from monitor.images.image_identity import image_key
from monitor.people.errors import NotPossible
from monitor.people.teach_images import call_no_image, called_no_image, teach, unteach
from monitor.people.version_manifest import current_knowledge
from monitor.store import Store, check
from tests.desk import gallery_world

IMAGES, NOVEL = 60, 36
OPEN_GATE = GateSection(stolen_most=1.0, false_novel_most=1.0)
PEOPLE = st.sampled_from(["ada", "bob"])
ROWS = st.sets(st.integers(0, NOVEL - 1), min_size=1, max_size=4)
NAMES = st.sampled_from(["dune", "snow", "water"])


@dataclass(frozen=True)
class Taught:
    """One lesson that stands, and how many images people have named by class after it."""

    action: str
    who: str
    human: dict[str, int]


class Gallery(RuleBasedStateMachine):
    """A model in a few lists beside the real store."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        shutil.copytree(_mould(), self.folder / "state")
        self.store = Store.open(self.folder / "state")
        self.lessons: list[Taught] = []
        self.aside: dict[str, tuple[str, set[str]]] = {}
        self.number = 0

    def _action(self, word: str) -> str:
        self.number += 1
        return f"{word}-{self.number:06d}"

    def _keys(self, rows: set[int]) -> list[tuple[str, str]]:
        return [(f"cam-{row % 3 + 1}", f"{row:05d}") for row in sorted(rows)]

    @property
    def human(self) -> dict[str, int]:
        return self.lessons[-1].human if self.lessons else {}

    @rule(who=PEOPLE, rows=ROWS, name=NAMES)
    def name(self, who: str, rows: set[int], name: str) -> None:
        action = self._action("lesson")
        keys = self._keys(rows)
        done = teach(self.store, keys, name, who=who, action=action, gate=OPEN_GATE, seed=0)
        again = teach(self.store, keys, name, who=who, action=action, gate=OPEN_GATE, seed=0)
        assert (again.version, again.human) == (done.version, done.human)
        human = {**self.human, name: self.human.get(name, 0) + len(rows)}
        self.lessons.append(Taught(action, who, human))

    @rule(who=PEOPLE, rows=ROWS)
    def call_blank(self, who: str, rows: set[int]) -> None:
        action = self._action("blank")
        keys = self._keys(rows)
        for _ in range(2):
            call_no_image(self.store, keys, who=who, action=action)
        taken = set().union(*(images for _, images in self.aside.values()))
        self.aside[action] = (who, {image_key(*key).hex() for key in keys} - taken)

    @precondition(lambda self: self.lessons)
    @rule(who=PEOPLE, data=st.data())
    def take_back_a_lesson(self, who: str, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.lessons))
        if one.who != who or one is not self.lessons[-1]:
            with pytest.raises(NotPossible):
                unteach(self.store, one.action, who=who, action=self._action("undo"))
            return
        unteach(self.store, one.action, who=who, action=self._action("undo"))
        self.lessons.pop()

    @precondition(lambda self: self.aside)
    @rule(data=st.data())
    def take_back_a_blank(self, data: st.DataObject) -> None:
        action = data.draw(st.sampled_from(sorted(self.aside)))
        who, images = self.aside.pop(action)
        if not images:
            with pytest.raises(NotPossible):
                unteach(self.store, action, who=who, action=self._action("undo"))
            return
        unteach(self.store, action, who=who, action=self._action("undo"))

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = Store.open(self.folder / "state")

    @invariant()
    def what_is_known_is_what_was_taught(self) -> None:
        known = {one.name: one.human for one in current_knowledge(self.store).classes.values()}
        assert {name: count for name, count in known.items() if count} == self.human
        assert set(known) == {"forest", "water", *self.human}

    @invariant()
    def what_is_aside_is_what_was_called_blank(self) -> None:
        with self.store.reading() as tx:
            assert called_no_image(tx) == set().union(
                *(images for _, images in self.aside.values())
            )

    def teardown(self) -> None:
        try:
            assert [one for one in check(self.store) if one.severity == "error"] == []
        finally:
            self.store.close()
            shutil.rmtree(self.folder)


_MADE: list[Path] = []


def _mould() -> Path:
    """Made once and copied."""
    if not _MADE:
        folder = Path(tempfile.mkdtemp()) / "state"
        gallery_world.make(folder, images=IMAGES, novel=NOVEL)
        _MADE.append(folder)
    return _MADE[0]


TestGallery = Gallery.TestCase
TestGallery.settings = settings(max_examples=12, stateful_step_count=8, deadline=None)
