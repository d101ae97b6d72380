"""Whatever people do on the desk, at whatever moment of a pool: the monitor goes on.

The real store, the real pipeline and the real actions, in an order that Hypothesis chooses, while
pools fill, wait, are asked about and are held. After each sequence everybody answers, and every
pool must come to an end. ``bench.faults --only people`` does it many more times.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import actors.coordinator
from actors.coordinator import Coordinator
from actors.coordinator_lease import acquire_lease
from actors.periodic_tasks import PeriodicTasks
from actors.run_monitor import run
from actors.worker_pool import InlineWorkerPool
from monitor.config import Config
from monitor.errors import ConcladError
from monitor.people.answer_questions import Fate, Said, Word, give, take_back_last
from monitor.people.class_corrections import merge, rename, retire
from monitor.people.exchange.parsed_answers import Parsed, take_in
from monitor.people.review_pseudo_labels import assigned_to, mark_wrong
from monitor.people.teach_images import call_no_image, teach, unteach
from monitor.people.undo_change import undo_change
from monitor.people.version_history import refuse, release, rollback
from monitor.store import Store, check
from monitor.store.counters_and_image_account import account
from monitor.store.pool_transitions import FINISHED_POOLS, PoolState
from monitor.store.record_states import VersionState
from monitor.store.records import Question
from monitor.store.source_purge import purge
from tests.actors.crashing import at
from tests.actors.story import CHAPTERS, KINDS, expected_ids, tell_story
from tests.actors.test_monitor import changed
from tests.jobs.feeds import write_feed

PICK = st.integers(0, 99)
#: Turns after which a pool that has all its answers must have ended.
TURNS_MOST = 400
#: What a file brings that comes later: a third of a pool.
MORE = "wfss" * 5


def truth(question: Question) -> str:
    """What is on the picture, by the image's number."""
    told, number = "".join(CHAPTERS), int(question.image_id)
    return KINDS[told[number] if number < len(told) else MORE[(number - len(told)) % len(MORE)]]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The story's feed is through; one pool waits for people, others wait behind it."""
    folder = tmp_path_factory.mktemp("story")
    config = tell_story(folder).config
    run(config, once=True)
    return config


