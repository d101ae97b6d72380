"""Whether a class rests on enough answers, and which samples to ask about if it does not.

One answer may open a class, but one mistaken answer must not make anything invisible. A class is
confirmed by several people's answers that name it, unless as many answers about its neighbours say
something else. What resembles an unconfirmed class carries its name and stays novel.
"""

from __future__ import annotations

import numpy as np

from monitor.novelty.arrays import Ints
from monitor.novelty.pool_answers import PoolAnswers
from monitor.novelty.robust.class_posterior import nearest_labelled
from monitor.novelty.robust.pool_belief import PoolBelief
from monitor.novelty.robust.pool_views import PlacedPool


def confirmed_names(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers) -> frozenset[str]:
    """The new names that people's answers about this pool confirm."""
    return frozenset(
        name
        for index, name in enumerate(now.names)
        if is_confirmed(placed, now, answers, now.known + index, len(answers.new()[name]))
    )


def is_confirmed(
    placed: PlacedPool, now: PoolBelief, answers: PoolAnswers, column: int, support: int
) -> bool:
    """Whether ``support`` answers are enough, given what was said around them in this pool."""
    settings = placed.settings
    if support < settings.confirm_answers:
        return False
    return _dissent(placed, now, answers, column) <= settings.dissent * support


def _dissent(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers, column: int) -> int:
    """Answers of another name, or of none, about samples that lie nearest to the class."""
    assert now.shares is not None
    mine = {i for i in answers.told if now.shares[i].argmax() == column}
    near = nearest_labelled(placed, now, answers)
    return sum(found == column for row, found in near.items() if row not in mine)


def to_confirm(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers, most: int) -> Ints:
    """Samples to ask about, so that classes with too few answers are confirmed or doubted.

    New classes of this pool, and known ones that earlier pools left unconfirmed; each is asked
    about where most of it lies, in places of their own.
    """
    if now.shares is None or most < 1:
        return np.empty(0, np.intp)
    settings = placed.settings
    chosen: list[int] = []
    named = answers.new()
    said = list(answers.known().values())
    wanted = [(now.known + i, len(named[name])) for i, name in enumerate(now.names)]
    wanted += [
        (i, known.human + said.count(i))
        for i, known in enumerate(placed.detector.classes)
        if not known.confirmed
    ]
    asked = answers.asked
    best = now.shares.argmax(axis=1)
    for column, support in wanted:
        missing = min(settings.confirm_answers - support, most - len(chosen))
        weights = np.where(best == column, now.shares[:, column], 0.0)
        weights[asked] = 0.0
        missing = min(missing, int((weights > 0).sum()))
        if missing > 0:
            picked = placed.graph.peaks(
                weights,
                missing,
                asked=np.array([*asked, *chosen], np.intp),
                dimming=settings.dimming,
            )
            chosen += [int(i) for i in picked if weights[i] > 0]
    return np.array(chosen, dtype=np.intp)
