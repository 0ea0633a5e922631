"""MobileNet v1 and v2, in the style of TF-Slim."""

from __future__ import annotations

from diagmem.frontends.zoo.builder import VALID, Builder, plane
from diagmem.model.graph import DType, Graph, Tensor

V1_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
"""(channels, stride) of each depthwise separable block."""

V2_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, channels, blocks, stride of the first block) of each stage of inverted residuals."""


def mobilenet_v1(
    name: str, width: float = 1.0, resolution: int = 224, dtype: DType = DType.FLOAT32, classes: int = 1001
) -> Graph:
    def channels(full: int) -> int:
        return max(8, int(full * width))

    b = Builder(name, dtype)
    x = b.conv(b.input(1, resolution, resolution, 3), channels(32), 3, stride=2)
    for full, stride in V1_BLOCKS:
        x = b.conv(b.depthwise(x, 3, stride), channels(full), 1)
    return b.graph(_head(b, x, classes))


def mobilenet_v2(
    name: str, width: float = 1.0, resolution: int = 224, dtype: DType = DType.FLOAT32, classes: int = 1001
) -> Graph:
    b = Builder(name, dtype)
    x = b.conv(b.input(1, resolution, resolution, 3), _divisible(32 * width), 3, stride=2)
    for expansion, full, blocks, stride in V2_STAGES:
        for i in range(blocks):
            x = _inverted_residual(b, x, expansion, _divisible(full * width), stride if i == 0 else 1)
    x = b.conv(x, _divisible(1280 * max(1.0, width)), 1)
    return b.graph(_head(b, x, classes))


def _inverted_residual(b: Builder, x: Tensor, expansion: int, channels: int, stride: int) -> Tensor:
    wide = b.conv(x, x.shape[-1] * expansion, 1) if expansion > 1 else x
    narrow = b.conv(b.depthwise(wide, 3, stride), channels, 1)
    return b.add(narrow, x) if narrow.shape == x.shape else narrow


def _head(b: Builder, x: Tensor, classes: int) -> Tensor:
    pooled = b.average_pool(x, plane(x), padding=VALID)
    return b.softmax(b.flatten(b.conv(pooled, classes, 1)))


def _divisible(channels: float) -> int:
    """The multiple of 8 nearest to `channels`, but not less than nine tenths of it."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest
