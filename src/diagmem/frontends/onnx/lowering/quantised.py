"""Quantised networks, with QuantizeLinear and DequantizeLinear or in the QOperator format.

DequantizeLinear computes nothing: its output is the integers, which count as float32 (`Stored.is_dequantised`). If an
operation reads only such tensors, and a QuantizeLinear alone reads its result, possibly behind an activation, the three
become one operation on integers. QOperators are lowered by the same table (`LAYERS`). Everything else is computed in
float32, as the file says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from diagmem.frontends.onnx.builder import Constant, Scale, Shuffled, Stored, Value, in_file_order
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts, composed
from diagmem.frontends.onnx.lowering import images
from diagmem.frontends.onnx.lowering.arithmetic import RANGES, broadcast_operands, last, limits_of
from diagmem.frontends.onnx.lowering.matrix import layer_input
from diagmem.frontends.onnx.lowering.moving import given_axes, joined
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.graph import DType, Quantisation, Tensor
from diagmem.ops import Activation
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.normalisation.softmax import Softmax
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce

TYPES = {"int8": DType.INT8, "uint8": DType.INT8, "int16": DType.INT16}
"""The types that quantised values are stored in."""


@dataclass(frozen=True, slots=True)
class Target:
    """The result of an operation on integers: its name, scale and activation. `done`: the nodes that the operation
    replaces beside its own."""

    name: str
    scale: Scale
    dtype: DType
    activation: Activation = Activation.NONE
    done: tuple[int, ...] = ()


def scale_at(im: Importer, node: OnnxNode, place: int, axis: int = 0) -> tuple[Scale, np.dtype[Any]]:
    """Scale and zero point at two inputs of a node, and the type of the stored values, which is the zero point's."""
    scales = im.array(node, place).reshape(-1).astype(np.float32)
    zero = im.optional_array(node, place + 1)
    dtype = zero.dtype if zero is not None else np.dtype(np.uint8)
    zeros = np.zeros(1, dtype=np.int64) if zero is None else zero.reshape(-1).astype(np.int64)
    if not len(scales) or len(zeros) not in (1, len(scales)) or not (np.isfinite(scales) & (scales > 0)).all():
        raise im.refuse(node, "its scales must be finite and above zero, with a zero point each")
    zeros = np.broadcast_to(zeros - 128 if dtype == np.uint8 else zeros, scales.shape)
    return Scale(tuple(float(s) for s in scales), tuple(int(z) for z in zeros), axis, dtype == np.uint8), dtype


def signed(values: Any) -> Any:
    """uint8 values as int8, 128 lower."""
    return (values.astype(np.int16) - 128).astype(np.int8) if values.dtype == np.uint8 else values


def dequantize(im: Importer, node: OnnxNode) -> Value:
    value = im.input(node)
    axis = im.attribute(node, "axis", 1)
    im.attribute(node, "output_dtype", 0)
    if im.attribute(node, "block_size", 0):
        raise im.refuse(node, "scales for blocks are not supported")
    is_single = im.array(node, 1).size == 1
    scale, _ = scale_at(im, node, 1, 0 if is_single else im.axis(node, axis, len(value.shape)))
    if isinstance(value, Constant):
        return dequantised_constant(im, node, value, scale)
    if not is_single:
        raise im.refuse(node, "only constants may have several scales")
    return as_float32(im, node, value, scale)


def dequantised_constant(im: Importer, node: OnnxNode, value: Constant, scale: Scale) -> Constant:
    """The float32 values, and the integers that they are stored as."""
    values = value.array
    if im.given(node, 2) is None and values.dtype != np.uint8:
        scale = replace(scale, zero_points=(0,) * len(scale.scales), is_unsigned=False)
    elif im.given(node, 2) is not None and im.array(node, 2).dtype != values.dtype:
        raise im.damaged(node, "its zero point is of another type than its values")
    shape: list[int] = [1] * values.ndim
    if len(scale.scales) > 1:
        if values.shape[scale.axis] != len(scale.scales):
            raise im.damaged(node, "it has not one scale for each index of its axis")
        shape[scale.axis] = -1
    held = signed(values)
    scales, zeros = (np.array(part).reshape(shape) for part in (scale.scales, scale.zero_points))
    real = (held.astype(np.int64) - zeros).astype(np.float32) * scales.astype(np.float32)
    return Constant(real.reshape(values.shape), (held, scale))


