"""Quantised networks: integers and their scales, between QuantizeLinear and DequantizeLinear or in operators of their
own.

DequantizeLinear computes nothing: what it makes stands for the real numbers that the integers mean (`Stored.is_real`).
Where an operation reads only such tensors and a QuantizeLinear alone reads its result, possibly behind an activation,
the three become one operation on integers. All others are computed in real numbers, as the file says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diagmem.frontends.onnx.importer import Importer
from diagmem.frontends.onnx.layout import Constant, Scale, Shuffled, Stored, Value, in_file_order, sizes
from diagmem.frontends.onnx.lowering.elementwise import RANGES, limits_of
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.graph import DType, Quantisation, Tensor
from diagmem.ops import Activation

Attributes = Callable[[Importer, OnnxNode], Any]
"""What a node says of our operation."""

TYPES = {"int8": DType.INT8, "uint8": DType.INT8, "int16": DType.INT16}
"""How quantised values are stored."""


@dataclass(frozen=True, slots=True)
class Target:
    """What an operation on integers makes: under which name, on which scale, with which activation. `done`: the nodes
    that it replaces beside its own."""

    name: str
    scale: Scale
    dtype: DType
    activation: Activation = Activation.NONE
    done: tuple[int, ...] = ()


def scale_at(im: Importer, node: OnnxNode, place: int, axis: int = 0) -> tuple[Scale, np.dtype[Any]]:
    """Scale and zero point at two inputs of a node, and the type of the stored values, which the zero point tells."""
    scales = im.array(node, place).reshape(-1).astype(np.float32)
    zero = im.optional_array(node, place + 1)
    dtype = zero.dtype if zero is not None else np.dtype(np.uint8)
    zeros = np.zeros(1, dtype=np.int64) if zero is None else zero.reshape(-1).astype(np.int64)
    if not len(scales) or len(zeros) not in (1, len(scales)) or not (np.isfinite(scales) & (scales > 0)).all():
        raise im.refuse(node, "its scales must be finite and above zero, with a zero point each; the file is damaged")
    zeros = np.broadcast_to(zeros - 128 if dtype == np.uint8 else zeros, scales.shape)
    return Scale(tuple(float(s) for s in scales), tuple(int(z) for z in zeros), axis, dtype == np.uint8), dtype


def signed(values: Any) -> Any:
    """Integers of 8 bits without a sign as those with one, 128 lower."""
    return (values.astype(np.int16) - 128).astype(np.int8) if values.dtype == np.uint8 else values


def dequantize(im: Importer, node: OnnxNode) -> None:
    value = im.input(node)
    axis = im.attribute(node, "axis", 1)
    im.attribute(node, "output_dtype", 0)
    if im.attribute(node, "block_size", 0):
        raise im.refuse(node, "scales for blocks are not supported")
    is_single = im.array(node, 1).size == 1
    scale, _ = scale_at(im, node, 1, 0 if is_single else im.axis(node, axis, len(value.shape)))
    if isinstance(value, Constant):
        im.bind(node.outputs[0], real_constant(im, node, value, scale))
    elif is_single:
        im.bind(node.outputs[0], meant(im, node, value, scale))
    else:
        raise im.refuse(node, "only constants may have several scales")


def real_constant(im: Importer, node: OnnxNode, value: Constant, scale: Scale) -> Constant:
    """The real numbers, and the integers that stand for them."""
    values = value.array
    if im.given(node, 2) is None and values.dtype != np.uint8:
        scale = replace(scale, zero_points=(0,) * len(scale.scales), is_unsigned=False)
    elif im.given(node, 2) is not None and im.array(node, 2).dtype != values.dtype:
        raise im.refuse(node, "its zero point is of another type than its values; the file is damaged")
    shape: list[int] = [1] * values.ndim
    if len(scale.scales) > 1:
        if values.shape[scale.axis] != len(scale.scales):
            raise im.refuse(node, "it has not one scale for each index of its axis; the file is damaged")
        shape[scale.axis] = -1
    held = signed(values)
    scales, zeros = (np.array(part).reshape(shape) for part in (scale.scales, scale.zero_points))
    real = (held.astype(np.int64) - zeros).astype(np.float32) * scales.astype(np.float32)
    return Constant(real.reshape(values.shape), (held, scale))


def meant(im: Importer, node: OnnxNode, value: Value, scale: Scale) -> Value:
    """Integers taken for the real numbers that they stand for."""
    if isinstance(value, Shuffled):
        source = meant(im, node, value.source, scale)
        assert isinstance(source, Stored)
        return Shuffled(source, value.shape)
    assert isinstance(value, Stored)
    tensor = im.build.tensors[value.tensor.index]
    if tensor.dtype is DType.UINT8:
        return _with_sign(im, value, scale)
    if tensor.quantisation is None:
        if tensor.dtype not in (DType.INT8, DType.INT16):
            raise im.refuse(node, f"data of type {tensor.dtype.value}; supported: int8, int16")
        tensor = im.build.quantise(tensor, scale.quantisation)
    elif tensor.quantisation != scale.quantisation:
        raise im.refuse(node, "integers that were quantised on another scale; the file is damaged")
    return replace(value, tensor=tensor, is_real=True)


def _with_sign(im: Importer, value: Stored, scale: Scale) -> Stored:
    """8 bits without a sign, as the model is given them, 128 lower. Nothing is rounded there."""
    held = Quantisation(scale.scales, tuple(zero + 128 for zero in scale.zero_points))
    tensor = im.build.quantise(im.build.tensors[value.tensor.index], held)
    lower = Quantisation(scale.scales, scale.zero_points)
    made = im.build.make("QUANTIZE", [tensor], dtype=DType.INT8, quantisation=lower)
    return replace(value, tensor=made, is_real=True)


def quantize(im: Importer, node: OnnxNode) -> None:
    value = im.input(node)
    scale, dtype = scale_at(im, node, 1)
    im.attribute(node, "axis", 1)
    im.attribute(node, "saturate", 1)
    for name in ("block_size", "output_dtype", "precision"):
        if im.attribute(node, name, 0):
            raise im.refuse(node, f"{name} is not supported")
    if len(scale.scales) > 1 or dtype.name not in TYPES:
        raise im.refuse(node, "one scale, and int8, uint8 or int16, are supported")
    if isinstance(value, Constant):
        raise im.refuse(node, "constants that are quantised at run time are not supported; quantise them in the file")
    im.bind(node.outputs[0], quantised(im, value, scale, TYPES[dtype.name], node.outputs[0]))


def quantised(im: Importer, value: Value, scale: Scale, dtype: DType, name: str) -> Value:
    """Real numbers as integers on a scale; nothing need be done where they are."""
    if isinstance(value, Shuffled):
        source = quantised(im, value.source, scale, dtype, name)
        assert isinstance(source, Stored)
        return Shuffled(source, value.shape)
    assert isinstance(value, Stored)
    tensor = value.tensor
    if value.is_real and tensor.dtype is dtype and tensor.quantisation == scale.quantisation:
        return replace(value, is_real=False)
    made = im.build.make("QUANTIZE", [tensor], name=name, dtype=dtype, quantisation=scale.quantisation)
    return replace(value, tensor=made, is_real=False)


def target_of(im: Importer, node: OnnxNode) -> Target | None:
    """Where the result goes, if a QuantizeLinear alone reads it, possibly behind an activation."""
    name, done, activation = node.outputs[0], [], Activation.NONE
    behind = im.next_only(name, ["Relu", "Clip"])
    if behind is not None:
        limits = limits_of(im, behind)
        if limits not in RANGES:
            return None
        activation, name = RANGES[limits], behind.outputs[0]
        done.append(behind.number)
    end = im.next_only(name, ["QuantizeLinear"])
    if end is None or end.inputs[0] != name or not all(_is_known(im, n) for n in end.inputs[1:]):
        return None
    scale, dtype = scale_at(im, end, 1)
    if len(scale.scales) > 1 or dtype.name not in TYPES or set(end.attributes) - {"axis", "saturate"}:
        return None
    return Target(end.outputs[0], scale, TYPES[dtype.name], activation, (*done, end.number))


def _is_known(im: Importer, name: str) -> bool:
    return not name or isinstance(im.values.get(name), Constant)


def is_integer(value: Value | None) -> bool:
    """Whether it is in RAM as 8-bit integers that stand for real numbers."""
    if isinstance(value, Shuffled):
        value = value.source
    return isinstance(value, Stored) and value.is_real and value.tensor.dtype is DType.INT8


def finish(im: Importer, target: Target, value: Value) -> None:
    """Binds what an operation on integers made, in place of the nodes behind it."""
    im.done |= set(target.done)
    im.bind(target.name, value)


def made(im: Importer, kind: str, inputs: Sequence[Tensor | None], attributes: Any, target: Target) -> Tensor:
    rest = {"name": target.name, "dtype": target.dtype, "quantisation": target.scale.quantisation}
    return im.build.make(kind, inputs, attributes, **rest)


def unary(kind: str, attributes: Attributes | None = None) -> Callable[[Importer, OnnxNode], bool]:
    """A function of one 8-bit integer: all its results stand in a table."""

    def lower(im: Importer, node: OnnxNode) -> bool:
        value, target = im.input(node), target_of(im, node)
        if not is_integer(value) or target is None or target.activation is not Activation.NONE:
            return False
        source = value.source if isinstance(value, Shuffled) else value
        assert isinstance(source, Stored)
        given = None if attributes is None else attributes(im, node)
        result = replace(source, tensor=made(im, kind, [source.tensor], given, target), is_real=False)
        finish(im, target, Shuffled(result, value.shape) if isinstance(value, Shuffled) else result)
        return True

    return lower


def whole(im: Importer, value: Value) -> Stored:
    """A value in RAM, as it is stored."""
    if isinstance(value, Constant):
        dims = in_file_order(value.shape)
        return Stored(im.build.constant(value.array.reshape(sizes(value.shape, dims))), dims, value.shape)
    return im.build.unshuffled(value) if isinstance(value, Shuffled) else value


LOWERINGS = {"DequantizeLinear": dequantize, "QuantizeLinear": quantize}
