"""DenseNet: every layer sees the outputs of all layers before it in its block."""

from __future__ import annotations

from diagmem.frontends.zoo.builder import VALID, Builder, scaled
from diagmem.model.graph import DType, Graph

LAYERS = (6, 12, 24, 16)


def densenet(
    name: str,
    layers: tuple[int, ...] = LAYERS,
    width: float = 1.0,
    resolution: int = 224,
    dtype: DType = DType.FLOAT32,
    classes: int = 1001,
) -> Graph:
    """`layers`: how many in each block; a transition, which halves channels and image, stands between blocks."""
    growth = scaled(32, width)
    b = Builder(name, dtype)
    x = b.conv(b.input(1, resolution, resolution, 3), 2 * growth, 7, stride=2)
    x = b.max_pool(x, 3, 2)
    for block, count in enumerate(layers):
        if block > 0:
            x = b.average_pool(b.conv(b.scale_and_shift(x), x.shape[-1] // 2, 1), 2, 2, VALID)
        for _ in range(count):
            bottleneck = b.conv(b.scale_and_shift(x), 4 * growth, 1)
            x = b.concat(x, b.conv(bottleneck, growth, 3))
    x = b.conv(b.mean(b.scale_and_shift(x), keep_dims=True), classes, 1)
    return b.graph(b.softmax(b.flatten(x)))
