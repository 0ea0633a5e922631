"""Where runtimes are known to differ from what is computed here: the table of docs/compatibility.md, as code.

One list for all who compare: `verify` calls a difference that is in it documented, and the tests of the references
leave it out. Where it is known what the other runtime computes instead, `theirs` computes it, so that a difference can
be held against what is documented, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.graph import DType, Graph, Node
from diagmem.ops import Activation, kinds
from diagmem.ops.kind import Array, Values
from diagmem.ops.numerics.quantised import integer_range, quantised, rounds_to_even, scale_of, zero_point_of
from diagmem.ops.numerics.weighted_sums import is_hybrid

TFLM, LITERT, ONNXRUNTIME = "tflm", "litert", "onnxruntime"

Theirs = Callable[[Node, Values], tuple[Array, ...]]
"""What the runtime computes, like a kind's `reference`."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """`applies`: to which nodes of the kinds. `theirs` is None where nobody can say what the runtime computes."""

    runtime: str
    kinds: tuple[str, ...]
    why: str
    applies: Callable[[Node], bool]
    theirs: Theirs | None = None


def deviation(runtime: str, node: Node) -> Deviation | None:
    """Why this runtime is not followed at a node; None: it is."""
    found = (d for d in DEVIATIONS if d.runtime == runtime and node.op.kind in d.kinds and d.applies(node))
    return next(found, None)


def deviations(runtime: str, graph: Graph) -> Iterator[tuple[Node, Deviation]]:
    """The nodes of a graph at which a runtime is not followed."""
    for node in graph.nodes:
        found = deviation(runtime, node)
        if found is not None:
            yield node, found


def _is_rescaled(node: Node) -> bool:
    given, made = node.input(0).quantisation, node.output.quantisation
    return (
        given is not None and made is not None and (given.scales, given.zero_points) != (made.scales, made.zero_points)
    )


def _clamped_as_stored(node: Node, inputs: Values) -> tuple[Array, ...]:
    """RELU6 between the stored numbers that stand for 0 and 6 in the input, whatever the output's scale."""
    data, given = inputs[0], node.input(0)
    assert data is not None
    info = np.iinfo(given.dtype.numpy)
    six = np.clip(quantised(6.0, given), info.min, info.max)
    return (np.clip(data, zero_point_of(given), int(six)).astype(data.dtype).reshape(node.output.shape),)


def _without_activation(node: Node, inputs: Values) -> tuple[Array, ...]:
    attributes = replace(node.attributes, activation=Activation.NONE)
    return kinds()[node.op.kind].reference(replace(node, op=replace(node.op, attributes=attributes)), inputs)


def _is_odd_int32(node: Node) -> bool:
    return node.output.dtype is DType.INT32 and node.attributes.activation is not Activation.NONE


def _has_no_channels(node: Node) -> bool:
    """Blocks along all axes but the first."""
    return len(node.input(0).shape) == 1 + node.input(1).elems


def _is_padded_or_has_no_channels(node: Node) -> bool:
    padding = node.input(2).data
    return _has_no_channels(node) or padding is None or bool(np.any(padding))


def _has_16_bits(node: Node) -> bool:
    return node.output.dtype is DType.INT16


def _is_signed(node: Node) -> bool:
    return node.output.dtype in (DType.INT8, DType.INT16)


def _is_divided(node: Node) -> bool:
    return node.output.dtype is DType.INT8


def _has_narrow_bias(node: Node) -> bool:
    bias = node.inputs[-1]
    return _has_16_bits(node) and bias is not None and bias.dtype is DType.INT32


def _leaves_places(node: Node) -> bool:
    """Only classes one by one fill all places with zeros, and then one for each detection alone."""
    return not node.attributes.use_regular_nms or node.attributes.max_classes_per_detection > 1


def _is_no_plain_slice(node: Node) -> bool:
    """Not one slice, from a begin to an end, for each axis."""
    a = node.attributes
    return bool(a.ellipsis_mask or a.new_axis_mask or a.offset) or node.input(1).elems < len(node.input(0).shape)


def _has_half_weights(node: Node) -> bool:
    return node.input(1).dtype is DType.FLOAT16


def _writes_beyond(node: Node) -> bool:
    return bool(node.attributes.slots > 1)


def _rounds_once(node: Node) -> bool:
    return rounds_to_even(node.output)


def _sum_of_singles(node: Node, inputs: Values) -> tuple[Array, ...]:
    """A sum as onnxruntime has it on x86: three terms in single precision. On Arm it has another arithmetic."""
    output = np.float32(scale_of(node.output))
    factors = [np.float32(scale_of(node.input(place))) / output for place in (0, 1)]
    zeros = [np.float32(zero_point_of(node.input(place))) for place in (0, 1)]
    first, second = (np.asarray(values).astype(np.float32) for values in inputs[:2])
    constant = np.float32(zero_point_of(node.output)) - (factors[0] * zeros[0] + factors[1] * zeros[1])
    total = np.rint(constant + first * factors[0] + second * factors[1])
    low, high = integer_range(node.attributes.activation, node.output)
    return (np.clip(total, low, high).astype(np.int8).reshape(node.output.shape),)


def _product_of_singles(node: Node, inputs: Values) -> tuple[Array, ...]:
    """A product as onnxruntime has it: the zero point is added before it is rounded, so that halves may go the other
    way."""
    factor = (
        np.float32(scale_of(node.input(0))) * np.float32(scale_of(node.input(1))) / np.float32(scale_of(node.output))
    )
    first, second = (
        np.asarray(values).astype(np.float32) - np.float32(zero_point_of(node.input(place)))
        for place, values in enumerate(inputs[:2])
    )
    total = np.rint(first * second * factor + np.float32(zero_point_of(node.output)))
    low, high = integer_range(node.attributes.activation, node.output)
    return (np.clip(total, low, high).astype(np.int8).reshape(node.output.shape),)


