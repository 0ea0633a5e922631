"""Weights for a graph that has none, such that it computes something worth looking at.

Filters are drawn at random. Each channel is then scaled and shifted as batch normalisation would do it: over random
inputs, a convolution's output has a standard deviation near 1 and a small random mean, worked out from the spread of
its input and from the filter drawn. So activations neither die out nor saturate, however deep the network, and nothing
has to be run. The float and the int8 variant of a model hold the same weights, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagmem.frontends.zoo.spread import Floats, Spread
from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph, Nhwc, Node, Shape, Window1D, Window2D
from diagmem.ops import Activation

INPUT_RANGE = 1.0
"""Inputs lie in [-1, 1]."""
INPUT_STD = 0.65
"""A normal distribution of this width, clipped to the input range, has variance 1/3, as uniform noise has."""
GAINS = (0.5, 1.5)
"""Standard deviations that channels are given: unequal, so that no channel can be taken for another."""
MEANS = (0.1, 0.9)
"""Means that channels are given. They are above 0 so that a ReLU passes most values: cutting off half of them and
scaling up the rest would amplify every slip of the prediction, layer by layer."""
LOGIT_MEANS = (-0.4, 0.4)
"""The same for what enters a softmax, in units of its standard deviation."""
LOGIT_STD = 2.0
"""Spread of what enters a softmax: of a thousand classes, a few then hold most of the probability."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Integers of [-127, 127] drawn at random, times a scale: one for all, or one for each channel along `axis`.

    Only the seed is kept; the integers are drawn again where they are needed, so that a large model takes no memory.
    """

    shape: Shape
    seed: tuple[int, int]
    axis: int
    scales: Floats

    def integers(self) -> npt.NDArray[np.int8]:
        return drawn(self.shape, self.seed)

    def real(self) -> npt.NDArray[np.float32]:
        along = [1] * len(self.shape)
        along[self.axis] = len(self.scales)
        return np.multiply(self.integers(), self.scales.reshape(along).astype(np.float32), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Weights:
    """By tensor index: what the constants hold (filters; biases, scales and shifts as vectors of real numbers), and
    how every activation is spread over random inputs."""

    filters: dict[int, Filter]
    vectors: dict[int, Floats]
    spreads: dict[int, Spread]


def drawn(shape: Shape, seed: tuple[int, int]) -> npt.NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-127, 128, shape, dtype=np.int8)


def rounded(values: Floats) -> Floats:
    """To 16 significant bits: what machines do differently in the last bits never reaches a file."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2**16) / 2**16, exponent)


def draw(graph: Graph, seed: int) -> Weights:
    """Weights for every constant without values. The same seed gives the same weights."""
    weights = Weights({}, {}, {})
    for index in graph.inputs:
        channels = np.zeros(graph.tensors[index].shape[-1])
        weights.spreads[index] = Spread.normal(channels, channels + INPUT_STD**2).clipped(-INPUT_RANGE, INPUT_RANGE)
    gains = _logit_gains(graph)
    for node in graph.nodes:
        visit = _VISITS.get(node.op.kind)
        if visit is None:
            raise ModelError(f"{node.label}: the zoo cannot draw weights for this kind of operation")
        spread = visit(_Visit(node, weights, seed, gains.get(node.op.index)))
        activation = getattr(node.attributes, "activation", Activation.NONE)
        weights.spreads[node.output.index] = spread.activated(activation)
    return weights


@dataclass(frozen=True, slots=True)
class _Visit:
    """An operation whose weights are to be drawn. `gain` is set where the output is on its way into a softmax."""

    node: Node
    weights: Weights
    seed: int
    gain: float | None

    def spread(self, position: int = 0) -> Spread:
        return self.weights.spreads[self.node.input(position).index]

    def uniform(self, position: int, low: float, high: float) -> Floats:
        """Random numbers for the vector at this position, one for each of its elements."""
        tensor = self.node.input(position)
        return np.random.default_rng((self.seed, tensor.index)).uniform(low, high, tensor.elems)

    def set_vector(self, position: int, values: Floats) -> None:
        self.weights.vectors[self.node.input(position).index] = rounded(values)


def _filtered(visit: _Visit) -> Spread:
    """CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED: channels normalised by the filter's scale, centred by the bias."""
    tensor, kind = visit.node.input(1), visit.node.op.kind
    seed = (visit.seed, tensor.index)
    mean, variance = _sums(visit, drawn(tensor.shape, seed).astype(np.float64))
    if visit.gain is None:
        wanted_mean = visit.uniform(2, *MEANS)
        wanted_std = np.random.default_rng((*seed, 1)).uniform(*GAINS, len(mean))
    else:
        wanted_mean, wanted_std = visit.uniform(2, *LOGIT_MEANS) * visit.gain, np.full(len(mean), visit.gain)
    scales = wanted_std / np.sqrt(variance)
    if kind == "FULLY_CONNECTED":  # TFLite has one scale for all its channels.
        scales = np.sqrt((scales**2).mean(keepdims=True))
    scales = rounded(scales)
    axis = len(tensor.shape) - 1 if kind == "DEPTHWISE_CONV_2D" else 0
    visit.weights.filters[tensor.index] = Filter(tensor.shape, seed, axis, scales)
    visit.set_vector(2, wanted_mean - scales * mean)
    return Spread.normal(wanted_mean, scales**2 * variance, _mixed_smoothness(visit.spread()))


