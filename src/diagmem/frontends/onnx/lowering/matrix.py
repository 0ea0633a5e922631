"""Matrix products: Gemm, MatMul and Einsum; and LSTM, GRU and RNN, which consist of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from diagmem.frontends.onnx.builder import Constant, Shuffled, Stored, Value, in_file_order, number, stored_as
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts
from diagmem.frontends.onnx.lowering.arithmetic import binary_of, fused, unary_of
from diagmem.frontends.onnx.lowering.moving import joined, transposed_value
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.graph import Shape, Tensor
from diagmem.ops.matrix.products import BatchMatMul, FullyConnected
from diagmem.ops.moving.concatenation import Split


def gemm(im: Importer, node: OnnxNode) -> None:
    """alpha * A * B + beta * C."""
    alpha, beta = im.attribute(node, "alpha", 1.0), im.attribute(node, "beta", 1.0)
    first, second, third = im.input(node, 0), im.input(node, 1), im.given(node, 2)
    if len(first.shape) != 2 or len(second.shape) != 2:
        raise im.damaged(node, f"{list(first.shape)} and {list(second.shape)} are not both matrices")
    if im.attribute(node, "transA", 0):
        first = transposed_value(im, first, (1, 0))
    if im.attribute(node, "transB", 0):
        second = transposed_value(im, second, (1, 0))
    name, units = node.outputs[0], second.shape[-1]
    if isinstance(second, Constant) and alpha != 1.0:
        second, alpha = _scaled(second, alpha), 1.0
    if isinstance(third, Constant) and beta != 1.0:
        third, beta = _scaled(third, beta), 1.0
    if isinstance(second, Constant) and isinstance(third, Constant) and _is_row(third.array, units):
        row = np.broadcast_to(third.array.reshape(-1), (units,))
        fused(im, name, product(im, node, first, second, name, row))
        return
    made = product(im, node, first, second, name, None)
    if alpha != 1.0:
        made = binary_of(im, "MUL", made, number(alpha), name)
    if third is not None:
        scaled = third if beta == 1.0 else binary_of(im, "MUL", third, number(beta))
        made = binary_of(im, "ADD", made, scaled, name)
    fused(im, name, made)


def _scaled(value: Constant, factor: float) -> Constant:
    return Constant((value.array * np.float32(factor)).astype(np.float32))


def _is_row(array: Any, units: int) -> bool:
    """Whether it has one number for each unit, or for all."""
    fits = array.size in (1, units) and array.shape[-1:] in ((), (1,), (units,))
    return fits and (array.ndim != 2 or array.shape[0] == 1)


def matmul(im: Importer, node: OnnxNode) -> None:
    first, second = im.input(node, 0), im.input(node, 1)
    if len(first.shape) == 1 or len(second.shape) == 1:
        _of_vectors(im, node)
        return
    bias, last = None, node
    if _is_weights(second):
        bias, last = _sum_behind(im, node, second.shape[-1])
    name = last.outputs[0]
    if last is not node:
        im.done.add(last.number)
    fused(im, name, product(im, node, first, second, name, bias))


def _of_vectors(im: Importer, node: OnnxNode) -> None:
    """A first operand that is a vector is a row, a second one a column."""
    parts = Parts(im, node)
    is_row, is_column = (len(im.input(node, place).shape) == 1 for place in (0, 1))
    first = parts("Reshape", node.inputs[0], np.array([1, -1])) if is_row else node.inputs[0]
    second = parts("Reshape", node.inputs[1], np.array([-1, 1])) if is_column else node.inputs[1]
    product = parts("MatMul", first, second)
    made = im.values[product].shape
    final = [*made[:-2], *(() if is_row else made[-2:-1]), *(() if is_column else made[-1:])]
    parts.end("Reshape", product, np.array(final, np.int64))


def _is_weights(value: Value) -> TypeGuard[Constant]:
    """Whether it is a constant matrix of real numbers. Layers do not take others."""
    return isinstance(value, Constant) and value.array.ndim == 2 and value.array.dtype.kind == "f"


def _sum_behind(im: Importer, node: OnnxNode, units: int) -> tuple[Any, OnnxNode]:
    """The bias: the constant of an Add that alone reads the product."""
    behind = im.next_only(node.outputs[0], ["Add"])
    if behind is not None and "axis" not in behind.attributes:
        other = next((name for name in behind.inputs if name != node.outputs[0]), "")
        value = im.values.get(other) or (Constant(im.model.constants[other]) if other in im.model.constants else None)
        if isinstance(value, Constant) and value.array.size == units and value.shape[-1:] == (units,):
            return value.array.reshape(-1).astype(np.float32), behind
    return None, node


def product(im: Importer, node: OnnxNode, first: Value, second: Value, name: str, bias: Any) -> Stored:
    """first @ second; a constant second operand becomes the weights of a layer, columns as rows."""
    if not first.shape or not second.shape or first.shape[-1] != second.shape[0 if len(second.shape) < 2 else -2]:
        raise im.damaged(node, f"{list(first.shape)} and {list(second.shape)} cannot be multiplied")
    if _is_weights(second) and not isinstance(first, Constant):
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
    """The tensor with the summed axis last, and the order of that axis if it is not the file's."""
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
    """One operand, or two as a matrix product; letters that both have and the result keeps are the batch."""
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
        raise im.damaged(node, "its equation has a result of other letters")
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
    """An operand, summed over letters that only it has."""
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
        return parts("Reshape", turned, np.array([math.prod(sizes[c] for c in group) for group in groups], np.int64))

    made = parts("MatMul", matrix(first, left, (batch, rows, inner)), matrix(second, right, (batch, inner, columns)))
    letters = [*batch, *rows, *columns]
    apart = parts("Reshape", made, np.array([sizes[c] for c in letters], np.int64))
    parts.end("Transpose", apart, perm=[letters.index(c) for c in result])


