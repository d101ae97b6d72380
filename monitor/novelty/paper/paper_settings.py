"""The preset ``paper``: the numbers of the published method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.settings_group import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSettings(MethodSettings):
    """CONCLAD by the letter; what the text leaves open is decided in ``docs/method.md``.

    >>> PaperSettings().squared, PaperSettings().replace(alpha=0.5).alpha
    (False, 0.5)
    """

    preset: ClassVar[str] = "paper"

    variance: float = setting(
        0.995,
        "What the authors' code of incDFM keeps; the paper names no number.",
        low=0.01,
        high=1.0,
    )
    squared: bool = setting(False, "The paper's FRE is the ℓ2 norm of the residual (equation 3).")
    query: str = setting(
        "ambiguous",
        "Which images are asked about once something new has a name: those nearest to T_inner "
        "(appendix 4.1.2), the highest scores (Sup-Top), or any (Sup-Rand).",
        among=("ambiguous", "top", "random"),
    )
    first_share: float = setting(
        0.5,
        "Share of the budget asked at i = 0. The paper gives no split, and it matters little; at 1 "
        "no border is ever asked about.",
        low=0.01,
        high=1.0,
    )
    rounds: int = setting(
        5,
        "Iterations over which the rest of the budget is spread; the paper gives no number.",
        low=1,
    )
    iterations: int = setting(
        10,
        "Iterations at most. The paper stops when nothing lies above T_inner, which a few known "
        "images always do.",
        low=1,
    )
    alpha: float = setting(
        0.20,
        "Share of what lies above T_inner that an iteration pseudo-labels (section 3.1). Larger "
        "shares spread early errors.",
        low=0.001,
        high=1.0,
    )
    learning_rate: float = setting(
        1e-3, "Adam's rate for the pseudo-labeller (appendix 4.2.1).", low=1e-8, high=10.0
    )
    batch: int = setting(10, "Images in a training step (appendix 4.2.1).", low=1)
    epochs: int = setting(
        5, "Passes over the labelled images in each iteration (appendix 4.2.1).", low=1
    )
