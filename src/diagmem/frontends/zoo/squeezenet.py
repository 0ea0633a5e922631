"""SqueezeNet 1.1: squeeze to few channels, expand by 1x1 and 3x3 side by side, no layer with many weights."""

from __future__ import annotations

from diagmem.frontends.zoo.builder import RELU, VALID, Builder, plane, scaled
from diagmem.model.graph import DType, Graph, Tensor

STAGES = ((16, 16), (32, 32), (48, 48, 64, 64))
"""Channels that each fire module squeezes to, stage by stage; it expands to eight times as many."""


def squeezenet(
    name: str, width: float = 1.0, resolution: int = 224, dtype: DType = DType.FLOAT32, classes: int = 1000
) -> Graph:
    b = Builder(name, dtype)
    x = b.conv(b.input(1, resolution, resolution, 3), scaled(64, width), 3, 2, VALID, RELU)
    for stage in STAGES:
        x = b.max_pool(x, 3, 2, VALID)
        for squeezed in stage:
            x = _fire(b, x, scaled(squeezed, width))
    x = b.conv(x, classes, 1, activation=RELU)
    return b.graph(b.softmax(b.flatten(b.average_pool(x, plane(x), padding=VALID))))


def _fire(b: Builder, x: Tensor, squeezed: int) -> Tensor:
    s = b.conv(x, squeezed, 1, activation=RELU)
    return b.concat(*(b.conv(s, 4 * squeezed, kernel, activation=RELU) for kernel in (1, 3)))