def as_float32(im: Importer, node: OnnxNode, value: Value, scale: Scale) -> Value:
    """Integers that count as float32."""

    def change(source: Stored) -> Stored:
        tensor = im.build.tensors[source.tensor.index]
        if tensor.dtype is DType.UINT8:
            # An input of the model, 128 lower. Nothing is rounded there.
            zeros = tuple(zero + 128 for zero in scale.zero_points)
            held, lower = Quantisation(scale.scales, zeros), Quantisation(scale.scales, scale.zero_points)
            tensor = im.build.make("QUANTIZE", [im.build.quantise(tensor, held)], dtype=DType.INT8, quantisation=lower)
        elif tensor.quantisation is None:
            if tensor.dtype not in (DType.INT8, DType.INT16):
                raise im.refuse(node, f"data of type {tensor.dtype.value}; supported: int8, int16")
            tensor = im.build.quantise(tensor, scale.quantisation)
        elif tensor.quantisation != scale.quantisation:
            raise im.refuse(node, "it takes integers for others than those that they were quantised to")
        return replace(source, tensor=tensor, is_dequantised=True)

    return im.build.by_elements(value, change)


def quantize(im: Importer, node: OnnxNode) -> Value:
    value = im.input(node)
    scale, dtype = scale_at(im, node, 1)
    axis = im.attribute(node, "axis", 1)
    im.attribute(node, "saturate", 1)
    for name in ("block_size", "output_dtype", "precision"):
        if im.attribute(node, name, 0):
            raise im.refuse(node, f"{name} is not supported")
    if dtype.kind in "iu" and isinstance(value, Constant):
        # Weights in training for quantisation, which exporters leave as they are.
        shape = [-1 if len(scale.scales) > 1 and a == axis % value.array.ndim else 1 for a in range(value.array.ndim)]
        scales, zeros = (im.array(node, p).reshape(shape) if im.given(node, p) else 0 for p in (1, 2))
        units = np.rint(value.array / scales).astype(np.float64) + zeros
        return Constant(np.clip(units, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype))
    if len(scale.scales) > 1 or dtype.name not in TYPES:
        raise im.refuse(node, "one scale, and int8, uint8 or int16, are supported")
    return quantised(im, value, scale, TYPES[dtype.name], node.outputs[0])


def quantised(im: Importer, value: Value, scale: Scale, dtype: DType, name: str) -> Value:
    """Float32 values as integers on a scale; integers on that scale stay."""

    def change(source: Stored) -> Stored:
        tensor = source.tensor
        if not source.is_dequantised or (tensor.dtype, tensor.quantisation) != (dtype, scale.quantisation):
            tensor = im.build.make("QUANTIZE", [tensor], name=name, dtype=dtype, quantisation=scale.quantisation)
        return replace(source, tensor=tensor, is_dequantised=False)

    return im.build.by_elements(value, change)


def target_of(im: Importer, node: OnnxNode) -> Target | None:
    """The target, if a QuantizeLinear alone reads the result, possibly behind an activation."""
    name, done, activation = node.outputs[0], [], Activation.NONE
    behind = im.next_only(name, ["Relu", "Clip"])
    if behind is not None:
        limits = limits_of(im, behind)
        if limits not in RANGES:
            return None
        activation, name = RANGES[limits], behind.outputs[0]
        done.append(behind.number)
    end = im.next_only(name, ["QuantizeLinear"])
    if end is None or end.inputs[0] != name:
        return None
    if any(n and not isinstance(im.values.get(n), Constant) for n in end.inputs[1:]):
        return None
    scale, dtype = scale_at(im, end, 1)
    if len(scale.scales) > 1 or dtype.name not in TYPES or set(end.attributes) - {"axis", "saturate"}:
        return None
    return Target(end.outputs[0], scale, TYPES[dtype.name], activation, (*done, end.number))


