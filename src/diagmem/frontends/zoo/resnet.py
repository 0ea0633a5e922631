"""ResNet v2 (bottleneck units with pre-activation), in the style of TF-Slim."""

from __future__ import annotations

from diagmem.frontends.zoo.builder import VALID, Builder, scaled
from diagmem.model.graph import DType, Graph, Tensor

UNITS = (3, 4, 6, 3)
BASE_CHANNELS = (64, 128, 256, 512)
EXPANSION = 4


def resnet_v2(
    name: str,
    units: tuple[int, ...] = UNITS,
    width: float = 1.0,
    resolution: int = 224,
    dtype: DType = DType.FLOAT32,
    classes: int = 1000,
) -> Graph:
    """`units`: how many in each of the (up to four) blocks. The last unit of each block but the final one halves the
    image, as TF-Slim does it."""
    b = Builder(name, dtype)
    x = b.pad(b.input(1, resolution, resolution, 3), 3, 3)
    x = b.max_pool(b.conv(x, scaled(64, width), 7, stride=2, padding=VALID), 3, 2)
    for block, count in enumerate(units):
        for unit in range(count):
            is_halving = unit == count - 1 and block < len(units) - 1
            x = _unit(b, x, scaled(BASE_CHANNELS[block], width), stride=2 if is_halving else 1)
    x = b.conv(b.mean(b.scale_and_shift(x), keep_dims=True), classes, 1)
    return b.graph(b.softmax(b.flatten(x)))


def _unit(b: Builder, x: Tensor, channels: int, stride: int) -> Tensor:
    """A bottleneck; the shortcut is projected where the number of channels changes."""
    active = b.scale_and_shift(x)
    if x.shape[-1] != channels * EXPANSION:
        shortcut = b.conv(active, channels * EXPANSION, 1, stride)
    else:
        shortcut = b.max_pool(x, 1, stride, VALID) if stride > 1 else x
    y = b.conv(active, channels, 1)
    y = b.conv(b.pad(y, 1, 1), channels, 3, stride, VALID) if stride > 1 else b.conv(y, channels, 3)
    return b.add(shortcut, b.conv(y, channels * EXPANSION, 1))
