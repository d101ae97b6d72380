"""A network of four small layers with made-up weights: for tests, never for judging images."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

SIZE = 32
WIDTHS = (16, 32, 64)


class TinyNetwork(nn.Module):
    """Three strided convolutions, whose weights are drawn from a seeded numpy generator.

    Numpy's streams are stable over releases, so the weights, and with them the fingerprint, are
    the same everywhere. It separates colours and coarse textures, which is all that tests need.

    >>> TinyNetwork().eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        before, layers = 3, []
        for width, stride in zip(WIDTHS, (4, 2, 2), strict=True):
            layer = nn.Conv2d(before, width, kernel_size=stride, stride=stride)
            fan_in = before * stride * stride
            # He's deviation keeps the activations of every layer at about the same size.
            weight = rng.standard_normal(layer.weight.shape) * np.sqrt(2.0 / fan_in)
            bias = rng.standard_normal(width) * 0.1
            layer.weight.data = torch.from_numpy(weight.astype(np.float32))
            layer.bias.data = torch.from_numpy(bias.astype(np.float32))  # type: ignore[union-attr]
            layers.append(layer)
            before = width
        self.layers = nn.ModuleList(layers)

    def forward_intermediates(
        self, images: Tensor, output_fmt: str = "NCHW"
    ) -> tuple[Tensor, list[Tensor]]:
        """The last map and those of all layers, as timm's networks give them."""
        found = []
        for layer in self.layers:
            images = torch.relu(layer(images))
            found.append(images)
        return images, found

    def forward_head(self, final: Tensor, pre_logits: bool = True) -> Tensor:
        return final.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_intermediates(images)[0])
