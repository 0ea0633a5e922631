"""Products of matrices: Gemm, MatMul and Einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
            source = value.source if as_stored else im.build.float32(value.source)
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


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(im: Importer, node: OnnxNode) -> None:
    """One operand, or two as a product of matrices: letters of both that are kept are those of a batch."""
    text = im.attribute(node, "equation").replace(" ", "")
    sides, arrow, result = text.partition("->")
    terms = sides.split(",")
    if "..." in text or len(terms) != len(node.inputs) or len(terms) > 2:
        raise im.refuse(node, "only equations of one or two operands, without an ellipsis, are supported")
    if not arrow:
        result = "".join(sorted(c for c in set(sides) - {","} if sides.count(c) == 1))
    shapes = [im.input(node, place).shape for place in range(len(terms))]
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if len(term) != len(shape) or len(set(term)) != len(term) or not set(term) <= set(LETTERS):
            raise im.refuse(node, f"its equation does not fit {list(shape)}, or names an axis twice")
        sizes |= dict(zip(term, shape, strict=True))
    if len(set(result)) != len(result) or not set(result) <= set(sizes):
        raise im.refuse(node, "its equation has a result of other letters; the file is damaged")
    parts = Parts(im, node)
    operands = [
        _summed(parts, name, term, set(result) | (set(terms[1 - place]) if len(terms) > 1 else set()))
        for place, (name, term) in enumerate(zip(node.inputs, terms, strict=True))
    ]
    if len(operands) == 1:
        name, term = operands[0]
        parts.end("Transpose", name, perm=[term.index(c) for c in result])
        return
    _product(parts, operands, sizes, result)


def _summed(parts: Parts, name: str, term: str, wanted: set[str]) -> tuple[str, str]:
    """An operand without letters that nothing else has."""
    alone = [place for place, letter in enumerate(term) if letter not in wanted]
    if not alone:
        return name, term
    made = parts("ReduceSum", name, np.array(alone, np.int64), keepdims=0)
    return made, "".join(c for c in term if c in wanted)


def _product(parts: Parts, operands: Sequence[tuple[str, str]], sizes: dict[str, int], result: str) -> None:
    (first, left), (second, right) = operands
    both = [c for c in left if c in right]
    batch, inner = [c for c in both if c in result], [c for c in both if c not in result]
    rows, columns = [c for c in left if c not in right], [c for c in right if c not in left]

    def matrix(name: str, term: str, groups: Sequence[Sequence[str]]) -> str:
        turned = parts("Transpose", name, perm=[term.index(c) for group in groups for c in group])
        return parts("Reshape", turned, _shape(groups, sizes))

    made = parts("MatMul", matrix(first, left, (batch, rows, inner)), matrix(second, right, (batch, inner, columns)))
    letters = [*batch, *rows, *columns]
    apart = parts("Reshape", made, np.array([sizes[c] for c in letters], np.int64))
    parts.end("Transpose", apart, perm=[letters.index(c) for c in result])


def _shape(groups: Sequence[Sequence[str]], sizes: dict[str, int]) -> np.ndarray:
    return np.array([math.prod(sizes[c] for c in group) for group in groups], np.int64)


LOWERINGS = {"Gemm": gemm, "MatMul": matmul, "Einsum": einsum}
