"""When a class is confirmed, and when it stays unconfirmed.

One answer may open a class, but one mistaken answer must not make anything invisible. A class is
confirmed by several people's answers that name it (``confirm_answers``), unless too many answers
about its neighbours say something else (``dissent``). What resembles an unconfirmed class carries
its name and stays novel. Classes that were fitted on labelled images are confirmed from the start.
Where several people annotate, :func:`monitor.pipeline.pool_steps.confirmable` also asks that more
than one of them has named the class.
"""

from __future__ import annotations

from collections.abc import Mapping

from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.detector import KnownClass
from monitor.novelty.pseudo_labeller import PoolAnswers
from monitor.novelty.robust.pool_belief import PoolBelief
from monitor.novelty.robust.robust_settings import RobustSettings


def answers_to_confirm(settings: MethodSettings) -> int:
    """Images that people must have named for a class to count as confirmed."""
    robust = settings if isinstance(settings, RobustSettings) else RobustSettings()
    return robust.confirm_answers


def confirmed_names(
    now: PoolBelief, answers: PoolAnswers, near: Mapping[int, int], settings: RobustSettings
) -> frozenset[str]:
    """The new names that people's answers about this pool confirm.

    ``near`` has, for every sample that was asked about, the column that its surroundings have.
    """
    assert now.shares is not None
    confirmed = set()
    for column, name in enumerate(now.names, start=now.known):
        support = len(answers.new[name])
        mine = {i for i in answers.told if now.shares[i].argmax() == column}
        # Of another name, or of none, about samples that lie nearest to the class.
        against = sum(found == column for row, found in near.items() if row not in mine)
        if support >= settings.confirm_answers and against <= settings.dissent * support:
            confirmed.add(name)
    return frozenset(confirmed)


def is_doubted(
    known: KnownClass,
    answers: Mapping[int, str | None],
    near: Mapping[int, str],
    settings: RobustSettings,
) -> bool:
    """Whether answers about what looked like the class said something else.

    ``near`` has, for every sample that was asked about, the class that its surroundings have.
    """
    names = (known.id, known.name)
    support = sum(said in names for said in answers.values()) + known.human
    against = sum(said not in names and near.get(i) == known.id for i, said in answers.items())
    return against > settings.dissent * support