MOST_STEPS = 1024
"""Of all directions together: each is several operations."""

DIRECTIONS = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}

FUNCTIONS = {"sigmoid": "LOGISTIC", "tanh": "TANH", "relu": "RELU"}

Product = tuple[Tensor, Tensor]
"""Weights and biases of a layer, a row for each gate and unit."""

States = list[Value | None]
"""None stands for zeros."""


@dataclass(frozen=True)
class Cell:
    """One direction of a recurrent layer. `own`, `recurrent`: products with the input and with the last output. The
    recurrent biases are added to `own`, except those that a gate of a GRU multiplies. `by_gate`: the recurrent product
    of each gate, where a GRU applies its reset gate before the product."""

    im: Importer
    own: Product
    recurrent: Product
    functions: Sequence[str]
    hidden: int
    by_gate: Sequence[Product] = ()

    def product(self, value: Value, layer: Product) -> Stored:
        tensor = self.im.build.reshaped(self.im.build.form(value, (0, 1)), value.shape)
        made = self.im.build.make("FULLY_CONNECTED", [tensor, *layer], FullyConnected())
        return Stored(made, in_file_order(made.shape), made.shape)

    def sums(self, x: Value, last: Value | None) -> Stored:
        total = self.product(x, self.own)
        return total if last is None else binary_of(self.im, "ADD", total, self.product(last, self.recurrent))

    def gates(self, value: Stored, count: int) -> list[Stored]:
        shape = (value.shape[0], self.hidden)
        inputs = [value.tensor, self.im.build.ints([self.hidden] * count, "sizes"), self.im.build.ints(1, "axis")]
        parts = self.im.build.op("SPLIT_V", inputs, Split(count))
        return [Stored(part, in_file_order(shape), shape) for part in parts]

    def apply(self, number: int, value: Value) -> Value:
        return unary_of(self.im, self.functions[number], value)

    def add(self, first: Value, second: Value | None) -> Value:
        return first if second is None else binary_of(self.im, "ADD", first, second)

    def multiply(self, first: Value, second: Value | None) -> Value | None:
        return None if second is None else binary_of(self.im, "MUL", first, second)


def _rnn(cell: Cell, x: Value, states: States) -> States:
    return [cell.apply(0, cell.sums(x, states[0]))]