class Desk(RuleBasedStateMachine):
    """People who do what they like, and a monitor that takes a few turns now and then."""

    begun: Config

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        shutil.copytree(self.begun.state.dir, self.folder / "state")
        shutil.copytree(self.begun.feed.path, self.folder / "feed")
        self.config = changed(
            at(self.begun, self.folder / "state"), "feed", path=str(self.folder / "feed")
        )
        self.store = Store.open(self.config.state.dir)
        self.numbers = iter(range(1_000_000))
        self.accepted: list[int] = []
        self.taken_back = 0
        self.operations: list[str] = []
        self.lessons: list[str] = []
        self.files = 0
        self.workers = InlineWorkerPool(self.config)
        self.fingerprint = self.workers.start()
        self.lease = acquire_lease(self.store)
        with self.store.reading() as tx:
            self.before = sum(tx.answers.count_by_kind().values())
        self.begin()

    def begin(self) -> None:
        """A monitor that knows nothing but what the store says, as after a crash."""
        self.workers.forget()
        self.monitor = Coordinator(
            self.store,
            self.config,
            self.workers,
            self.lease,
            self.fingerprint,
            periodic=PeriodicTasks(self.store, self.config, self.workers, self.lease),
        )

    def action(self) -> str:
        return f"a{next(self.numbers)}"

    # -- the monitor ------------------------------------------------------------------------

    @initialize()
    def look_first(self) -> None:
        self.turn(2)

    @rule(count=st.integers(1, 8))
    def turn(self, count: int) -> None:
        for _ in range(count):
            self.monitor.turn()

    @rule()
    def restart(self) -> None:
        self.begin()

    @rule()
    def bring_images(self) -> None:
        """A third of a pool: with what follows, one fills while people do what they do."""
        first = len(expected_ids()) + self.files * len(MORE)
        path = self.folder / "feed" / f"later-{self.files:03d}.parquet"
        hidden = path.with_name(f".{path.name}")
        write_feed(hidden, [KINDS[letter] for letter in MORE], first_id=first).rename(path)
        self.files += 1

    # -- people -----------------------------------------------------------------------------

    def open_questions(self) -> list[Question]:
        with self.store.reading() as tx:
            return tx.questions.list_open()

    def classes(self) -> list[str]:
        with self.store.reading() as tx:
            return [row.id for row in tx.classes.living()]

    def count(self, receipts: list[Any]) -> None:
        self.accepted += [r.question_id for r in receipts if r.fate is Fate.ACCEPTED]

    @rule(pick=PICK, how=st.sampled_from(["truth", "class", "new", "cannot tell", "bad"]))
    def answer(self, pick: int, how: str) -> None:
        if not (questions := self.open_questions()):
            return
        question, classes = questions[pick % len(questions)], self.classes()
        said = {
            "truth": Said(question.id, Word.CLASS, truth(question)),
            "class": Said(question.id, Word.CLASS, classes[pick % len(classes)]),
            "new": Said(question.id, Word.CLASS, f"thing {pick % 3}"),
            "cannot tell": Said(question.id, Word.CANNOT_TELL),
            "bad": Said(question.id, Word.BAD_IMAGE),
        }[how]
        self.count(give(self.store, [said], who="ada", action=self.action()))

    @rule()
    def answer_the_whole_round(self) -> None:
        said = [
            Said(question.id, Word.CLASS, truth(question)) for question in self.open_questions()
        ]
        self.count(give(self.store, said, who="bob", action=self.action()))

    @rule(pick=PICK)
    def bring_answers_in_a_file(self, pick: int) -> None:
        said = [
            (f"line {q.id}", Said(q.id, Word.CLASS, truth(q))) for q in self.open_questions()[:2]
        ]
        found = take_in(self.store, Parsed(tuple(said)), who="cleo", content=self.action().encode())
        self.count([receipt for _, receipt in found.receipts])

    @rule()
    def undo(self) -> None:
        with suppress(ConcladError):
            self.taken_back += len(take_back_last(self.store, who="ada", action=self.action()))

    @rule(pick=PICK)
    def rename(self, pick: int) -> None:
        classes = self.classes()
        with suppress(ConcladError):
            rename(
                self.store,
                classes[pick % len(classes)],
                f"name {pick}",
                who="ada",
                operation=self.operation(),
            )

    @rule(pick=PICK, other=PICK)
    def merge(self, pick: int, other: int) -> None:
        classes = self.classes()
        one, into = classes[pick % len(classes)], classes[other % len(classes)]
        with suppress(ConcladError):
            merge(self.store, [one], into, who="ada", operation=self.operation())

    @rule(pick=PICK)
    def retire(self, pick: int) -> None:
        classes = self.classes()
        with suppress(ConcladError):
            retire(
                self.store,
                classes[pick % len(classes)],
                who="ada",
                operation=self.operation(),
            )

    def operation(self) -> str:
        self.operations.append(self.action())
        return self.operations[-1]

    @rule(pick=PICK)
    def take_a_correction_back(self, pick: int) -> None:
        if self.operations:
            with suppress(ConcladError):
                undo_change(self.store, self.operations[-1 - pick % len(self.operations)], who="x")

    @rule(pick=PICK, how=st.sampled_from(["class", "new", "no image"]))
    def teach_images(self, pick: int, how: str) -> None:
        """As from the gallery, questions that are open among them."""
        classes = self.classes()
        asked = [(q.source_id, q.image_id) for q in self.open_questions()]
        number = f"{pick % len(expected_ids()):06d}"
        images = [*asked[pick % 3 :][:2], ("cam-1", number), ("cam-2", number)]
        self.lessons.append(self.action())
        with suppress(ConcladError):
            if how == "no image":
                call_no_image(self.store, images, who="ada", action=self.lessons[-1])
                return
            teach(
                self.store,
                images,
                f"thing {pick % 3}" if how == "new" else classes[pick % len(classes)],
                who="ada",
                action=self.lessons[-1],
                gate=self.config.gate,
                seed=0,
            )

    @rule()
    def take_a_lesson_back(self) -> None:
        if self.lessons:
            with suppress(ConcladError):
                unteach(self.store, self.lessons.pop(), who="ada", action=self.action())

    @rule(pick=PICK)
    def contradict(self, pick: int) -> None:
        classes = self.classes()
        wrong = assigned_to(self.store, classes[pick % len(classes)])[:1]
        with suppress(ConcladError):
            mark_wrong(
                self.store, classes[pick % len(classes)], [one.key for one in wrong], who="ada"
            )

    @rule(pick=PICK)
    def roll_back(self, pick: int) -> None:
        with self.store.reading() as tx:
            versions = tx.versions.all()
        with suppress(ConcladError):
            rollback(self.store, versions[pick % len(versions)].number, who="ada")

    @rule(kind=st.sampled_from(["release", "refuse"]))
    def decide_about_a_held_version(self, kind: str) -> None:
        with self.store.reading() as tx:
            held = [v.number for v in tx.versions.all() if v.state is VersionState.HELD]
        if not held:
            return
        with suppress(ConcladError):
            if kind == "release":
                release(self.store, held[0], who="ada")
            else:
                refuse(self.store, held[0], who="ada", reason="no")

    @rule(pick=PICK)
    def purge_a_source(self, pick: int) -> None:
        with suppress(ConcladError):
            purge(
                self.store,
                f"cam-{1 + pick % 2}",
                before=datetime(2000 + pick % 60, 1, 1, tzinfo=UTC),
            )

    # -- the end ----------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            self.store.close()
            shutil.rmtree(self.folder)

    def finish(self) -> None:
        """Everybody answers, every held version is decided: then every pool ends."""
        for _ in range(TURNS_MOST):
            self.monitor.turn()
            self.answer_the_whole_round()
            self.decide_about_a_held_version("release")
            self.decide_about_a_held_version("refuse")
            with self.store.reading() as tx:
                states = tx.counts.pools_by_state()
                judged = sum(c.value for c in tx.counters.all("images"))
            if judged < len(expected_ids()) + self.files * len(MORE):
                continue
            if not set(states) - FINISHED_POOLS - {PoolState.FILLING}:
                break
        else:
            pytest.fail(f"pools hang: {states}")
        with self.store.reading() as tx:
            kept = sum(tx.answers.count_by_kind().values()) - self.before
            lost = [number for number in self.accepted if not tx.answers.of_question(number)]
            assert account(tx).unaccounted == 0
            judged = sum(c.value for c in tx.counters.all("images"))
            aside = tx.counts.quarantined()
        assert lost == [], "an answer was lost"
        assert kept >= len(self.accepted) + self.taken_back, "an answer was lost"
        assert judged == len(expected_ids()) + self.files * len(MORE), "an image was lost"
        assert aside == {"files": 0, "batches": 0, "images": 0}
        errors = [finding for finding in check(self.store) if finding.severity == "error"]
        assert errors == []