def is_integer(value: Value | None) -> bool:
    """Whether it is in RAM as 8-bit integers that count as float32."""
    if isinstance(value, Shuffled):
        value = value.source
    return isinstance(value, Stored) and value.is_dequantised and value.tensor.dtype is DType.INT8


def _made(im: Importer, kind: str, inputs: Sequence[Tensor | None], attributes: Any, target: Target) -> Tensor:
    rest = {"name": target.name, "dtype": target.dtype, "quantisation": target.scale.quantisation}
    return im.build.make(kind, inputs, attributes, **rest)


Weights = tuple[Any, Scale]
Inputs = Sequence[Any]
"""Values; None for an omitted one."""
Lower = Callable[[Importer, OnnxNode, Inputs, Target], Value | None]
"""Appends an operation on integers; None where there is none, so that float32 must do."""


@dataclass(frozen=True, slots=True)
class Layer:
    """How an operator is computed on integers, in both formats. `takes_constants`: all operands but the first are
    constants. `takes_activation`: its kernel ends with a clamp."""

    lower: Lower
    takes_constants: bool = False
    takes_activation: bool = False


def weights_of(value: Value | None, channel_axis: int) -> Weights | None:
    """int8 weights around zero, with one scale or one for each output channel; else None. Those around another zero
    point are shifted if they still fit int8."""
    if not isinstance(value, Constant) or value.stored is None:
        return None
    values, scale = value.stored
    if values.dtype != np.int8 or not (len(scale.scales) == 1 or scale.axis == channel_axis):
        return None
    if any(scale.zero_points):
        shape = [1] * values.ndim
        shape[scale.axis] = -1
        zeros = np.array(scale.zero_points).reshape(shape if len(scale.zero_points) > 1 else ())
        moved = values.astype(np.int64) - zeros
        if moved.min(initial=0) < -128 or moved.max(initial=0) > 127:
            return None
        values, scale = moved.astype(np.int8), replace(scale, zero_points=(0,) * len(scale.zero_points))
    return values, scale


def bias_of(given: Inputs, unit: Any, channels: int) -> Any:
    """32-bit integers in units of the products, None where there are none. Float32 values are rounded to them."""
    value = given[0] if given else None
    if value is None:
        return np.zeros(channels, np.int32)
    if not isinstance(value, Constant) or value.array.size != channels:
        return None
    if value.stored is not None and value.stored[0].dtype == np.int32:
        return value.stored[0].reshape(-1)
    found = np.rint(value.array.reshape(-1).astype(np.float32) / unit)
    return np.clip(found, -(2**31), 2**31 - 1).astype(np.int64).astype(np.int32)


def unit_of(tensor: Tensor, scale: Scale) -> Any:
    """The scale of a product of data and weights."""
    found = tensor.quantisation
    assert found is not None
    return np.float32(found.scales[0]) * np.array(scale.scales, np.float32)


def conv(im: Importer, node: OnnxNode, operands: Inputs, target: Target) -> Value | None:
    image, weights = operands[0], weights_of(operands[1], 0)
    if weights is None:
        return None
    values, scale = weights
    found = images.convolution(im, node, image, values, target.activation, as_stored=True)
    sums = bias_of(operands[2:], unit_of(found.tensor, scale), values.shape[0])
    if sums is None:
        return None
    inputs = [found.tensor, *_constants(im, found.filter, replace(scale, axis=found.channel_axis), sums)]
    return images.bind_image(_made(im, found.kind, inputs, found.attributes, target), len(image.shape))


def _constants(im: Importer, data: Any, scale: Scale, sums: Any) -> list[Tensor]:
    return [im.build.constant(data, "filter", scale.quantisation), im.build.constant(sums, "bias")]