def _lstm(cell: Cell, x: Value, states: States) -> States:
    into, out, forget, new = cell.gates(cell.sums(x, states[0]), 4)
    fresh = binary_of(cell.im, "MUL", cell.apply(0, into), cell.apply(1, new))
    kept = None if states[1] is None else cell.multiply(cell.apply(0, forget), states[1])
    memory = cell.add(fresh, kept)
    return [cell.multiply(cell.apply(0, out), cell.apply(2, memory)), memory]


def _gru(cell: Cell, x: Value, states: States) -> States:
    last = states[0]
    update_x, reset_x, new_x = cell.gates(cell.product(x, cell.own), 3)
    if last is None:
        # Of the recurrent part only the candidate's bias is left.
        data = cell.recurrent[1].data
        assert data is not None
        bias = Constant(data[2 * cell.hidden :].reshape(1, -1))
        update = cell.apply(0, update_x)
        new = cell.add(new_x, cell.multiply(cell.apply(0, reset_x), bias) if bias.array.any() else None)
    elif cell.by_gate:
        update = cell.apply(0, cell.add(update_x, cell.product(last, cell.by_gate[0])))
        reset = cell.apply(0, cell.add(reset_x, cell.product(last, cell.by_gate[1])))
        new = cell.add(new_x, cell.product(binary_of(cell.im, "MUL", reset, last), cell.by_gate[2]))
    else:
        update_h, reset_h, new_h = cell.gates(cell.product(last, cell.recurrent), 3)
        update = cell.apply(0, cell.add(update_x, update_h))
        new = cell.add(new_x, cell.multiply(cell.apply(0, cell.add(reset_x, reset_h)), new_h))
    new = cell.apply(1, new)
    fresh = binary_of(cell.im, "MUL", binary_of(cell.im, "SUB", number(1), update), new)
    return [cell.add(fresh, None if last is None else cell.multiply(update, last))]


class Recurrent(NamedTuple):
    """`step`: what the states become; the first is the output. `functions`: those applied by default."""

    step: Callable[[Cell, Value, States], States]
    gates: int
    states: int
    functions: tuple[str, ...]


KINDS = {
    "RNN": Recurrent(_rnn, 1, 1, ("tanh",)),
    "LSTM": Recurrent(_lstm, 4, 2, ("sigmoid", "tanh", "tanh")),
    "GRU": Recurrent(_gru, 3, 1, ("sigmoid", "tanh")),
}


def recurrent(im: Importer, node: OnnxNode) -> None:
    x = im.input(node)
    if len(x.shape) != 3 or im.attribute(node, "layout", 0):
        raise im.refuse(node, "only sequences of shape [time, batch, features], layout 0, are supported")
    directions = DIRECTIONS.get(im.attribute(node, "direction", "forward"))
    if directions is None or x.shape[0] * len(directions) > MOST_STEPS:
        raise im.refuse(node, f"its direction is unknown, or it has more than {MOST_STEPS} steps of time")
    if node.kind == "LSTM" and im.given(node, 7) is not None:
        raise im.refuse(node, "peepholes are not supported")
    lengths = im.optional_array(node, 4)
    if lengths is not None and (lengths != x.shape[0]).any():
        raise im.refuse(node, "sequences of different lengths are not supported")
    runs = [_run(im, node, x, direction, way) for direction, way in enumerate(directions)]
    for place, name in enumerate(node.outputs):
        if not name or not im.uses[name]:
            continue
        if place > KINDS[node.kind].states:
            raise im.damaged(node, "it has too many outputs")
        im.bind(name, _side_by_side(im, node, [run[place] for run in runs], axis=1 if place == 0 else 0))


