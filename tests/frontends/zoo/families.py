"""The families that the networks of the zoo belong to: those for ImageNet, and the reference models of MLPerf Tiny.

`networks.json` lists the layers of the zoo's own; these make any of their sizes, for tests that want a small one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from diagmem.frontends.zoo.networks import RELU, SAME, VALID, Builder, Size
from diagmem.model.graph import DType, Graph, Nhwc, Padding, Tensor

Layer = tuple[int, Size]
"""Channels and kernel of a convolution."""


def plane(x: Tensor) -> tuple[int, int]:
    """Height and width."""
    return Nhwc.of(x).height, Nhwc.of(x).width


class Net(Builder):
    """A network with its options: `width` multiplies channels, `resolution` is the height and width of the image."""

    def __init__(self, name: str, width: float, resolution: int, dtype: DType, classes: int) -> None:
        super().__init__(name, dtype)
        self.width, self.resolution, self.classes = width, resolution, classes

    def image(self) -> Tensor:
        return self.input(1, self.resolution, self.resolution, 3)

    def scaled(self, channels: int) -> int:
        """A number of channels times the width multiplier, at least 1."""
        return max(1, round(channels * self.width))

    def average(self, x: Tensor) -> Tensor:
        """Of the whole image."""
        return self.average_pool(x, plane(x), padding=VALID)

    def layer(self, x: Tensor, channels: int, kernel: Size, stride: int = 1, padding: Padding = SAME) -> Tensor:
        return self.conv(x, self.scaled(channels), kernel, stride, padding)

    def chain(self, x: Tensor, *layers: Layer) -> Tensor:
        """Convolutions, one after the other."""
        for channels, kernel in layers:
            x = self.layer(x, channels, kernel)
        return x

    def halving(self, x: Tensor, channels: int) -> Tensor:
        return self.layer(x, channels, 3, 2, VALID)

    def halving_pool(self, x: Tensor) -> Tensor:
        return self.max_pool(x, 3, 2, VALID)

    def mixed(self, x: Tensor, pooled: int, *branches: tuple[Layer, ...]) -> Tensor:
        """Branches side by side, and one that pools and has `pooled` channels."""
        made = [self.chain(x, *branch) for branch in branches]
        return self.concat(*made, self.layer(self.average_pool(x, 3), pooled, 1))

    def reduced(self, x: Tensor, *branches: tuple[Layer, ...]) -> Tensor:
        """Branches whose last convolution halves the image, and a pool that does."""
        made = [self.halving(self.chain(x, *layers), channels) for *layers, (channels, _) in branches]
        return self.concat(*made, self.halving_pool(x))


USUAL: dict[str, Any] = {"width": 1.0, "resolution": 224, "dtype": DType.FLOAT32, "classes": 1001}
"""The options of a `Net`."""


def network(**usual: Any) -> Callable[[Callable[..., Tensor]], Callable[..., Graph]]:
    """For a function that adds layers to a `Net`, from input to output: makes it one that builds the graph from a name
    and options, those of a `Net` and any of its own."""

    def decorated(layers: Callable[..., Tensor]) -> Callable[..., Graph]:
        def build(name: str, **options: Any) -> Graph:
            given = {**USUAL, **usual, **options}
            net = Net(name, **{option: given.pop(option) for option in USUAL})
            return net.graph(layers(net, **given))

        return build

    return decorated


V1_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
"""(channels, stride) of each depthwise separable block."""

V2_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, channels, blocks, stride of the first block) of each stage of inverted residuals."""


@network()
def mobilenet_v1(net: Net) -> Tensor:
    def channels(full: int) -> int:
        return max(8, int(full * net.width))

    x = net.conv(net.image(), channels(32), 3, stride=2)
    for full, stride in V1_BLOCKS:
        x = net.conv(net.depthwise(x, 3, stride), channels(full), 1)
    return _mobilenet_head(net, x)