def gemm(im: Importer, node: OnnxNode, operands: Inputs, target: Target) -> Value | None:
    """Gemm and MatMul: weights with a row for each output."""
    by_rows, data = im.attribute(node, "transB", 0), operands[0]
    weights = weights_of(operands[1], 0 if by_rows else 1)
    is_plain = im.attribute(node, "alpha", 1.0) == 1.0 == im.attribute(node, "beta", 1.0)
    if weights is None or not is_plain or im.attribute(node, "transA", 0):
        return None
    values, scale = weights[0] if by_rows else weights[0].T, weights[1]
    if isinstance(data, Constant) or values.ndim != 2 or len(data.shape) < 2:
        return None
    if data.shape[-1] != values.shape[1]:
        return None
    tensor, columns = layer_input(im, data, as_stored=True)
    sums = bias_of(operands[2:], unit_of(tensor, scale), values.shape[0])
    if sums is None:
        return None
    rows = np.ascontiguousarray(values if columns is None else values[:, columns])
    inputs = [tensor, *_constants(im, rows, replace(scale, axis=0), sums)]
    attributes = FullyConnected(target.activation, len(tensor.shape) > 2)
    shape = (*data.shape[:-1], values.shape[0])
    return Stored(_made(im, "FULLY_CONNECTED", inputs, attributes, target), in_file_order(shape), shape)


def pool(im: Importer, node: OnnxNode, operands: Inputs, target: Target) -> Value | None:
    image = operands[0]
    kernel = im.attribute(node, "kernel_shape")
    window = images.window_of(im, node, images.image_shape(im, node, image.shape), kernel)
    if window.dilation != (1, 1) or (im.attribute(node, "count_include_pad", 0) and window.pads):
        return None
    tensor = im.build.form(image, images.image_dims(image.shape), as_stored=True)
    attributes = Pool2D(window.padding(tensor.shape[1:3]), *window.stride, *window.kernel, target.activation)
    return images.bind_image(_made(im, "AVERAGE_POOL_2D", [tensor], attributes, target), len(image.shape))


def global_pool(im: Importer, node: OnnxNode, operands: Inputs, target: Target) -> Value | None:
    image = operands[0]
    images.image_shape(im, node, image.shape)
    return images.bind_image(_mean(im, image, True, target), len(image.shape))


def _mean(im: Importer, image: Value, keep_dims: bool, target: Target) -> Tensor:
    """Over height and width."""
    tensor = im.build.form(image, images.image_dims(image.shape), as_stored=True)
    return _made(im, "MEAN", [tensor, im.build.ints([1, 2], "axes")], Reduce(keep_dims=keep_dims), target)


def mean(im: Importer, node: OnnxNode, operands: Inputs, target: Target) -> Value | None:
    """Over height and width, as exporters write global pooling."""
    image = operands[0]
    axes = given_axes(im, node)
    if len(image.shape) != 4 or sorted(a % 4 for a in axes or ()) != [2, 3]:
        return None
    im.attribute(node, "noop_with_empty_axes", 0)
    shape = image.shape[:2]
    made = Stored(_mean(im, image, False, target), in_file_order(shape), shape)
    return im.build.reshape(made, (*shape, 1, 1) if im.attribute(node, "keepdims", 1) else shape)


def softmax(im: Importer, node: OnnxNode, operands: Inputs, target: Target) -> Value | None:
    """QLinearSoftmax has an attribute for the opset that defines its axis."""
    value = operands[0]
    own_opset = im.attribute(node, "opset", 0)
    opset = own_opset or im.opset(node)
    axis = im.axis(node, im.attribute(node, "axis", -1 if own_opset or opset >= 13 else 1), len(value.shape))
    if opset < 13 and any(n > 1 for n in value.shape[axis + 1 :]):
        return None
    rows = last(im, im.build.in_ram(value), [axis], as_stored=True)
    return replace(rows, tensor=_made(im, "SOFTMAX", [rows.tensor], Softmax(), target), is_dequantised=False)


def arithmetic(im: Importer, node: OnnxNode, operands: Inputs, target: Target, kind: str) -> Value | None:
    """A sum or a product, element by element."""
    found = broadcast_operands(im, operands, as_stored=True)
    return found.result(_made(im, kind, found.tensors, Binary(target.activation), target))


def concat(im: Importer, node: OnnxNode, operands: Inputs, target: Target) -> Value | None:
    """Each part on the scale of the result, then side by side."""
    parts = [quantised(im, value, target.scale, target.dtype, "") for value in operands]
    axis = im.axis(node, im.attribute(node, "axis", 1), len(parts[0].shape))
    return joined(im, node, parts, axis, as_stored=True)