def _side_by_side(im: Importer, node: OnnxNode, parts: Sequence[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else joined(im, node, parts, axis)


def _run(im: Importer, node: OnnxNode, x: Value, direction: int, way: int) -> list[Value]:
    """All steps of one direction: outputs [time, 1, batch, units], then the last states [1, batch, units]."""
    cell, kind = _cell(im, node, x, direction), KINDS[node.kind]
    states = [_initial(im, node, 5 + place, direction) for place in range(kind.states)]
    made: list[Value] = []
    shape = (1, x.shape[1], cell.hidden)
    for time in range(x.shape[0])[::way]:
        states = kind.step(cell, _at(im, x, time), states)
        assert states[0] is not None
        made.append(im.build.reshape(states[0], (1, *shape)))
    outputs = made[::way]
    wants_all = bool(node.outputs) and bool(node.outputs[0]) and im.uses[node.outputs[0]] > 0
    whole = _side_by_side(im, node, outputs, axis=0) if wants_all else outputs[0]
    return [whole, *(im.build.reshape(state, shape) for state in states if state is not None)]


def _at(im: Importer, x: Value, time: int) -> Value:
    """The features of one step: [batch, features]."""
    _, batch, features = x.shape
    if isinstance(x, Constant):
        return Constant(x.array[time])
    whole = im.build.reshaped(im.build.form(x, (0, 1, 2)), x.shape)
    if x.shape[0] > 1:
        begin, size = im.build.ints([time, 0, 0], "begin"), im.build.ints([1, batch, features], "size")
        whole = im.build.make("SLICE", [whole, begin, size])
    shape = (batch, features)
    return Stored(im.build.reshaped(whole, shape), in_file_order(shape), shape)


def _initial(im: Importer, node: OnnxNode, place: int, direction: int) -> Value | None:
    value = im.given(node, place)
    if value is None or (isinstance(value, Constant) and not value.array.any()):
        return None
    if isinstance(value, Constant):
        return Constant(value.array[direction].astype(np.float32))
    if value.shape[0] > 1:
        raise im.refuse(node, "initial states of two directions must be constant")
    return im.build.reshape(value, value.shape[1:])


def _cell(im: Importer, node: OnnxNode, x: Value, direction: int) -> Cell:
    kind = KINDS[node.kind]
    weights, recurrent = im.array(node, 1)[direction], im.array(node, 2)[direction]
    hidden = im.attribute(node, "hidden_size", recurrent.shape[-1])
    rows = kind.gates * hidden
    biases = im.optional_array(node, 3)
    both = np.zeros(2 * rows, np.float32) if biases is None else biases[direction].astype(np.float32)
    fits = weights.shape == (rows, x.shape[2]) and recurrent.shape == (rows, hidden) and both.shape == (2 * rows,)
    if not fits or im.attribute(node, "clip", 0.0) or im.attribute(node, "input_forget", 0):
        raise im.refuse(node, "its weights do not fit, or clip or input_forget is set, which is not supported")
    names = [str(part, "utf-8", "replace").lower() for part in im.attribute(node, "activations", [])]
    for name in ("activation_alpha", "activation_beta"):
        im.attribute(node, name, None)
    per = len(kind.functions)
    chosen = names[direction * per : (direction + 1) * per] if names else list(kind.functions)
    if len(chosen) != per or any(name not in FUNCTIONS for name in chosen):
        raise im.refuse(node, f"activations other than {', '.join(FUNCTIONS)} are not supported")
    bias, recurrent_bias = both[:rows] + both[rows:], np.zeros(rows, np.float32)
    is_linear = node.kind == "GRU" and bool(im.attribute(node, "linear_before_reset", 0))
    if is_linear:
        # The reset gate multiplies the candidate's recurrent bias.
        bias[2 * hidden :], recurrent_bias[2 * hidden :] = both[2 * hidden : rows], both[rows + 2 * hidden :]

    def constant(array: Any, role: str) -> Tensor:
        return im.build.constant(np.ascontiguousarray(array), role)

    first, second = constant(weights, "weights"), constant(recurrent, "recurrent")
    own, whole = (first, constant(bias, "bias")), (second, constant(recurrent_bias, "recurrent_bias"))
    starts = range(0, rows, hidden) if node.kind == "GRU" and not is_linear else ()
    by_gate = [
        (constant(recurrent[at : at + hidden], "recurrent"), constant(np.zeros(hidden, np.float32), "recurrent_bias"))
        for at in starts
    ]
    return Cell(im, own, whole, [FUNCTIONS[name] for name in chosen], hidden, by_gate)


LOWERINGS: dict[str, Lowering] = {"Gemm": gemm, "MatMul": matmul, "Einsum": einsum, **dict.fromkeys(KINDS, recurrent)}
