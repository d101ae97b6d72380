"""The inner loop as a conversation: questions, probes, budgets, and the update that it ends in."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.drift.adaptation import adapt
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.errors import DuplicateClass
from monitor.novelty.inner_loop import QuestionsToAsk, Update, drive, inner_loop
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.pool_graph import PoolSpace
from monitor.novelty.presets import preset_settings
from monitor.novelty.robust.class_posterior import SecondOpinion, Standardisation
from monitor.novelty.robust.pool_belief import shifted_answers
from monitor.novelty.robust.robust_settings import RobustSettings
from tests.novelty.worlds import BackboneWorld, World, name

KNOWN = 3
PRESETS = ("robust", "paper")


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module", params=PRESETS)
def detector(request: pytest.FixtureRequest, world: World) -> Detector:
    return world.detector(KNOWN, settings=preset_settings(request.param))


@pytest.fixture(scope="module")
def drawn(world: World) -> tuple[Floats, list[str]]:
    return world.pool({0: 40, 1: 40, 2: 40, 3: 30, 4: 20})


def conversation(
    detector: Detector, pool: Floats, labels: list[str], budget: int, **options: int
) -> tuple[list[QuestionsToAsk], Update]:
    questions = []
    loop = inner_loop(detector, pool, budget=budget, **options)
    try:
        question = next(loop)
        while True:
            questions.append(question)
            question = loop.send([labels[int(i)] for i in question.samples])
    except StopIteration as stop:
        return questions, stop.value


def test_questions_come_in_rounds_with_a_suggestion_for_each(
    detector: Detector, drawn: tuple[Floats, list[str]]
) -> None:
    pool, labels = drawn
    questions, update = conversation(detector, pool, labels, 12)
    assert len(questions) > 1
    assert [q.round for q in questions] == sorted({q.round for q in questions})
    for question in questions:
        assert len(question.suggestions) == len(question.samples)
    assert all(s is None for s in questions[0].suggestions)
    known = {c.name for c in detector.classes} | {name(3), name(4)}
    later = [s for q in questions[1:] for s in q.suggestions]
    assert set(later) <= known
    assert update.labels == sum(len(q.samples) for q in questions) <= 12


def test_suggestions_get_better_than_chance(drawn: tuple[Floats, list[str]], world: World) -> None:
    pool, labels = drawn
    questions, _ = conversation(world.detector(KNOWN), pool, labels, 30)
    last = questions[-1]
    right = [s == labels[i] for s, i in zip(last.suggestions, last.samples, strict=True)]
    assert np.mean(right) > 0.7


def test_every_round_is_on_record(detector: Detector, drawn: tuple[Floats, list[str]]) -> None:
    pool, labels = drawn
    questions, update = conversation(detector, pool, labels, 12)
    asked = [r for r in update.rounds if r.asked]
    assert [r.asked for r in asked] == [tuple(q.samples.tolist()) for q in questions]
    assert all(r.answers == tuple(labels[i] for i in r.asked) for r in asked)
    assert all(r.t_inner > 0 or isinstance(detector.settings, PaperSettings) for r in update.rounds)


def test_robust_has_no_round_without_a_question(
    drawn: tuple[Floats, list[str]], world: World
) -> None:
    pool, labels = drawn
    _, update = conversation(world.detector(KNOWN), pool, labels, 12)
    assert update.outcome == "discovered"
    assert all(r.asked for r in update.rounds)


def test_a_probe_that_finds_nothing_ends_at_once(detector: Detector, world: World) -> None:
    clean, labels = world.pool({0: 60, 1: 60, 2: 60}, seed=1)
    questions, update = conversation(detector, clean, labels, 20, probe=3)
    assert len(questions) <= 1
    assert update.labels <= 3
    assert update.discoveries == ()


def test_a_probe_that_finds_something_goes_on_with_the_budget(
    detector: Detector, drawn: tuple[Floats, list[str]]
) -> None:
    pool, labels = drawn
    questions, update = conversation(detector, pool, labels, 20, probe=3)
    assert len(questions[0].samples) == 3
    assert update.outcome == "discovered"
    assert 3 < update.labels <= 20


def test_a_probe_larger_than_the_budget_asks_the_budget(world: World) -> None:
    pool, labels = world.pool({0: 30, 3: 30})
    questions, update = conversation(world.detector(KNOWN), pool, labels, 2, probe=5)
    assert len(questions) == 1
    assert update.labels == 2


def test_another_seed_may_ask_otherwise_and_the_same_one_does_not(
    drawn: tuple[Floats, list[str]], world: World
) -> None:
    pool, labels = drawn
    detector = world.detector(KNOWN, settings=RobustSettings(query="random"))
    first, again, other = (
        conversation(detector, pool, labels, 12, seed=seed)[0][0].samples.tolist()
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_the_update_gives_ids_that_nobody_has(world: World) -> None:
    pool, labels = world.pool({0: 40, 3: 40, 4: 40})
    detector = world.detector(KNOWN)
    update = drive(inner_loop(detector, pool, budget=15), lambda i: labels[i])
    assert [d.name for d in update.discoveries] == [name(3), name(4)]
    assert [c.id for c in update.apply(detector, pool).classes[KNOWN:]] == ["c4", "c5"]
    chosen = update.apply(detector, pool, ids=["x7", "x8"])
    assert [c.id for c in chosen.classes[KNOWN:]] == ["x7", "x8"]
    without = detector.without_class(name(2)).with_classes([])
    assert [c.id for c in update.apply(without, pool).classes[2:]] == ["c3", "c4"]
    with pytest.raises(DuplicateClass, match="c1"):
        update.apply(detector, pool, ids=["c1", "c9"])


def test_a_discovery_holds_named_samples_first_and_no_sample_twice(world: World) -> None:
    pool, labels = world.pool({0: 40, 3: 40, 4: 40})
    update = drive(inner_loop(world.detector(KNOWN), pool, budget=15), lambda i: labels[i])
    for discovery in update.discoveries:
        assert discovery.samples[: len(discovery.human)] == list(discovery.human)
        assert len(set(discovery.samples)) == len(discovery.samples)
    both = [set(d.samples) for d in update.discoveries]
    assert not both[0] & both[1]


def test_what_may_have_been_missed_shrinks_with_answers() -> None:
    world = World(seed=5)
    clean, labels = world.pool({0: 60, 1: 60, 2: 60}, seed=1)
    detector = world.detector(KNOWN)
    found = []
    for budget in (2, 4, 7):
        update = drive(inner_loop(detector, clean, budget=budget), lambda i: labels[i])
        assert update.missed is not None
        assert (1 - update.missed) ** budget == pytest.approx(0.05)
        found.append(update.missed)
    assert found == sorted(found, reverse=True)


def test_people_who_cannot_tell_teach_nothing(world: World) -> None:
    pool, _ = world.pool({0: 30, 3: 30})
    update = drive(inner_loop(world.detector(KNOWN), pool, budget=10), lambda i: None)
    assert update.discoveries == ()
    assert update.known == {}
    assert update.missed is None, "nothing was learnt about what may be missed"


def test_two_names_for_the_same_thing_are_two_classes_as_people_say(world: World) -> None:
    pool, labels = world.pool({0: 40, 1: 40, 3: 60})
    detector = world.detector(KNOWN)
    update = drive(
        inner_loop(detector, pool, budget=20),
        lambda i: labels[i] if labels[i] != name(3) else ("odd" if i % 2 else "even"),
    )
    assert {d.name for d in update.discoveries} == {"odd", "even"}


class Discriminant:
    """Two known classes and a new one in a space of their own."""

    def __init__(self) -> None:
        self.world = BackboneWorld(seed=4)
        self.detector = Detector.fit(*self.world.labelled(range(2), 80))
        references = self.detector.references
        self.pool = np.concatenate([self.world.draw(i, 60) for i in range(3)])
        self.space = PoolSpace.of(
            self.pool, references.features, references.classes, self.detector.settings.graph
        )
        self.shares = np.repeat(np.eye(3), 60, axis=0)


def test_the_second_opinion_tells_new_from_known() -> None:
    case = Discriminant()
    points = case.space.place(case.pool).astype(np.float64)
    opinion = SecondOpinion.fit(case.space, points, case.shares, case.detector.classes, 0.1)
    odds = opinion(np.concatenate([case.world.draw(i, 80) for i in range(3)]))
    assert (odds[160:] > 0).mean() > 0.9
    assert (odds[:160] < 0).mean() > 0.9


def test_a_doubtful_sample_teaches_a_little() -> None:
    case = Discriminant()
    points = case.space.place(case.pool).astype(np.float64)
    wrong = case.shares.copy()
    wrong[:6] = (0, 0, 1)
    doubtful = case.shares.copy()
    doubtful[:6] = (0.8, 0, 0.2)
    test = case.world.draw(0, 80)
    means = [
        SecondOpinion.fit(case.space, points, shares, case.detector.classes, 0.1)(test).mean()
        for shares in (case.shares, doubtful, wrong)
    ]
    assert means == sorted(means)


def test_standardised_values_have_mean_zero_and_spread_one() -> None:
    values = np.random.default_rng(0).normal(5, 3, 400)
    standard = Standardisation.of(values)
    assert standard(values).mean() == pytest.approx(0, abs=1e-9)
    assert standard(values).std() == pytest.approx(1)
    assert Standardisation.of(np.full(4, 2.0)).std == 1.0, (
        "what never varies is not divided by zero"
    )


@pytest.mark.parametrize(("few", "moved"), [(3, True), (2, False)])
def test_of_few_classes_the_shift_is_believed_unless_they_point_apart(
    few: int, moved: bool
) -> None:
    """Three displacements whose mean cosine is three hundredths."""
    rng = np.random.default_rng(0)
    features = np.concatenate([rng.normal(m, 1, size=(60, 40)) for m in (0, 20, 40)]).astype("f")
    detector = Detector.fit(features, sorted("abc" * 60))
    classes = np.repeat(range(3), 60)
    axes = np.eye(40, dtype=np.float32) * 12
    common = np.float32(0.03 / 0.97) ** np.float32(0.5)
    pool = features + np.stack([axes[5 + c] + common * axes[9] for c in classes])
    settings = RobustSettings(shift_few=few, shift_agreement=0.5)
    space = PoolSpace.of(pool, features, classes, settings.graph)
    shares, said = np.repeat(np.eye(3), 60, axis=0), {0: 0, 60: 1, 120: 2}
    found = shifted_answers(detector, space, pool, shares, said, settings)
    assert bool(found) is moved


@pytest.mark.parametrize("furthest", [0.01, 50.0])
def test_what_is_refused_says_why(world: World, furthest: float) -> None:
    detector = world.detector(KNOWN)
    pool = np.concatenate([world.draw(0, 60), world.draw(1, 60)]) + np.float32(1.5)
    sketch = Sketch.of(detector, DriftSettings(furthest=furthest))
    found = adapt(sketch, pool, {0: 0, 60: 1})
    for position, known in enumerate(detector.classes):
        if known.id in found.refused:
            assert "allowed" in found.refused[known.id] or "no sample" in found.refused[known.id]
            assert len(found.detector.classes[position].modes) == 1
    assert bool(found.adapted) is (furthest > 1)