@pytest.mark.parametrize("stolen", [0.5, 0.0], ids=["published", "held"])
def test_nothing_that_people_do_stops_the_monitor(
    begun: Config, monkeypatch: pytest.MonkeyPatch, stolen: float
) -> None:
    """With a gate that publishes what was learnt, and with one that holds most of it."""
    at_random(begun, monkeypatch, stolen, examples=6, steps=14)


def at_random(
    begun: Config, patch: pytest.MonkeyPatch, stolen: float, *, examples: int, steps: int
) -> None:
    patch.setattr(actors.coordinator, "TURN_SECONDS", 0.0)
    patch.setattr(actors.coordinator, "STORE_SECONDS", 0.0)
    gate = changed(begun, "gate", stolen_most=stolen, false_novel_most=stolen)
    machine = type("Desk", (Desk,), {"begun": gate})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_class_is_renamed_while_a_pool_waits_between_rounds(
    begun: Config, tmp_path: Path
) -> None:
    """The round after it is asked about the class under its new name."""
    shutil.copytree(begun.state.dir, tmp_path / "state")
    config = at(begun, tmp_path / "state")
    for action, gone in (("rename", {"forest"}), ("merge", {"forest", "Highway"})):
        with Store.open(config.state.dir) as store:
            if action == "rename":
                rename(store, "c1", "Highway", who="ada")
            else:
                merge(store, ["c1"], "c2", who="ada")
            with store.reading() as tx:
                questions = tx.questions.list_open()
            give(
                store,
                [Said(q.id, Word.CLASS, truth(q)) for q in questions if truth(q) == "sand"],
                who="ada",
                action=f"x-{action}",
            )
            give(store, [Said(q.id, Word.CANNOT_TELL) for q in questions], who="ada", action=action)
        run(config, once=True)
        with Store.open(config.state.dir) as store, store.reading() as tx:
            shown = {str(question.suggestion.get("name")) for question in tx.questions.list_open()}
            assert shown
            assert shown.isdisjoint(gone)