def _mixed_smoothness(spread: Spread) -> float:
    """What a sum over all channels takes over of their smoothness."""
    _, variance = spread.moments()
    return float(spread.smooth @ variance / variance.sum())


def _sums(visit: _Visit, integers: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of each channel's sum of products, before its scale and bias.

    A tap that falls into the padding at some of the pixels counts for the share of pixels where it does not.
    """
    mean, variance = visit.spread().moments()
    kind = visit.node.op.kind
    shares = np.ones((1, 1)) if kind == "FULLY_CONNECTED" else _tap_shares(visit.node, integers.shape[1:3])
    tap = shares[:, :, None]
    means, variances = tap * mean, tap * (variance + mean**2) - (tap * mean) ** 2
    if kind == "DEPTHWISE_CONV_2D":
        multiplier = integers.shape[3] // len(mean)
        means, variances = np.repeat(means, multiplier, axis=2), np.repeat(variances, multiplier, axis=2)
        return (integers[0] * means).sum((0, 1)), (integers[0] ** 2 * variances).sum((0, 1))
    flat = integers.reshape(len(integers), -1)
    return flat @ means.reshape(-1), flat**2 @ variances.reshape(-1)


def _scaled(visit: _Visit) -> Spread:
    """MUL by a constant: as the first half of batch normalisation."""
    _, variance = visit.spread().moments()
    factor = visit.uniform(1, *GAINS) / np.sqrt(variance)
    visit.set_vector(1, factor)
    return visit.spread().times(factor)


def _added(visit: _Visit) -> Spread:
    """ADD of two branches, or of a constant: as the second half of batch normalisation."""
    if not visit.node.input(1).is_constant:
        return visit.spread(0).plus(visit.spread(1))
    mean, _ = visit.spread().moments()
    shift = visit.uniform(1, *MEANS) - mean
    visit.set_vector(1, shift)
    return visit.spread().shifted(shift)


def _padded(visit: _Visit) -> Spread:
    return visit.spread().diluted(visit.node.input(0).elems / visit.node.output.elems)


def _averaged(visit: _Visit) -> Spread:
    return visit.spread().average_of(visit.node.input(0).elems / visit.node.output.elems)


def _average_pooled(visit: _Visit) -> Spread:
    a = visit.node.attributes
    overlapping = a.kernel_h > a.stride_h or a.kernel_w > a.stride_w
    return visit.spread().average_of(_window_elems(visit.node), overlapping)


def _max_pooled(visit: _Visit) -> Spread:
    return visit.spread().largest_of(_window_elems(visit.node))


def _joined(visit: _Visit) -> Spread:
    return Spread.joined(*(visit.spread(i) for i in range(len(visit.node.inputs))))


def _probabilities(visit: _Visit) -> Spread:
    channels = np.zeros(visit.node.output.shape[-1])
    return Spread.normal(channels, channels + 1.0).clipped(0.0, 1.0)


_VISITS: dict[str, Callable[[_Visit], Spread]] = {
    "CONV_2D": _filtered,
    "DEPTHWISE_CONV_2D": _filtered,
    "FULLY_CONNECTED": _filtered,
    "MUL": _scaled,
    "ADD": _added,
    "PAD": _padded,
    "MEAN": _averaged,
    "AVERAGE_POOL_2D": _average_pooled,
    "MAX_POOL_2D": _max_pooled,
    "CONCATENATION": _joined,
    "SOFTMAX": _probabilities,
    "RELU": lambda visit: visit.spread().activated(Activation.RELU),
    "RESHAPE": lambda visit: visit.spread().resized(visit.node.output.shape[-1]),
    "STRIDED_SLICE": _Visit.spread,
}


def _tap_shares(node: Node, kernel: tuple[int, ...]) -> Floats:
    """For each tap of the window, the share of output pixels at which it reads the image and not the padding."""
    a = node.attributes
    dilation = (getattr(a, "dilation_h", 1), getattr(a, "dilation_w", 1))
    height, width = kernel
    window = Window2D.resolve(Nhwc.of(node.input(0)), (height, width), (a.stride_h, a.stride_w), dilation, a.padding)
    return np.outer(_axis_shares(window.rows), _axis_shares(window.cols))


def _axis_shares(window: Window1D) -> Floats:
    taps = np.arange(window.kernel)[:, None]
    in_bounds = (window.first_taps() <= taps) & (taps < window.end_taps())
    shares: Floats = in_bounds.mean(axis=1)
    return shares


def _window_elems(node: Node) -> float:
    """How many pixels a pooling looks at, on average over its output."""
    return float(_tap_shares(node, (node.attributes.kernel_h, node.attributes.kernel_w)).sum())


def _logit_gains(graph: Graph) -> dict[int, float]:
    """Op index -> gain, for the operations whose output enters a softmax, reshaped or averaged on the way.

    Averaging shrinks the spread; the gain makes up for it.
    """
    gains = {}
    for node in graph.nodes:
        if node.op.kind != "SOFTMAX":
            continue
        pixels = 1.0
        source = graph.nodes[graph.producer[node.op.inputs[0]]]
        while source.op.kind in ("RESHAPE", "AVERAGE_POOL_2D", "MEAN"):
            pixels *= source.input(0).elems / source.output.elems
            source = graph.nodes[graph.producer[source.op.inputs[0]]]
        gains[source.op.index] = LOGIT_STD * math.sqrt(pixels)
    return gains
