"""Random weights for a graph that has none, such that its outputs are meaningful.

Filters are drawn at random. Each channel is then scaled and shifted as batch normalisation would do it: over random
inputs, a convolution's output has a standard deviation near 1 and a small random mean, computed from the distribution
of its input and from the filter. So activations neither vanish nor saturate in deep networks, and nothing has to be
run. The float and the int8 variant of a model hold the same weights, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Nhwc, Node, Quantisation, Shape, Window1D, Window2D
from diagmem.ops import Activation

Floats = npt.NDArray[np.float64]

LITTLE = 0.01
"""The smooth part of a tensor that was never averaged: neighbouring pixels share some inputs."""

_CLIPS = {
    Activation.NONE: (-math.inf, math.inf),
    Activation.RELU: (0.0, math.inf),
    Activation.RELU_N1_TO_1: (-1.0, 1.0),
    Activation.RELU6: (0.0, 6.0),
}
_TAIL = 12.0
"""Standard deviations beyond which a normal distribution is 0 in float64."""
_TINY = 1e-12
"""Least variance, so that a constant channel can be divided by."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """For each channel (the last axis) a normal distribution, then clipped to [low, high]. One entry per channel.

    Channels are assumed to be independent, and so are pixels except for the part `smooth` of their variance, which
    neighbours share, so that averaging keeps it. With random weights this is close enough.
    """

    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    smooth: Floats

    @classmethod
    def normal(cls, mean: Floats, variance: Floats, smooth: Floats | float = LITTLE) -> Distribution:
        unbounded = np.full_like(mean, math.inf)
        return cls(mean, np.sqrt(variance), -unbounded, unbounded, np.full_like(mean, smooth))

    @classmethod
    def standard(cls, channels: int, variance: float) -> Distribution:
        return cls.normal(np.zeros(channels), np.full(channels, variance))

    def clipped(self, low: float, high: float) -> Distribution:
        return replace(self, low=np.clip(self.low, low, high), high=np.clip(self.high, low, high))

    def activated(self, activation: Activation) -> Distribution:
        return self.clipped(*_CLIPS[activation])

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and variance after clipping."""
        low = np.where(np.isinf(self.low), self.mean - _TAIL * self.std, self.low)
        high = np.where(np.isinf(self.high), self.mean + _TAIL * self.std, self.high)
        a, b = (np.clip((v - self.mean) / self.std, -_TAIL, _TAIL) for v in (low, high))
        below, above, slope = _cdf(a), 1 - _cdf(b), _pdf(a) - _pdf(b)
        inside = 1 - below - above
        first = self.std * slope + self.mean * inside + low * below + high * above
        second = self.std**2 * (inside + a * _pdf(a) - b * _pdf(b)) + 2 * self.mean * self.std * slope
        second += self.mean**2 * inside + low**2 * below + high**2 * above
        return first, np.maximum(second - first**2, _TINY)

    def bounds(self, deviations: float) -> tuple[float, float]:
        """The smallest and largest value that matter, over all channels; 0 lies between them."""
        low = np.maximum(self.low, self.mean - deviations * self.std)
        high = np.minimum(self.high, self.mean + deviations * self.std)
        return min(0.0, float(low.min())), max(0.0, float(high.max()))

    def largest_of(self, count: float) -> Distribution:
        """The largest of `count` pixels: a maximum commutes with clipping."""
        mean, variance = _largest_normal(count)
        return replace(self, mean=self.mean + self.std * mean, std=self.std * math.sqrt(variance))

    def average_of(self, count: float, overlapping: bool = False) -> Distribution:
        """The average of `count` pixels. Where windows overlap, half of the noise that is left is smooth."""
        mean, variance = self.moments()
        noise = (1 - self.smooth) / count
        left = self.smooth + noise
        smoothed = noise / 2 if overlapping else 0.0
        return Distribution.normal(mean, variance * left, (self.smooth + smoothed) / left)

    def diluted(self, share: float) -> Distribution:
        """A share of the values, the others 0."""
        mean, variance = self.moments()
        return Distribution.normal(share * mean, share * (variance + (1 - share) * mean**2), self.smooth)

    def plus(self, other: Distribution) -> Distribution:
        (mean, variance), (other_mean, other_variance) = self.moments(), other.moments()
        total = variance + other_variance
        smooth = (self.smooth * variance + other.smooth * other_variance) / total
        return Distribution.normal(mean + other_mean, total, smooth)

    def scaled(self, factor: Floats | float, shift: Floats | float = 0.0) -> Distribution:
        mean, variance = self.moments()
        return Distribution.normal(mean * factor + shift, variance * factor**2, self.smooth)

    def resized(self, channels: int) -> Distribution:
        """After a reshape: the channels repeat."""
        return Distribution(*(np.resize(getattr(self, f.name), channels) for f in fields(self)))

    @classmethod
    def joined(cls, *parts: Distribution) -> Distribution:
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


