"""Adam as it was published.

Diederik P. Kingma, Jimmy Ba: "Adam: A Method for Stochastic Optimization", ICLR 2015. Torch's own
imports its compiler, which takes seconds in every process.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Adam:
    """Steps of Adam on weights, which it changes in place.

    >>> weight = torch.tensor([1.0])
    >>> Adam([weight], rate=0.1).step([torch.tensor([2.0])])
    >>> round(float(weight), 4)
    0.9
    """

    _FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, weights: Sequence[torch.Tensor], rate: float) -> None:
        self._weights = weights
        self._rate = rate
        self._means = [torch.zeros_like(w) for w in weights]
        self._squares = [torch.zeros_like(w) for w in weights]
        self._steps = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[torch.Tensor]) -> None:
        """Move every weight against its gradient."""
        self._steps += 1
        rate = self._rate / (1 - self._FIRST**self._steps)
        unbias = (1 - self._SECOND**self._steps) ** 0.5
        for weight, gradient, mean, square in zip(
            self._weights, gradients, self._means, self._squares, strict=True
        ):
            mean.lerp_(gradient, 1 - self._FIRST)
            square.mul_(self._SECOND).addcmul_(gradient, gradient, value=1 - self._SECOND)
            weight.addcdiv_(mean, square.sqrt().div_(unbias).add_(self._EPSILON), value=-rate)
