"""Products of matrices: Gemm and MatMul."""

from __future__ import annotations

from typing import Any

import numpy as np

from diagmem.frontends.onnx.builder import Constant, Shuffled, Stored, Value, in_file_order, stored_as
from diagmem.frontends.onnx.importer import Importer, Parts
from diagmem.frontends.onnx.lowering.elementwise import binary_of, fused
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.graph import Shape, Tensor
from diagmem.ops.matrix.batch_matmul import BatchMatMul
from diagmem.ops.matrix.fully_connected import FullyConnected


def gemm(im: Importer, node: OnnxNode) -> None:
    """alpha * A * B + beta * C."""
    alpha, beta = im.attribute(node, "alpha", 1.0), im.attribute(node, "beta", 1.0)
    first, second, third = im.input(node, 0), im.input(node, 1), im.given(node, 2)
    if len(first.shape) != 2 or len(second.shape) != 2:
        raise im.refuse(
            node, f"{list(first.shape)} and {list(second.shape)} are not both matrices; the file is damaged"
        )
    if im.attribute(node, "transA", 0):
        first = _turned(im, first)
    weights = isinstance(second, Constant)
    if im.attribute(node, "transB", 0):
        second = _turned(im, second)
    if isinstance(second, Constant):
        second = Constant((second.array * np.float32(alpha)).astype(np.float32)) if alpha != 1.0 else second
    name = node.outputs[0]
    bias = third if isinstance(third, Constant) and beta == 1.0 else None
    if isinstance(third, Constant) and beta != 1.0:
        bias = Constant((third.array * np.float32(beta)).astype(np.float32))
    units = second.shape[-1]
    as_bias = bias is not None and weights and bias.array.size in (1, units) and bias.shape[-1:] in ((), (1,), (units,))
    if bias is not None and bias.array.ndim == 2 and bias.shape[0] != 1:
        as_bias = False
    if as_bias and bias is not None:
        row = np.broadcast_to(bias.array.reshape(-1), (units,))
        fused(im, name, product(im, node, first, second, name, row))
        return
    made: Value = product(im, node, first, second, name, None)
    if not weights and alpha != 1.0:
        made = binary_of(im, "MUL", made, Constant(np.array(alpha, dtype=np.float32)), name)
    if third is not None:
        scaled = third if bias is None else bias
        if bias is None and beta != 1.0:
            scaled = binary_of(im, "MUL", third, Constant(np.array(beta, dtype=np.float32)))
        made = binary_of(im, "ADD", made, scaled, name)
    fused(im, name, made)  # type: ignore[arg-type]


def _turned(im: Importer, value: Value) -> Value:
    from diagmem.frontends.onnx.lowering.moving import transposed_value

    return transposed_value(im, value, (1, 0))


def matmul(im: Importer, node: OnnxNode) -> None:
    first, second = im.input(node, 0), im.input(node, 1)
    if len(first.shape) == 1 or len(second.shape) == 1:
        _of_vectors(im, node)
        return
    bias, last = None, node
    if isinstance(second, Constant) and second.array.ndim == 2:
        bias, last = _sum_behind(im, node, second.shape[-1])
    name = last.outputs[0]
    if last is not node:
        im.done.add(last.number)
    fused(im, name, product(im, node, first, second, name, bias))


def _of_vectors(im: Importer, node: OnnxNode) -> None:
    """A vector is a row where it comes first, a column where it comes second."""
    parts = Parts(im, node)
    shapes = [im.input(node, place).shape for place in (0, 1)]
    rows = len(shapes[0]) == 1
    first = parts("Reshape", node.inputs[0], np.array([1, -1])) if rows else node.inputs[0]
    second = parts("Reshape", node.inputs[1], np.array([-1, 1])) if len(shapes[1]) == 1 else node.inputs[1]
    product = parts("MatMul", first, second)
    made = im.values[product].shape
    final = [*made[:-2], *(() if rows else made[-2:-1]), *(() if len(shapes[1]) == 1 else made[-1:])]
    parts.end("Reshape", product, np.array(final, np.int64))


def _sum_behind(im: Importer, node: OnnxNode, units: int) -> tuple[Any, OnnxNode]:
    """The constant of an Add that alone reads the product: its bias."""
    behind = im.next_only(node.outputs[0], ["Add"])
    if behind is not None:
        other = next((name for name in behind.inputs if name != node.outputs[0]), "")
        value = im.values.get(other) or (Constant(im.model.constants[other]) if other in im.model.constants else None)
        if isinstance(value, Constant) and value.array.size == units and value.shape[-1:] == (units,):
            return value.array.reshape(-1).astype(np.float32), behind
    return None, node


def product(im: Importer, node: OnnxNode, first: Value, second: Value, name: str, bias: Any) -> Stored:
    """first @ second; where the second one is constant its columns are the rows of a layer's weights."""
    if not first.shape or not second.shape or first.shape[-1] != second.shape[0 if len(second.shape) < 2 else -2]:
        raise im.refuse(node, f"{list(first.shape)} and {list(second.shape)} cannot be multiplied; the file is damaged")
    if isinstance(second, Constant) and second.array.ndim == 2 and not isinstance(first, Constant):
        return _layer(im, first, second.array, name, bias)
    shape = (*np.broadcast_shapes(first.shape[:-2], second.shape[:-2]), first.shape[-2], second.shape[-1])
    sides = [_matrices(im, value) for value in (first, second)]
    tensor = im.build.make("BATCH_MATMUL", [sides[0][0], sides[1][0]], BatchMatMul(sides[0][1], sides[1][1]), name=name)
    return Stored(tensor, in_file_order(shape), shape)


def _layer(im: Importer, first: Stored | Shuffled, weights: Any, name: str, bias: Any) -> Stored:
    shape: Shape = (*first.shape[:-1], weights.shape[1])
    tensor, columns = layer_input(im, first)
    data = weights.T if columns is None else weights.T[:, columns]
    inputs: list[Tensor | None] = [tensor, im.build.constant(np.ascontiguousarray(data), "weights")]
    if bias is not None:
        inputs.append(im.build.constant(np.ascontiguousarray(bias, dtype=np.float32), "bias"))
    keeps = len(tensor.shape) > 2
    made = im.build.make("FULLY_CONNECTED", inputs, FullyConnected(keep_num_dims=keeps), name=name)
    return Stored(made, in_file_order(shape), shape)


def layer_input(im: Importer, value: Stored | Shuffled, as_stored: bool = False) -> tuple[Tensor, Any]:
    """The tensor with the axis that is summed over last, and in which order that lies if not in the file's."""
    if isinstance(value, Shuffled) and len(value.shape) == 2:
        columns = value.columns()
        if columns is not None:
            source = value.source if as_stored else im.build.real(value.source)
            return im.build.reshaped(source.tensor, value.shape), columns
    tensor = im.build.form(value, range(len(value.shape)), as_stored)
    return im.build.reshaped(tensor, value.shape), None


def _matrices(im: Importer, value: Value) -> tuple[Tensor, bool]:
    """The matrices of a value, and whether they are stored transposed."""
    axes = list(range(len(value.shape)))
    if isinstance(value, Stored):
        swapped = stored_as(value.shape, [*axes[:-2], axes[-1], axes[-2]])
        if value.order == tuple(a for a in swapped if a is not None) and value.order != tuple(sorted(value.order)):
            return im.build.form(value, [*axes[:-2], axes[-1], axes[-2]]), True
    return im.build.form(value, axes), False


LOWERINGS = {"Gemm": gemm, "MatMul": matmul}