@network()
def mobilenet_v2(net: Net) -> Tensor:
    x = net.conv(net.image(), _divisible(32 * net.width), 3, stride=2)
    for expansion, full, blocks, first_stride in V2_STAGES:
        for stride in (first_stride, *[1] * (blocks - 1)):
            wide = net.conv(x, x.shape[-1] * expansion, 1) if expansion > 1 else x
            narrow = net.conv(net.depthwise(wide, 3, stride), _divisible(full * net.width), 1)
            x = net.add(narrow, x) if narrow.shape == x.shape else narrow
    return _mobilenet_head(net, net.conv(x, _divisible(1280 * max(1.0, net.width)), 1))


def _mobilenet_head(net: Net, x: Tensor) -> Tensor:
    return net.softmax(net.flatten(net.conv(net.average(x), net.classes, 1)))


def _divisible(channels: float) -> int:
    """The multiple of 8 nearest to `channels`, but not less than nine tenths of it."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


BASE_CHANNELS = (64, 128, 256, 512)
EXPANSION = 4


@network(classes=1000)
def resnet_v2(net: Net, units: tuple[int, ...] = (3, 4, 6, 3)) -> Tensor:
    """`units`: how many in each of the (up to four) blocks. The last unit of each block but the final one halves the
    image, as TF-Slim does it."""
    x = net.max_pool(net.layer(net.pad(net.image(), 3, 3), 64, 7, 2, VALID), 3, 2)
    for block, count in enumerate(units):
        for unit in range(count):
            is_halving = unit == count - 1 and block < len(units) - 1
            x = _unit(net, x, net.scaled(BASE_CHANNELS[block]), stride=2 if is_halving else 1)
    return _normalised_head(net, x)


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


def _normalised_head(net: Net, x: Tensor) -> Tensor:
    x = net.conv(net.mean(net.scale_and_shift(x), keep_dims=True), net.classes, 1)
    return net.softmax(net.flatten(x))


@network()
def densenet(net: Net, layers: tuple[int, ...] = (6, 12, 24, 16)) -> Tensor:
    """`layers`: how many in each block; a transition, which halves channels and image, stands between blocks."""
    growth = net.scaled(32)
    x = net.max_pool(net.conv(net.image(), 2 * growth, 7, stride=2), 3, 2)
    for block, count in enumerate(layers):
        if block > 0:
            x = net.average_pool(net.conv(net.scale_and_shift(x), x.shape[-1] // 2, 1), 2, 2, VALID)
        for _ in range(count):
            bottleneck = net.conv(net.scale_and_shift(x), 4 * growth, 1)
            x = net.concat(x, net.conv(bottleneck, growth, 3))
    return _normalised_head(net, x)


STAGES = ((16, 16), (32, 32), (48, 48, 64, 64))
"""Channels that each fire module squeezes to, stage by stage; it expands to eight times as many."""


@network(classes=1000)
def squeezenet(net: Net) -> Tensor:
    x = net.conv(net.image(), net.scaled(64), 3, 2, VALID, RELU)
    for stage in STAGES:
        x = net.halving_pool(x)
        for squeezed in map(net.scaled, stage):
            s = net.conv(x, squeezed, 1, activation=RELU)
            x = net.concat(*(net.conv(s, 4 * squeezed, kernel, activation=RELU) for kernel in (1, 3)))
    x = net.conv(x, net.classes, 1, activation=RELU)
    return net.softmax(net.flatten(net.average(x)))


ROW, COLUMN = (1, 7), (7, 1)
SHORT_ROW, SHORT_COLUMN = (1, 3), (3, 1)


@network(resolution=299)
def inception_v4(net: Net, blocks: tuple[int, int, int] = (4, 7, 3)) -> Tensor:
    """`blocks`: how many of Inception-A, -B and -C."""
    x = _v4_stem(net, _inception_stem(net))
    for _ in range(blocks[0]):
        x = net.mixed(x, 96, ((96, 1),), ((64, 1), (96, 3)), ((64, 1), (96, 3), (96, 3)))
    x = net.reduced(x, ((384, 3),), ((192, 1), (224, 3), (256, 3)))
    long = (192, 1), (192, COLUMN), (224, ROW), (224, COLUMN), (256, ROW)
    for _ in range(blocks[1]):
        x = net.mixed(x, 128, ((384, 1),), ((192, 1), (224, ROW), (256, COLUMN)), long)
    x = net.reduced(x, ((192, 1), (192, 3)), ((256, 1), (256, ROW), (320, COLUMN), (320, 3)))
    for _ in range(blocks[2]):
        x = _v4_c(net, x)
    return _inception_head(net, x)


def _inception_stem(net: Net) -> Tensor:
    x = net.layer(net.halving(net.image(), 32), 32, 3, padding=VALID)
    return net.layer(x, 64, 3)


def _inception_head(net: Net, x: Tensor) -> Tensor:
    return net.softmax(net.fully_connected(net.flatten(net.average(x)), net.classes))


def _v4_stem(net: Net, x: Tensor) -> Tensor:
    x = net.concat(net.halving_pool(x), net.halving(x, 96))
    left = net.layer(net.layer(x, 64, 1), 96, 3, padding=VALID)
    right = net.layer(net.chain(x, (64, 1), (64, ROW), (64, COLUMN)), 96, 3, padding=VALID)
    x = net.concat(left, right)
    return net.concat(net.halving(x, 192), net.halving_pool(x))


def _v4_c(net: Net, x: Tensor) -> Tensor:
    def forked(x: Tensor) -> Tensor:
        return net.concat(net.layer(x, 256, SHORT_ROW), net.layer(x, 256, SHORT_COLUMN))

    return net.concat(
        net.layer(x, 256, 1),
        forked(net.layer(x, 384, 1)),
        forked(net.chain(x, (384, 1), (448, SHORT_COLUMN), (512, SHORT_ROW))),
        net.layer(net.average_pool(x, 3), 256, 1),
    )


@network(resolution=299)
def inception_resnet_v2(net: Net, blocks: tuple[int, int, int] = (10, 20, 10)) -> Tensor:
    """`blocks`: how many residual blocks at each of the three sizes."""
    x = net.layer(net.halving_pool(_inception_stem(net)), 80, 1, padding=VALID)
    x = net.halving_pool(net.layer(x, 192, 3, padding=VALID))
    x = net.mixed(x, 64, ((96, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3)))
    for _ in range(blocks[0]):
        x = _residual(net, x, ((32, 1),), ((32, 1), (32, 3)), ((32, 1), (48, 3), (64, 3)))
    x = net.reduced(x, ((384, 3),), ((256, 1), (256, 3), (384, 3)))
    for _ in range(blocks[1]):
        x = _residual(net, x, ((192, 1),), ((128, 1), (160, ROW), (192, COLUMN)))
    x = net.reduced(x, ((256, 1), (384, 3)), ((256, 1), (288, 3)), ((256, 1), (288, 3), (320, 3)))
    for _ in range(blocks[2]):
        x = _residual(net, x, ((192, 1),), ((192, 1), (224, SHORT_ROW), (256, SHORT_COLUMN)))
    return _inception_head(net, net.layer(x, 1536, 1))


def _residual(net: Net, x: Tensor, *branches: tuple[Layer, ...]) -> Tensor:
    """The branches side by side, brought back to the channels of x, and added to it."""
    mixed = net.concat(*(net.chain(x, *branch) for branch in branches))
    return net.add(x, net.conv(mixed, x.shape[-1], 1))


CHANNELS = 44
"""Channels of a branch in the first cells; they double at each reduction."""


@network()
def nasnet(net: Net, cells: int = 4) -> Tensor:
    """`cells`: how many normal cells between reductions."""
    stem = net.conv(net.image(), net.scaled(32), 3, 2, VALID)
    first = _Cell(net, net.scaled(CHANNELS // 4)).reduction(None, stem)
    before, x = first, _Cell(net, net.scaled(CHANNELS // 2)).reduction(stem, first)
    for stage in range(3):
        cell = _Cell(net, net.scaled(CHANNELS * 2**stage))
        if stage > 0:
            before, x = x, cell.reduction(before, x)
        for _ in range(cells):
            before, x = x, cell.normal(before, x)
    return net.softmax(net.fully_connected(net.mean(net.relu(x), keep_dims=False), net.classes))


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

    def normal(self, before: Tensor, x: Tensor) -> Tensor:
        b, p, h = self.b, self.fitted(before, x), self.squeezed(x)
        return b.concat(
            p,
            b.add(self.separable(h, 5), self.separable(p, 3)),
            b.add(self.separable(p, 5), self.separable(p, 3)),
            b.add(b.average_pool(h, 3), p),
            b.add(b.average_pool(p, 3), b.average_pool(p, 3)),
            b.add(self.separable(h, 3), h),
        )

    def reduction(self, before: Tensor | None, x: Tensor) -> Tensor:
        b, p, h = self.b, self.fitted(before, x), self.squeezed(x)
        first = b.add(self.separable(h, 5, 2), self.separable(p, 7, 2))
        second = b.add(b.max_pool(h, 3, 2), self.separable(p, 7, 2))
        third = b.add(b.average_pool(h, 3, 2), self.separable(p, 5, 2))
        fourth = b.add(second, b.average_pool(first, 3))
        fifth = b.add(self.separable(first, 3), b.max_pool(h, 3, 2))
        return b.concat(second, third, fourth, fifth)


# The four of MLPerf Tiny are as Keras' converter leaves them: int8, ReLU fused, a dense layer last.


@network(resolution=96, classes=2, width=0.25, dtype=DType.INT8)
def visual_wake_words(net: Net) -> Tensor:
    """MobileNet v1: is there a person in the image?"""
    x = net.conv(net.image(), int(32 * net.width), 3, 2, activation=RELU)
    for full, stride in V1_BLOCKS:
        x = net.conv(net.depthwise(x, 3, stride, RELU), int(full * net.width), 1, activation=RELU)
    return _keras_head(net, x)


@network(classes=12, dtype=DType.INT8)
def keyword_spotting(net: Net, blocks: int = 4) -> Tensor:
    """A depthwise separable network over 49 frames of 10 cepstral coefficients."""
    x = net.conv(net.input(1, 49, 10, 1), 64, (10, 4), 2, activation=RELU)
    for _ in range(blocks):
        x = net.conv(net.depthwise(x, 3, activation=RELU), 64, 1, activation=RELU)
    return _keras_head(net, x)


@network(resolution=32, classes=10, dtype=DType.INT8)
def image_classification(net: Net) -> Tensor:
    """ResNet v1 of eight layers, for CIFAR-10."""
    x = net.conv(net.image(), 16, 3, activation=RELU)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        y = net.conv(net.conv(x, channels, 3, stride, activation=RELU), channels, 3)
        shortcut = net.conv(x, channels, 1, stride) if stride > 1 else x
        x = net.add(shortcut, y, RELU)
    return _keras_head(net, x)


@network(dtype=DType.INT8)
def anomaly_detection(net: Net) -> Tensor:
    """An autoencoder of the sound of a machine; what it cannot reproduce is anomalous."""
    x = net.input(1, 640)
    for units in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = net.fully_connected(x, units, RELU)
    return net.fully_connected(x, 640)


def _keras_head(net: Net, x: Tensor) -> Tensor:
    pooled = net.average_pool(x, plane(x), plane(x), VALID)
    return net.softmax(net.fully_connected(net.flatten_keras(pooled), net.classes))
