"""Inception v4 and Inception-ResNet v2, in the style of TF-Slim."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.frontends.zoo.builder import SAME, VALID, Builder, Size, plane, scaled
from diagmem.model.graph import DType, Graph, Padding, Tensor

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
