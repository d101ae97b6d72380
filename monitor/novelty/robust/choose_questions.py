"""Which questions the preset ``robust`` asks about a pool, and when it has asked enough.

First where the pool looks new, then where nobody has been asked. Classes with too few answers are
asked about once more, so that they are confirmed.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import betabinom

from monitor.novelty.array_types import Ints
from monitor.novelty.pseudo_labeller import PoolAnswers
from monitor.novelty.robust.pool_belief import PlacedPool, PoolBelief
from monitor.novelty.robust.robust_settings import RobustSettings


def question_parts(budget: int, settings: RobustSettings) -> list[int]:
    """How many questions each part may ask.

    First a third, or what is enough to call a pool quiet, so that one with nothing new stays
    cheap; then up to a half; then the other half, which goes everywhere.

    >>> question_parts(15, RobustSettings()), question_parts(40, RobustSettings())
    ([5, 3, 7], [8, 12, 20])
    """
    if settings.one_shot:
        return [budget]
    until_new = int(np.ceil(settings.ask_where_new * budget))
    first = min(int(np.ceil(settings.ask_first * budget)), settings.quiet_labels, until_new)
    return [part for part in (first, until_new - first, budget - until_new) if part]


def is_quiet(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers) -> bool:
    """Enough answers, none of them new, and no more samples above T_inner than chance has.

    Where most of them have moved with a shift, they went to what is merely shifted: the next
    ones, which know of it, must find nothing new either.
    """
    settings = placed.settings
    mostly_moved = 2 * now.moved > len(answers.asked)
    least = settings.quiet_labels * (settings.quiet_shifted if mostly_moved else 1)
    if answers.new or len(answers.asked) < least:
        return False
    calibration, n = placed.detector.calibration, len(placed.pool)
    exceeded = calibration.exceedance * calibration.count
    chance = betabinom.sf(placed.above - 1, n, exceeded + 1, calibration.count - exceeded + 1)
    return bool(chance > settings.significant)


def choose_questions(
    placed: PlacedPool,
    now: PoolBelief,
    answers: PoolAnswers,
    number: int,
    count: int,
    rng: np.random.Generator,
) -> Ints:
    """The samples of part ``number``: first to confirm classes, then where it is worth most."""
    settings = placed.settings
    candidates = np.flatnonzero(now.free)
    if settings.query == "random" or count >= len(candidates):
        return rng.permutation(candidates)[:count]
    if settings.query == "top" and now.shares is not None:
        order = np.argsort(-now.shares[:, now.known :].sum(axis=1), kind="stable")
        chosen: Ints = order[now.free[order]][:count]
        return chosen
    everywhere = now.names and number >= settings.everywhere_from
    first = to_confirm(placed, now, answers, int(np.ceil(settings.ask_confirm * count)))
    weights = _worth_everywhere(placed, now) if everywhere else now.views.worth
    asked = np.concatenate([answers.asked, first])
    rest = placed.graph.peaks(weights, count - len(first), asked=asked, dimming=settings.dimming)
    return np.concatenate([first, rest])


def to_confirm(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers, most: int) -> Ints:
    """Samples to ask about, so that classes with too few answers are confirmed or doubted.

    New classes of this pool, and known ones that earlier pools left unconfirmed. Each is asked
    about at its heart, near what was named: places of their own find other classes instead, and
    of a class that is a twentieth of a pool half stayed unconfirmed.
    """
    if now.shares is None or most < 1:
        return np.empty(0, np.intp)
    settings = placed.settings
    chosen: list[int] = []
    named = answers.new
    said = list(answers.known.values())
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
            taken = np.array([*asked, *chosen], np.intp)
            picked = placed.graph.peaks(weights, missing, asked=taken, dimming=0.0)
            chosen += [int(i) for i in picked if weights[i] > 0]
    return np.array(chosen, dtype=np.intp)


def _worth_everywhere(placed: PlacedPool, now: PoolBelief) -> np.ndarray:
    """How much a question about each sample is worth, wherever nobody has been asked.

    Alike, unless answers tell of a shift: references speak for what looks like them, and for
    shifted samples only answers do.
    """
    if not now.moved or now.shares is None:
        return np.ones(len(placed.pool))
    clean = now.shares[:, : len(placed.detector.classes)].sum(axis=1)
    worth: np.ndarray = np.maximum(1 - clean, placed.settings.ask_clean)
    return worth