LAYERS = {
    "Conv": Layer(conv, takes_constants=True, takes_activation=True),
    "Gemm": Layer(gemm, takes_constants=True, takes_activation=True),
    "MatMul": Layer(gemm, takes_constants=True, takes_activation=True),
    "AveragePool": Layer(pool, takes_activation=True),
    "GlobalAveragePool": Layer(global_pool),
    "Softmax": Layer(softmax),
    "Add": Layer(partial(arithmetic, kind="ADD"), takes_activation=True),
    "Mul": Layer(partial(arithmetic, kind="MUL"), takes_activation=True),
    "ReduceMean": Layer(mean, takes_constants=True),
    "Concat": Layer(concat),
}
"""What may be one operation on integers, by the name of the operator on float32."""

NONE = Layer(lambda im, node, operands, target: None)
"""Of functions of one number `tabulate` makes tables."""


def on_integers(im: Importer, node: OnnxNode, float32: Lowering) -> Value | None:
    """Between DequantizeLinear and QuantizeLinear on integers where that can be, else in float32."""
    layer, target = LAYERS[node.kind], target_of(im, node)
    operands = [im.given(node, place) for place in range(len(node.inputs))]
    data = operands[:1] if layer.takes_constants else operands
    if target is not None and (target.activation is Activation.NONE or layer.takes_activation):
        made = layer.lower(im, node, operands, target) if data and all(map(is_integer, data)) else None
        if made is not None:
            im.done |= set(target.done)
            im.bind(target.name, made)
            return None
    return float32(im, node)


@dataclass(frozen=True, slots=True)
class QOperator:
    """An operator on integers whose inputs include all scales. `kind`: what it computes. `operands`: their positions,
    each with scale and zero point behind it; empty: from 2 on. `result`: the position of the output's scale. `bias`:
    its position, in units of the products."""

    kind: str
    operands: tuple[int, ...] = (0,)
    result: int = 3
    bias: int | None = None

    def __call__(self, im: Importer, node: OnnxNode) -> Value | None:
        places = self.operands or range(2, len(node.inputs), 3)
        values: list[Any] = [_operand(im, node, place) for place in places]
        (scale, dtype), layer = scale_at(im, node, self.result), LAYERS.get(self.kind, NONE)
        if len(scale.scales) > 1 or dtype.name not in TYPES:
            raise im.refuse(node, "outputs of one scale, int8 or uint8, are supported")
        if im.attribute(node, "channels_last", 0):
            raise im.refuse(node, "channels_last is not supported")
        if layer.takes_constants:
            fits = is_integer(values[0])
            bias = None if self.bias is None else im.given(node, self.bias)
            values.append(
                Constant(bias.array, (bias.array, Scale((1.0,), (0,)))) if isinstance(bias, Constant) else bias
            )
        else:
            fits, values = True, [_in_memory(im, value) for value in values]
        made = layer.lower(im, node, values, Target(node.outputs[0], scale, TYPES[dtype.name])) if fits else None
        if made is None:
            self._in_float32(Parts(im, node))
        return made

    def _in_float32(self, parts: Parts) -> None:
        """What 8-bit integers cannot do, as with 9-bit weights: in float32, then quantised."""
        im, node, given = parts.im, parts.node, parts.node.inputs
        axis = 0 if self.kind == "Conv" or im.attribute(node, "transB", 0) else 1
        operands = [parts("DequantizeLinear", *given[place : place + 3], axis=axis) for place in self.operands]
        if self.bias is not None and im.given(node, self.bias) is not None:
            unit = im.array(node, 1).astype(np.float32).reshape(-1) * im.array(node, 4).astype(np.float32).reshape(-1)
            operands.append(parts("Identity", (im.array(node, self.bias).reshape(-1) * unit).astype(np.float32)))
        own = ("name", "doc_string", "channels_last", "opset")
        rest = {name: im.attribute(node, name) for name in node.attributes if name not in own}
        parts.end("QuantizeLinear", parts(self.kind, *operands, **rest), *given[self.result : self.result + 2])