def _pdf(x: Floats) -> Floats:
    density: Floats = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return density


def _cdf(x: Floats) -> Floats:
    return np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x.tolist()])


@lru_cache(maxsize=64)
def _largest_normal(count: float) -> tuple[float, float]:
    """Mean and variance of the largest of `count` standard normal draws, integrated numerically."""
    edges = np.linspace(-8, 8, 1601)
    weight = np.diff(_cdf(edges) ** count)
    middle = (edges[1:] + edges[:-1]) / 2
    mean = float(weight @ middle)
    return mean, float(weight @ middle**2) - mean**2


INPUT_RANGE = 1.0
"""Inputs lie in [-1, 1]."""
INPUT_STD = 0.65
"""A normal distribution of this width, clipped to the input range, has variance 1/3, like uniform noise."""
GAINS = (0.5, 1.5)
"""Range of the channels' standard deviations: unequal, so that no channel can be confused with another."""
MEANS = (0.1, 0.9)
"""Range of the channels' means, above 0 so that a ReLU passes most values: clipping half of them and scaling up the
rest would amplify every error of the prediction, layer by layer."""
LOGIT_MEANS = (-0.4, 0.4)
"""The same for what enters a softmax, in units of its standard deviation."""
LOGIT_STD = 2.0
"""Standard deviation at the input of a softmax: of a thousand classes, a few then hold most of the probability."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Random integers in [-127, 127] times a scale: one for all, or one for each channel along `axis`.

    Only the seed is kept; the integers are drawn again when needed, so that a large model takes no memory.
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
    """By tensor index: what the constants hold (filters; biases, scales and shifts as vectors of float32), and
    how every activation is distributed over random inputs."""

    filters: dict[int, Filter]
    vectors: dict[int, Floats]
    distributions: dict[int, Distribution]


def drawn(shape: Shape, seed: tuple[int, int]) -> npt.NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-127, 128, shape, dtype=np.int8)


def rounded(values: Floats) -> Floats:
    """To 16 significant bits: differences between machines in the last bits never reach a file."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2**16) / 2**16, exponent)


def draw(graph: Graph, seed: int) -> Weights:
    """Weights for every constant without values. The same seed gives the same weights."""
    weights = Weights({}, {}, {})
    for index in graph.inputs:
        noise = Distribution.standard(graph.tensors[index].shape[-1], INPUT_STD**2)
        weights.distributions[index] = noise.clipped(-INPUT_RANGE, INPUT_RANGE)
    gains = _logit_gains(graph)
    for node in graph.nodes:
        visit = _VISITS.get(node.op.kind)
        if visit is None:
            raise ModelError(f"{node.label}: the zoo cannot draw weights for this kind of operation")
        distribution = visit(_Visit(node, weights, seed, gains.get(node.op.index)))
        activation = getattr(node.attributes, "activation", Activation.NONE)
        weights.distributions[node.output.index] = distribution.activated(activation)
    return weights


@dataclass(frozen=True, slots=True)
class _Visit:
    """An operation whose weights are to be drawn. `gain`: set if the output goes into a softmax."""

    node: Node
    weights: Weights
    seed: int
    gain: float | None

    @property
    def shrinkage(self) -> float:
        """Elements of the input per element of the output."""
        return self.node.input(0).elems / self.node.output.elems

    def distribution(self, position: int = 0) -> Distribution:
        return self.weights.distributions[self.node.input(position).index]

    def uniform(self, position: int, low: float, high: float) -> Floats:
        """Random numbers for each element of the vector at this input."""
        tensor = self.node.input(position)
        return np.random.default_rng((self.seed, tensor.index)).uniform(low, high, tensor.elems)

    def set_vector(self, position: int, values: Floats) -> None:
        self.weights.vectors[self.node.input(position).index] = rounded(values)


def _filtered(visit: _Visit) -> Distribution:
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
    # A sum over all channels has their smoothness.
    _, given = visit.distribution().moments()
    smooth = float(visit.distribution().smooth @ given / given.sum())
    return Distribution.normal(wanted_mean, scales**2 * variance, smooth)


