"""The four reference models of MLPerf Tiny, as Keras' converter leaves them: int8, ReLU fused, a dense layer last."""

from __future__ import annotations

from diagmem.frontends.zoo.builder import RELU, VALID, Builder, plane
from diagmem.frontends.zoo.imagenet import V1_BLOCKS
from diagmem.model.graph import DType, Graph, Tensor


def visual_wake_words(
    name: str, width: float = 0.25, resolution: int = 96, dtype: DType = DType.INT8, classes: int = 2
) -> Graph:
    """MobileNet v1: is there a person in the image?"""
    b = Builder(name, dtype)
    x = b.conv(b.input(1, resolution, resolution, 3), int(32 * width), 3, 2, activation=RELU)
    for full, stride in V1_BLOCKS:
        x = b.conv(b.depthwise(x, 3, stride, RELU), int(full * width), 1, activation=RELU)
    return b.graph(_head(b, x, classes))


def keyword_spotting(name: str, blocks: int = 4, dtype: DType = DType.INT8, classes: int = 12) -> Graph:
    """A depthwise separable network over 49 frames of 10 cepstral coefficients."""
    b = Builder(name, dtype)
    x = b.conv(b.input(1, 49, 10, 1), 64, (10, 4), 2, activation=RELU)
    for _ in range(blocks):
        x = b.conv(b.depthwise(x, 3, activation=RELU), 64, 1, activation=RELU)
    return b.graph(_head(b, x, classes))


def image_classification(name: str, resolution: int = 32, dtype: DType = DType.INT8, classes: int = 10) -> Graph:
    """ResNet v1 of eight layers, for CIFAR-10."""
    b = Builder(name, dtype)
    x = b.conv(b.input(1, resolution, resolution, 3), 16, 3, activation=RELU)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        y = b.conv(b.conv(x, channels, 3, stride, activation=RELU), channels, 3)
        shortcut = b.conv(x, channels, 1, stride) if stride > 1 else x
        x = b.add(shortcut, y, RELU)
    return b.graph(_head(b, x, classes))


def anomaly_detection(name: str, features: int = 640, dtype: DType = DType.INT8) -> Graph:
    """An autoencoder of the sound of a machine; what it cannot reproduce is anomalous."""
    b = Builder(name, dtype)
    x = b.input(1, features)
    for units in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = b.fully_connected(x, units, RELU)
    return b.graph(b.fully_connected(x, features))


def _head(b: Builder, x: Tensor, classes: int) -> Tensor:
    pooled = b.average_pool(x, plane(x), plane(x), VALID)
    return b.softmax(b.fully_connected(b.flatten_keras(pooled), classes))