def _is_own_mean(node: Node) -> bool:
    """A ReduceMean, which onnxruntime computes in float32; a pool of the whole image keeps its axes."""
    return rounds_to_even(node.output) and not node.attributes.keep_dims


def _mean_of_reals(node: Node, inputs: Values) -> tuple[Array, ...]:
    """Float32 values, their mean, and that rounded."""
    data, given = np.asarray(inputs[0]), node.input(0)
    reals = (data.astype(np.int64) - zero_point_of(given)).astype(np.float32) * np.float32(scale_of(given))
    mean = reals.astype(np.float64).mean(axis=tuple(node.input(1).ints)).astype(np.float32)
    found = np.rint(mean / np.float32(scale_of(node.output))) + zero_point_of(node.output)
    return (np.clip(found, -128, 127).astype(np.int8).reshape(node.output.shape),)


def _leaves_gaps(node: Node) -> bool:
    return (node.attributes.start, node.attributes.end) != (0, node.output.elems)


def _waits_for_steps(node: Node) -> bool:
    return bool(node.attributes.missing)


def _waits_for_frames(node: Node) -> bool:
    """After the first one, or between stacks."""
    return bool(node.attributes.right) or node.attributes.step > 1


_NOT_THERE = "it leaves what it made before where there is nothing to give, and says so; here that is 0"
_UNWRITTEN = "it does not write all places that lie behind the last detection; here they are 0"
_NARROW = "it takes 32-bit biases for 64-bit ones, and reads beyond them"
_SHIFTED = "it shifts small quotients by more than 31 bits, of which processors make what they like"
_PRECISION = "it computes multipliers in single precision: of 65,536 inputs a few are off by one"

DEVIATIONS = (
    Deviation(
        ONNXRUNTIME,
        ("ADD",),
        "its sums of 8 bits are rounded in single precision, in another way on each processor: off by one at most",
        _rounds_once,
        _sum_of_singles,
    ),
    Deviation(
        ONNXRUNTIME,
        ("MUL",),
        "its products of 8 bits are rounded with the zero point in them: halves may be off by one",
        _rounds_once,
        _product_of_singles,
    ),
    Deviation(
        ONNXRUNTIME,
        ("MEAN",),
        "it computes a ReduceMean of 8 bits in float32: halves may be off by one",
        _is_own_mean,
        _mean_of_reals,
    ),
    Deviation(
        TFLM,
        ("RELU6",),
        "it does not rescale where input and output differ in scale or zero point, as LiteRT does",
        _is_rescaled,
        _clamped_as_stored,
    ),
    Deviation(TFLM, ("ADD",), "it does not clamp sums of 32 bits", _is_odd_int32, _without_activation),
    Deviation(
        TFLM,
        ("SPACE_TO_BATCH_ND",),
        "it never sets the value that it pads with, and reads other pixels where there are no channels",
        _is_padded_or_has_no_channels,
    ),
    Deviation(TFLM, ("BATCH_TO_SPACE_ND",), "it reads other pixels where there are no channels", _has_no_channels),
    Deviation(TFLM, ("STRIDED_SLICE",), "it has room for four slices", lambda node: node.input(1).elems > 4),
    Deviation(
        TFLM,
        ("STRIDED_SLICE",),
        "it takes ellipses, new axes and lengths for plain slices, and reads one for each axis, there or not",
        _is_no_plain_slice,
    ),
    Deviation(
        TFLM,
        ("CUSTOM:SignalEnergy",),
        "it does not write frequencies that are not asked for; here they are 0",
        _leaves_gaps,
    ),
    Deviation(TFLM, ("CUSTOM:SignalFramer",), _NOT_THERE, _waits_for_steps),
    Deviation(TFLM, ("CUSTOM:SignalStacker",), _NOT_THERE, _waits_for_frames),
    Deviation(
        TFLM,
        ("CUSTOM:TFLite_Detection_PostProcess",),
        "it writes several classes of one detection beyond its outputs",
        _writes_beyond,
    ),
    *(
        Deviation(runtime, ("CUSTOM:TFLite_Detection_PostProcess",), _UNWRITTEN, _leaves_places)
        for runtime in (TFLM, LITERT)
    ),
    *(Deviation(runtime, ("DIV",), _SHIFTED, _is_divided) for runtime in (TFLM, LITERT)),
    *(
        Deviation(runtime, ("DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"), _NARROW, _has_narrow_bias)
        for runtime in (TFLM, LITERT)
    ),
    Deviation(LITERT, ("RELU", "LEAKY_RELU", "ABS", "MUL", "PRELU"), _PRECISION, _has_16_bits),
    Deviation(
        LITERT,
        ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
        "it rounds float32 inputs to 8 bits where weights have 8 bits",
        is_hybrid,
    ),
    Deviation(
        LITERT,
        ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
        "its reference kernels take weights of half precision for others",
        _has_half_weights,
    ),
    Deviation(LITERT, ("SOFTMAX",), "its tables for 16 bits are made in double precision", _has_16_bits),
    Deviation(LITERT, ("FULLY_CONNECTED",), "it scales sums in double precision, and rounds once", _is_signed),
    Deviation(
        LITERT,
        ("CONV_2D",),
        "it takes 32-bit biases of groups and dilations for 64-bit ones",
        _has_narrow_bias,
    ),
    Deviation(LITERT, ("SUM",), "its quantised sums are off where scales differ", _is_rescaled),
    Deviation(LITERT, ("TRANSPOSE",), "it does not copy a scalar", lambda node: node.output.elems == 1),
)
"""Nodes for which a runtime is not followed, and why."""