def _operand(im: Importer, node: OnnxNode, place: int) -> Value:
    """An operand with its scale and zero point behind it, counting as float32."""
    scale, _ = scale_at(im, node, place + 1)
    value = im.input(node, place)
    if isinstance(value, Constant):
        return Constant(value.array, (signed(value.array), scale))
    return as_float32(im, node, value, scale)


def _in_memory(im: Importer, value: Value) -> Value:
    """A constant operand as a tensor of its integers."""
    if not isinstance(value, Constant) or value.stored is None:
        return value
    values, scale = value.stored
    tensor = im.build.constant(values, "operand", scale.quantisation)
    return Stored(tensor, tuple(range(values.ndim)), values.shape, is_dequantised=True)


Q_OPERATORS = {
    "QLinearConv": QOperator("Conv", (0, 3), 6, 8),
    "QLinearMatMul": QOperator("MatMul", (0, 3), 6),
    "com.microsoft.QGemm": QOperator("Gemm", (0, 3), 7, 6),
    "com.microsoft.QLinearAdd": QOperator("Add", (0, 3), 6),
    "com.microsoft.QLinearMul": QOperator("Mul", (0, 3), 6),
    "com.microsoft.QLinearAveragePool": QOperator("AveragePool"),
    "com.microsoft.QLinearGlobalAveragePool": QOperator("GlobalAveragePool"),
    "com.microsoft.QLinearSoftmax": QOperator("Softmax"),
    "com.microsoft.QLinearSigmoid": QOperator("Sigmoid"),
    "com.microsoft.QLinearLeakyRelu": QOperator("LeakyRelu"),
    "com.microsoft.QLinearConcat": QOperator("Concat", (), 0),
}


LEVELS = 255.0


def dynamic_quantize(parts: Parts, x: str) -> None:
    """uint8 between the smallest and the largest element, or 0."""
    im, every = parts.im, np.arange(len(parts.im.values[x].shape))
    low = parts("Min", parts("ReduceMin", x, every, keepdims=0), 0.0)
    high = parts("Max", parts("ReduceMax", x, every, keepdims=0), 0.0)
    scale = parts("Div", parts("Sub", high, low), LEVELS)
    # If all elements are 0, any scale will do.
    scale = parts("Where", parts("Equal", scale, 0.0), 1.0, scale)
    zero = parts("Clip", parts("Round", parts("Neg", parts("Div", low, scale))), 0.0, LEVELS)
    steps = parts("Round", parts("Div", x, scale))
    names = [parts("Clip", parts("Add", steps, zero), 0.0, LEVELS), scale, zero]
    for name, made in zip(parts.node.outputs, names, strict=False):
        if name:
            im.bind(name, im.values[made])


def _centred(parts: Parts, place: int) -> str:
    """Integers minus their zero point, which is two inputs behind them, as float32."""
    im, node = parts.im, parts.node
    name, value, below = node.inputs[place], im.input(node, place), im.given(node, place + 2)
    if isinstance(value, Constant) and (below is None or isinstance(below, Constant)):
        shift: Any = 0 if below is None else below.array.astype(np.float32)
        # Zero points of rows or columns are along the last axis but one, or the first of a filter.
        if np.ndim(shift) == 1 and len(shift) > 1 and value.array.ndim > 2:
            shift = shift.reshape(-1, *[1] * (value.array.ndim - 1))
        return parts("Identity", (value.array.astype(np.float32) - shift).astype(np.float32))
    real = parts("Cast", name, to=1)
    return real if below is None else parts("Sub", real, parts("Cast", node.inputs[place + 2], to=1))


def on_centred(parts: Parts, x: str) -> None:
    """MatMulInteger and ConvInteger."""
    given = {name: parts.attribute(name) for name in parts.node.attributes}
    parts.end(parts.node.kind.removesuffix("Integer"), _centred(parts, 0), _centred(parts, 1), **given)


LOWERINGS: dict[str, Lowering] = {
    "DequantizeLinear": dequantize,
    "QuantizeLinear": quantize,
    **Q_OPERATORS,
    "DynamicQuantizeLinear": composed(dynamic_quantize),
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), composed(on_centred)),
}