def _sums(visit: _Visit, integers: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of each channel's sum of products, before its scale and bias.

    A tap that is in the padding at some pixels counts for the share of pixels where it is not.
    """
    mean, variance = visit.distribution().moments()
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


def _scaled(visit: _Visit) -> Distribution:
    """MUL by a constant: as the first half of batch normalisation."""
    _, variance = visit.distribution().moments()
    factor = visit.uniform(1, *GAINS) / np.sqrt(variance)
    visit.set_vector(1, factor)
    return visit.distribution().scaled(factor)


def _added(visit: _Visit) -> Distribution:
    """ADD of two branches, or of a constant: as the second half of batch normalisation."""
    if not visit.node.input(1).is_constant:
        return visit.distribution(0).plus(visit.distribution(1))
    mean, _ = visit.distribution().moments()
    shift = visit.uniform(1, *MEANS) - mean
    visit.set_vector(1, shift)
    return visit.distribution().scaled(1.0, shift)


def _average_pooled(visit: _Visit) -> Distribution:
    a = visit.node.attributes
    overlapping = a.kernel_h > a.stride_h or a.kernel_w > a.stride_w
    return visit.distribution().average_of(_window_elems(visit.node), overlapping)


_VISITS: dict[str, Callable[[_Visit], Distribution]] = {
    "CONV_2D": _filtered,
    "DEPTHWISE_CONV_2D": _filtered,
    "FULLY_CONNECTED": _filtered,
    "MUL": _scaled,
    "ADD": _added,
    "PAD": lambda visit: visit.distribution().diluted(visit.shrinkage),
    "MEAN": lambda visit: visit.distribution().average_of(visit.shrinkage),
    "AVERAGE_POOL_2D": _average_pooled,
    "MAX_POOL_2D": lambda visit: visit.distribution().largest_of(_window_elems(visit.node)),
    "CONCATENATION": lambda visit: Distribution.joined(*map(visit.distribution, range(len(visit.node.inputs)))),
    "SOFTMAX": lambda visit: Distribution.standard(visit.node.output.shape[-1], 1.0).clipped(0.0, 1.0),
    "RELU": lambda visit: visit.distribution().activated(Activation.RELU),
    "RESHAPE": lambda visit: visit.distribution().resized(visit.node.output.shape[-1]),
    "STRIDED_SLICE": _Visit.distribution,
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
    """How many pixels a pooling window covers, on average over its output."""
    return float(_tap_shares(node, (node.attributes.kernel_h, node.attributes.kernel_w)).sum())


def _logit_gains(graph: Graph) -> dict[int, float]:
    """Op index -> gain, for operations whose output goes into a softmax, possibly reshaped or averaged in between.
    Averaging shrinks the deviation; the gain compensates for it."""
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


RANGE_DEVIATIONS = 5.0
"""Standard deviations that a tensor's quantised range covers."""

SOFTMAX = Quantisation((1 / 256,), (-128,))
"""The only quantisation that TFLite's int8 softmax writes."""

COPYING = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "RESHAPE", "CONCATENATION", "PAD", "STRIDED_SLICE"})
"""Kinds whose kernels do not rescale: inputs and output share one quantisation."""


def quantise(graph: Graph, weights: Weights) -> dict[int, Quantisation]:
    """Tensor index -> quantisation, for the int8 tensors and the int32 biases; empty for a float graph."""
    found = _activations(graph, weights)
    for index in (t.index for t in graph.tensors if t.is_constant and t.dtype is DType.INT8):
        if index in weights.filters:
            found[index] = _symmetric(weights.filters[index].scales, weights.filters[index].axis)
        else:
            found[index] = _symmetric(rounded(np.abs(weights.vectors[index]).max(keepdims=True) / 127))
    for op in graph.ops:
        if len(op.inputs) == 3 and graph.tensors[op.inputs[2]].dtype is DType.INT32 and op.inputs[1] in found:
            data, filters_of = found[op.inputs[0]], found[op.inputs[1]]
            found[op.inputs[2]] = _symmetric(data.scales[0] * np.array(filters_of.scales))
    return found


def _activations(graph: Graph, weights: Weights) -> dict[int, Quantisation]:
    leader = _leaders(graph)
    bounds: dict[int, tuple[float, float]] = {}
    members = [i for i in weights.distributions if graph.tensors[i].dtype is DType.INT8]
    copies = {op.outputs[0] for op in graph.ops if op.kind in COPYING}
    for index in members:
        if index not in copies:  # A copy stays within the range of its source.
            low, high = weights.distributions[index].bounds(RANGE_DEVIATIONS)
            group_low, group_high = bounds.get(leader[index], (0.0, 0.0))
            bounds[leader[index]] = min(low, group_low), max(high, group_high)
    found = {index: _asymmetric(*bounds[leader[index]]) for index in members}
    softmaxes = [op.outputs[0] for op in graph.ops if op.kind == "SOFTMAX"]
    return found | {index: SOFTMAX for index in softmaxes if index in found}


def _leaders(graph: Graph) -> list[int]:
    """For each tensor, the least index among those that must share its quantisation."""
    leader = list(range(len(graph.tensors)))

    def find(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    for node in graph.nodes:
        if node.op.kind in COPYING:
            roots = {find(t.index) for t in (node.output, *(t for _, t in node.activations()))}
            for root in roots:
                leader[root] = min(roots)
    return [find(index) for index in leader]


def _asymmetric(low: float, high: float) -> Quantisation:
    scale = float(rounded(np.array([(high - low) / 255]))[0])
    return Quantisation((scale,), (int(np.clip(round(-128 - low / scale), -128, 127)),))


def _symmetric(scales: Floats, axis: int = 0) -> Quantisation:
    return Quantisation(tuple(float(s) for s in scales.astype(np.float32)), (0,) * len(scales), axis)
