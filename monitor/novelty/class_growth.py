"""Classes that go on learning: what a settled pool teaches the classes that it shows.

People's answers always count, and what people labelled is never forgotten. Samples that nobody was
asked about teach a discovered class until it has as many as a good fit has, if both the pool and
the verdict on the single sample give them to it; they may not move its mean far from what people
labelled, so that a class cannot be walked into another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from monitor.novelty.array_types import Bools, Floats, Ints
from monitor.novelty.confirmed_classes import is_doubted
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.settled_verdicts import SettledVerdicts


@dataclass(frozen=True, slots=True)
class GrownClass:
    """What one class learnt: samples of the pool, named by people and by the detector itself."""

    id: str
    human: tuple[int, ...]
    pseudo: tuple[int, ...]
    confirmed: bool
    """Whether the class was confirmed by this pool."""

    @property
    def samples(self) -> list[int]:
        """Named by people, then the others."""
        return [*self.human, *self.pseudo]


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """The detector after a pool, and what its classes learnt."""

    detector: Detector
    grown: tuple[GrownClass, ...]


def grow_classes(
    detector: Detector,
    pool: Floats,
    settled: SettledVerdicts,
    answers: Mapping[int, str | None],
    *,
    taken: Collection[int] = (),
    confirmable: Collection[str] | None = None,
    seed: int = 0,
) -> Growth | None:
    """Teach the classes of ``detector`` what a settled pool shows; None if that is nothing new.

    ``answers`` name classes by id. ``taken`` are samples that have taught already. Only classes
    among ``confirmable`` may become confirmed (all of them by default).
    """
    settings = detector.settings
    if not isinstance(settings, RobustSettings):
        return None
    judged = detector.score(pool)
    used = np.zeros(len(pool), dtype=bool)
    used[list(taken)] = True
    classes, grown = list(detector.classes), []
    rng = np.random.default_rng(seed)
    for index, known in enumerate(detector.classes):
        if len(known.modes) > 1 or known.count > settings.references_most:
            continue
        human = _said(known, answers, used, judged.novel, settings)
        pseudo = _sure(detector, index, pool, settled, judged.nearest, used, answers, settings)
        confirmed = known.confirmed or (
            (confirmable is None or known.id in confirmable)
            and known.human + len(human) >= settings.confirm_answers
            and not is_doubted(known, answers, settled.near, settings)
        )
        # A class that was fitted has so many images that a few more are not worth a version.
        fresh = len(human) + len(pseudo)
        enough = fresh >= settings.grow_least * max(known.count, 1)
        enough = enough or (known.origin != "fit" and len(human) > 0)
        if not enough and confirmed == known.confirmed:
            continue
        learnt = _taught(detector, known, pool, human, pseudo, confirmed, rng)
        classes[index] = learnt
        kept = pseudo[: learnt.pseudo - known.pseudo]
        now = confirmed and not known.confirmed
        grown.append(GrownClass(known.id, tuple(human.tolist()), tuple(kept.tolist()), now))
    if not grown:
        return None
    return Growth(detector.with_known(classes), tuple(grown))


def teach_class(
    detector: Detector, class_id: str, features: Floats, *, confirm: bool, seed: int = 0
) -> Detector | None:
    """The detector after people named these samples as one of its classes.

    The class is fitted again with them beside its own samples, as after an answer, so that it goes
    on growing. None where they have to become a mode of their own: most of them look new and the
    class is a mature one, whose subspace they would bend, or they still look new afterwards, or
    the class cannot be fitted again (it has several modes, or more samples than are kept of it).
    """
    settings = detector.settings
    known = detector.find(class_id)
    if not isinstance(settings, RobustSettings):
        return None
    if len(known.modes) > 1 or known.count > settings.references_most:
        return None
    mature = known.origin == "fit" or known.count >= settings.mature
    if mature and detector.score(features).novel.mean() > settings.still_new:
        return None
    confirmed = known.confirmed or (
        confirm and known.human + len(features) >= settings.confirm_answers
    )
    rng, human = np.random.default_rng(seed), np.arange(len(features))
    learnt = _taught(detector, known, features, human, human[:0], confirmed, rng)
    after = detector.with_known([learnt if one.id == known.id else one for one in detector.classes])
    return None if after.score(features).novel.mean() > settings.still_new else after


def _said(
    known: KnownClass,
    answers: Mapping[int, str | None],
    used: Bools,
    novel: Bools,
    settings: RobustSettings,
) -> Ints:
    """Samples that people gave to a class.

    An answer that names an established class for something that looks like none of it may be a
    mistake, and would hide what it is: one such answer teaches nothing, several do.
    """
    rows = np.array(
        [i for i, said in answers.items() if said in (known.id, known.name) and not used[i]],
        dtype=np.intp,
    )
    odd = rows[novel[rows]]
    if known.confirmed and len(odd) < settings.confirm_answers:
        rows = rows[~novel[rows]]
    return rows


def _sure(
    detector: Detector,
    index: int,
    pool: Floats,
    settled: SettledVerdicts,
    nearest: Ints,
    used: Bools,
    answers: Mapping[int, str | None],
    settings: RobustSettings,
) -> Ints:
    """Samples that both the pool and their own verdict give to a young class, the surest first."""
    known = detector.classes[index]
    room = settings.mature - known.count
    if known.origin == "fit" or room <= 0:
        return np.empty(0, np.intp)
    share = _share(settled, known)
    if share is None:
        return np.empty(0, np.intp)
    free = ~used
    free[list(answers)] = False
    rows = np.flatnonzero(free & (share >= settings.grow_sure) & (nearest == index))
    rows = rows[np.argsort(-share[rows], kind="stable")][:room]
    while len(rows) and _walks(detector, index, pool[rows], settings.anchor):
        rows = rows[: len(rows) // 2]
    return rows


def _share(settled: SettledVerdicts, known: KnownClass) -> Floats | None:
    """The posterior of a class: among those that the pool was settled with, or among its names."""
    found = settled.posterior
    if known.id in settled.ids:
        share: Floats = found.probabilities[:, settled.ids.index(known.id)]
        return share
    for key in (known.id, known.name):
        if key in found.names:
            new: Floats = found.probabilities[
                :, found.known + found.shifted + found.names.index(key)
            ]
            return new
    return None


def _walks(detector: Detector, index: int, fresh: Floats, anchor: float) -> bool:
    """Whether these samples would move a class too far towards another one.

    The mean of the few samples that people labelled lies beside that of their class by chance, and
    on the way from it to the mean of many lies part of the way to any other class. So much of both
    ways as that chance explains is not counted.
    """
    known = detector.classes[index]
    people = known.references[known.said] if known.said.any() else known.references
    if not len(people):
        return False
    home = people.mean(axis=0, dtype=np.float64)
    some = people if len(people) > 1 else known.references
    chance = float(some.var(axis=0, dtype=np.float64).sum()) / max(len(some) - 1, 1)
    chance *= len(some) / len(people)
    everyone = np.concatenate([known.references, fresh])
    away = everyone.mean(axis=0, dtype=np.float64) - home
    others = 1 - len(people) / len(everyone)
    for other in detector.classes:
        if other.id != known.id:
            way = other.modes[0].mean - home
            far = max(float(way @ way) - chance, 0.0)
            if float(away @ way) - others * chance > anchor * far:
                return True
    return False


def _taught(
    detector: Detector,
    known: KnownClass,
    pool: Floats,
    human: Ints,
    pseudo: Ints,
    confirmed: bool,
    rng: np.random.Generator,
) -> KnownClass:
    """The class fitted again with these samples beside its own; people's come first."""
    most = detector.settings.references_most
    pseudo = pseudo[: max(0, most - len(known.references) - len(human))]
    features = np.concatenate([known.references, pool[human], pool[pseudo]])
    said = np.concatenate(
        [known.said, np.ones(len(human), dtype=bool), np.zeros(len(pseudo), dtype=bool)]
    )
    if not len(human) and not len(pseudo):
        return replace(known, confirmed=confirmed)
    fitted = KnownClass.fit(
        known.id,
        known.name,
        features,
        settings=detector.settings,
        rng=rng,
        origin=known.origin,
        said=said,
        confirmed=confirmed,
    )
    return replace(
        fitted, human=known.human + len(human), pseudo=known.pseudo + len(pseudo), held=known.held
    )
