"""Networks for ImageNet: MobileNet, ResNet, DenseNet, SqueezeNet, Inception and NASNet."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.frontends.zoo.builder import RELU, SAME, VALID, Builder, Size, plane, scaled
from diagmem.model.graph import DType, Graph, Padding, Tensor

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


ROW, COLUMN = (1, 7), (7, 1)
SHORT_ROW, SHORT_COLUMN = (1, 3), (3, 1)


@dataclass(frozen=True, slots=True)
class _Layers:
    """The builder with what all convolutions of a network share."""

    b: Builder
    width: float

    def conv(self, x: Tensor, channels: int, kernel: Size, stride: int = 1, padding: Padding = SAME) -> Tensor:
        return self.b.conv(x, scaled(channels, self.width), kernel, stride, padding)

    def chain(self, x: Tensor, *layers: tuple[int, Size]) -> Tensor:
        """Convolutions (channels, kernel), one after the other."""
        for channels, kernel in layers:
            x = self.conv(x, channels, kernel)
        return x

    def halving(self, x: Tensor, channels: int) -> Tensor:
        return self.conv(x, channels, 3, 2, VALID)

    def halving_pool(self, x: Tensor) -> Tensor:
        return self.b.max_pool(x, 3, 2, VALID)

    def pooled(self, x: Tensor, channels: int) -> Tensor:
        return self.conv(self.b.average_pool(x, 3), channels, 1)

    def stem(self, resolution: int) -> Tensor:
        x = self.halving(self.b.input(1, resolution, resolution, 3), 32)
        return self.conv(self.conv(x, 32, 3, padding=VALID), 64, 3)

    def graph(self, x: Tensor, classes: int) -> Graph:
        pooled = self.b.average_pool(x, plane(x), padding=VALID)
        return self.b.graph(self.b.softmax(self.b.fully_connected(self.b.flatten(pooled), classes)))


def inception_v4(
    name: str,
    blocks: tuple[int, int, int] = (4, 7, 3),
    width: float = 1.0,
    resolution: int = 299,
    dtype: DType = DType.FLOAT32,
    classes: int = 1001,
) -> Graph:
    """`blocks`: how many of Inception-A, -B and -C."""
    net = _Layers(Builder(name, dtype), width)
    x = _v4_stem(net, net.stem(resolution))
    for _ in range(blocks[0]):
        x = _v4_a(net, x)
    x = net.b.concat(net.halving(x, 384), net.halving(net.chain(x, (192, 1), (224, 3)), 256), net.halving_pool(x))
    for _ in range(blocks[1]):
        x = _v4_b(net, x)
    left = net.halving(net.conv(x, 192, 1), 192)
    x = net.b.concat(left, net.halving(net.chain(x, (256, 1), (256, ROW), (320, COLUMN)), 320), net.halving_pool(x))
    for _ in range(blocks[2]):
        x = _v4_c(net, x)
    return net.graph(x, classes)


def _v4_stem(net: _Layers, x: Tensor) -> Tensor:
    x = net.b.concat(net.halving_pool(x), net.halving(x, 96))
    left = net.conv(net.conv(x, 64, 1), 96, 3, padding=VALID)
    right = net.conv(net.chain(x, (64, 1), (64, ROW), (64, COLUMN)), 96, 3, padding=VALID)
    x = net.b.concat(left, right)
    return net.b.concat(net.halving(x, 192), net.halving_pool(x))


def _v4_a(net: _Layers, x: Tensor) -> Tensor:
    return net.b.concat(
        net.conv(x, 96, 1),
        net.chain(x, (64, 1), (96, 3)),
        net.chain(x, (64, 1), (96, 3), (96, 3)),
        net.pooled(x, 96),
    )


def _v4_b(net: _Layers, x: Tensor) -> Tensor:
    return net.b.concat(
        net.conv(x, 384, 1),
        net.chain(x, (192, 1), (224, ROW), (256, COLUMN)),
        net.chain(x, (192, 1), (192, COLUMN), (224, ROW), (224, COLUMN), (256, ROW)),
        net.pooled(x, 128),
    )


def _v4_c(net: _Layers, x: Tensor) -> Tensor:
    return net.b.concat(
        net.conv(x, 256, 1),
        _forked(net, net.conv(x, 384, 1)),
        _forked(net, net.chain(x, (384, 1), (448, SHORT_COLUMN), (512, SHORT_ROW))),
        net.pooled(x, 256),
    )


def _forked(net: _Layers, x: Tensor) -> Tensor:
    return net.b.concat(net.conv(x, 256, SHORT_ROW), net.conv(x, 256, SHORT_COLUMN))


def inception_resnet_v2(
    name: str,
    blocks: tuple[int, int, int] = (10, 20, 10),
    width: float = 1.0,
    resolution: int = 299,
    dtype: DType = DType.FLOAT32,
    classes: int = 1001,
) -> Graph:
    """`blocks`: how many residual blocks at each of the three sizes."""
    net = _Layers(Builder(name, dtype), width)
    x = _resnet_stem(net, net.stem(resolution))
    for _ in range(blocks[0]):
        x = _residual(net, x, ((32, 1),), ((32, 1), (32, 3)), ((32, 1), (48, 3), (64, 3)))
    x = net.b.concat(net.halving(x, 384), net.halving(net.chain(x, (256, 1), (256, 3)), 384), net.halving_pool(x))
    for _ in range(blocks[1]):
        x = _residual(net, x, ((192, 1),), ((128, 1), (160, ROW), (192, COLUMN)))
    x = net.b.concat(
        net.halving(net.conv(x, 256, 1), 384),
        net.halving(net.conv(x, 256, 1), 288),
        net.halving(net.chain(x, (256, 1), (288, 3)), 320),
        net.halving_pool(x),
    )
    for _ in range(blocks[2]):
        x = _residual(net, x, ((192, 1),), ((192, 1), (224, SHORT_ROW), (256, SHORT_COLUMN)))
    return net.graph(net.conv(x, 1536, 1), classes)


def _resnet_stem(net: _Layers, x: Tensor) -> Tensor:
    x = net.conv(net.halving_pool(x), 80, 1, padding=VALID)
    x = net.halving_pool(net.conv(x, 192, 3, padding=VALID))
    return net.b.concat(
        net.conv(x, 96, 1),
        net.chain(x, (48, 1), (64, 5)),
        net.chain(x, (64, 1), (96, 3), (96, 3)),
        net.pooled(x, 64),
    )


def _residual(net: _Layers, x: Tensor, *branches: tuple[tuple[int, Size], ...]) -> Tensor:
    """The branches side by side, brought back to the channels of x, and added to it."""
    mixed = net.b.concat(*(net.chain(x, *branch) for branch in branches))
    return net.b.add(x, net.b.conv(mixed, x.shape[-1], 1))


STEM_CHANNELS = 32
CHANNELS = 44
"""Channels of a branch in the first cells; they double at each reduction."""


def nasnet(
    name: str,
    cells: int = 4,
    width: float = 1.0,
    resolution: int = 224,
    dtype: DType = DType.FLOAT32,
    classes: int = 1001,
) -> Graph:
    """`cells`: how many normal cells between reductions."""
    b = Builder(name, dtype)
    stem = b.conv(b.input(1, resolution, resolution, 3), scaled(STEM_CHANNELS, width), 3, 2, VALID)
    first = _reduction(_Cell(b, scaled(CHANNELS // 4, width)), None, stem)
    before, x = first, _reduction(_Cell(b, scaled(CHANNELS // 2, width)), stem, first)
    for stage in range(3):
        cell = _Cell(b, scaled(CHANNELS * 2**stage, width))
        if stage > 0:
            before, x = x, _reduction(cell, before, x)
        for _ in range(cells):
            before, x = x, _normal(cell, before, x)
    x = b.mean(b.relu(x), keep_dims=False)
    return b.graph(b.softmax(b.fully_connected(x, classes)))


@dataclass(frozen=True, slots=True)
class _Cell:
    """What the branches of one cell share."""

    b: Builder
    channels: int

    def squeezed(self, x: Tensor) -> Tensor:
        return self.b.conv(self.b.relu(x), self.channels, 1)

    def separable(self, x: Tensor, kernel: int, stride: int = 1) -> Tensor:
        """Two depthwise separable convolutions; the first may halve the image."""
        x = self.b.relu(x)
        for step in (stride, 1):
            x = self.b.conv(self.b.depthwise(x, kernel, step), self.channels, 1)
        return x

    def fitted(self, before: Tensor | None, x: Tensor) -> Tensor:
        """The output of the cell before the last, brought to the size of x and to this cell's channels."""
        if before is None:
            return x
        if plane(before) != plane(x):
            return self.halved(before)
        return before if before.shape[-1] == self.channels else self.squeezed(before)

    def halved(self, x: Tensor) -> Tensor:
        """Every other pixel, once from (0, 0) and once from (1, 1), each making half of the channels."""
        active = self.b.relu(x)
        even = self.b.conv(self.b.average_pool(active, 1, 2, VALID), self.channels // 2, 1)
        shifted = self.b.crop_first(self.b.pad(active, 0, 1))
        odd = self.b.conv(self.b.average_pool(shifted, 1, 2, VALID), self.channels - self.channels // 2, 1)
        return self.b.scale_and_shift(self.b.concat(even, odd))


def _normal(cell: _Cell, before: Tensor, x: Tensor) -> Tensor:
    b = cell.b
    p = cell.fitted(before, x)
    h = cell.squeezed(x)
    return b.concat(
        p,
        b.add(cell.separable(h, 5), cell.separable(p, 3)),
        b.add(cell.separable(p, 5), cell.separable(p, 3)),
        b.add(b.average_pool(h, 3), p),
        b.add(b.average_pool(p, 3), b.average_pool(p, 3)),
        b.add(cell.separable(h, 3), h),
    )


def _reduction(cell: _Cell, before: Tensor | None, x: Tensor) -> Tensor:
    b = cell.b
    p = cell.fitted(before, x)
    h = cell.squeezed(x)
    first = b.add(cell.separable(h, 5, 2), cell.separable(p, 7, 2))
    second = b.add(b.max_pool(h, 3, 2), cell.separable(p, 7, 2))
    third = b.add(b.average_pool(h, 3, 2), cell.separable(p, 5, 2))
    fourth = b.add(second, b.average_pool(first, 3))
    fifth = b.add(cell.separable(first, 3), b.max_pool(h, 3, 2))
    return b.concat(second, third, fourth, fifth)
