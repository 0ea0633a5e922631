"""Products of matrices: Gemm, MatMul and Einsum; and LSTM, GRU and RNN, which are made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from diagmem.frontends.onnx.builder import Constant, Shuffled, Stored, Value, in_file_order, number, stored_as
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts
from diagmem.frontends.onnx.lowering.elementwise import binary_of, fused, unary_of
from diagmem.frontends.onnx.lowering.moving import joined, transposed_value
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.graph import Shape, Tensor
from diagmem.ops.matrix.batch_matmul import BatchMatMul
from diagmem.ops.matrix.fully_connected import FullyConnected
from diagmem.ops.moving.concatenation import Split


def gemm(im: Importer, node: OnnxNode) -> None:
    """alpha * A * B + beta * C."""
    alpha, beta = im.attribute(node, "alpha", 1.0), im.attribute(node, "beta", 1.0)
    first, second, third = im.input(node, 0), im.input(node, 1), im.given(node, 2)
    if len(first.shape) != 2 or len(second.shape) != 2:
        raise im.refuse(
            node, f"{list(first.shape)} and {list(second.shape)} are not both matrices; the file is damaged"
        )
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
    """Whether it is one number for each unit, or for all."""
    fits = array.size in (1, units) and array.shape[-1:] in ((), (1,), (units,))
    return fits and (array.ndim != 2 or array.shape[0] == 1)


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
    is_row, is_column = (len(im.input(node, place).shape) == 1 for place in (0, 1))
    first = parts("Reshape", node.inputs[0], np.array([1, -1])) if is_row else node.inputs[0]
    second = parts("Reshape", node.inputs[1], np.array([-1, 1])) if is_column else node.inputs[1]
    product = parts("MatMul", first, second)
    made = im.values[product].shape
    final = [*made[:-2], *(() if is_row else made[-2:-1]), *(() if is_column else made[-1:])]
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
        return parts("Reshape", turned, np.array([math.prod(sizes[c] for c in group) for group in groups], np.int64))

    made = parts("MatMul", matrix(first, left, (batch, rows, inner)), matrix(second, right, (batch, inner, columns)))
    letters = [*batch, *rows, *columns]
    apart = parts("Reshape", made, np.array([sizes[c] for c in letters], np.int64))
    parts.end("Transpose", apart, perm=[letters.index(c) for c in result])


MOST_STEPS = 1024
"""Of all directions together: each is several operations."""

DIRECTIONS = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}

FUNCTIONS = {"sigmoid": "LOGISTIC", "tanh": "TANH", "relu": "RELU"}


@dataclass
class Cell:
    """One direction of a layer. `weights`, `recurrent`: a row for each gate and unit; `bias` likewise. Biases of the
    recurrent part are in `bias`, but for those that a gate weighs."""

    im: Importer
    weights: Tensor
    recurrent: Tensor
    bias: Tensor
    recurrent_bias: Tensor
    functions: Sequence[str]
    hidden: int
    batch: int
    gates: ClassVar[int] = 1

    def layer(self, value: Value, weights: Tensor, bias: Tensor) -> Stored:
        """The products of all gates at once."""
        tensor = self.im.build.form(value, (0, 1))
        tensor = self.im.build.reshaped(tensor, value.shape)
        made = self.im.build.make("FULLY_CONNECTED", [tensor, weights, bias], FullyConnected())
        return Stored(made, in_file_order(made.shape), made.shape)

    def sums(self, x: Value, state: Value | None) -> Stored:
        """The products of data and state together."""
        total = self.layer(x, self.weights, self.bias)
        if state is None:
            return total
        return binary_of(self.im, "ADD", total, self.layer(state, self.recurrent, self.recurrent_bias))

    def split(self, value: Stored, count: int) -> list[Stored]:
        """Gates, each with all units."""
        if count == 1:
            return [value]
        shape = (self.batch, self.hidden)
        inputs = [value.tensor, self.im.build.ints([self.hidden] * count, "sizes"), self.im.build.ints(1, "axis")]
        parts = self.im.build.op("SPLIT_V", inputs, Split(count))
        return [Stored(part, in_file_order(shape), shape) for part in parts]

    def apply(self, number: int, value: Value) -> Value:
        return unary_of(self.im, self.functions[number], value)

    def add(self, first: Value, second: Value | None) -> Value:
        return first if second is None else binary_of(self.im, "ADD", first, second)

    def multiply(self, first: Value, second: Value | None) -> Value | None:
        return None if second is None else binary_of(self.im, "MUL", first, second)

    def step(self, x: Value, states: list[Value | None]) -> list[Value | None]:
        """What the states become; the first is the output. None stands for zeros."""
        raise NotImplementedError


class RnnCell(Cell):
    def step(self, x: Value, states: list[Value | None]) -> list[Value | None]:
        return [self.apply(0, self.sums(x, states[0]))]


class LstmCell(Cell):
    gates = 4

    def step(self, x: Value, states: list[Value | None]) -> list[Value | None]:
        into, out, forget, cell = self.split(self.sums(x, states[0]), 4)
        fresh = self.multiply(self.apply(0, into), self.apply(1, cell))
        assert fresh is not None
        kept = None if states[1] is None else self.multiply(self.apply(0, forget), states[1])
        memory = self.add(fresh, kept)
        return [self.multiply(self.apply(0, out), self.apply(2, memory)), memory]


@dataclass
class GruCell(Cell):
    gates = 3
    linear_before_reset: bool = False
    parts: Sequence[tuple[Tensor, Tensor]] = ()

    def step(self, x: Value, states: list[Value | None]) -> list[Value | None]:
        im, last = self.im, states[0]
        update_x, reset_x, new_x = self.split(self.layer(x, self.weights, self.bias), 3)
        if last is None:
            update: Value = self.apply(0, update_x)
            new = self._from_nothing(reset_x, new_x)
        elif self.linear_before_reset:
            update_h, reset_h, new_h = self.split(self.layer(last, self.recurrent, self.recurrent_bias), 3)
            update = self.apply(0, self.add(update_x, update_h))
            reset = self.apply(0, self.add(reset_x, reset_h))
            new = self.apply(1, self.add(new_x, self.multiply(reset, new_h)))
        else:
            (update_w, update_b), (reset_w, reset_b), (new_w, new_b) = self.parts
            update = self.apply(0, self.add(update_x, self.layer(last, update_w, update_b)))
            reset = self.apply(0, self.add(reset_x, self.layer(last, reset_w, reset_b)))
            held = self.multiply(reset, last)
            assert held is not None
            new = self.apply(1, self.add(new_x, self.layer(held, new_w, new_b)))
        one = Constant(np.array(1, dtype=np.float32))
        fresh = binary_of(im, "MUL", binary_of(im, "SUB", one, update), new)
        return [self.add(fresh, None if last is None else self.multiply(update, last))]

    def _from_nothing(self, reset_x: Value, new_x: Value) -> Value:
        """The candidate where the state is zero: of the recurrent part only a bias is left."""
        values = self.recurrent_bias.data
        assert values is not None
        bias = Constant(values[2 * self.hidden :].reshape(1, -1))
        held = self.multiply(self.apply(0, reset_x), bias) if bias.array.any() else None
        return self.apply(1, self.add(new_x, held))


CELLS: dict[str, tuple[type[Cell], int, tuple[str, ...]]] = {
    "RNN": (RnnCell, 1, ("tanh",)),
    "LSTM": (LstmCell, 2, ("sigmoid", "tanh", "tanh")),
    "GRU": (GruCell, 1, ("sigmoid", "tanh")),
}
"""The cell, how many states it has, and the functions that it applies by default."""


def recurrent(im: Importer, node: OnnxNode) -> None:
    _, states, _ = CELLS[node.kind]
    x = im.input(node)
    by_batch = im.attribute(node, "layout", 0)
    if len(x.shape) != 3 or by_batch:
        raise im.refuse(node, "only sequences of shape [time, batch, features], layout 0, are supported")
    directions = DIRECTIONS.get(im.attribute(node, "direction", "forward"))
    if directions is None or x.shape[0] * len(directions) > MOST_STEPS:
        raise im.refuse(node, f"its direction is unknown, or it has more than {MOST_STEPS} steps of time")
    if node.kind == "LSTM" and im.given(node, 7) is not None:
        raise im.refuse(node, "peepholes are not supported")
    lengths = im.optional_array(node, 4)
    if lengths is not None and (lengths != x.shape[0]).any():
        raise im.refuse(node, "sequences of different lengths are not supported")
    runs = [_run(im, node, x, number, way) for number, way in enumerate(directions)]
    for place, name in enumerate(node.outputs):
        if not name or not im.uses[name]:
            continue
        parts = [run[0] if place == 0 else run[1][place - 1] for run in runs]
        if place > states:
            raise im.refuse(node, "it has too many outputs; the file is damaged")
        im.bind(name, _side_by_side(im, node, parts, axis=1 if place == 0 else 0))


def _side_by_side(im: Importer, node: OnnxNode, parts: Sequence[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else joined(im, node, parts, axis)


def _run(im: Importer, node: OnnxNode, x: Value, number: int, way: int) -> tuple[Value, list[Value]]:
    """All steps of one direction: outputs [time, 1, batch, units], and the last states [1, batch, units]."""
    cell = _cell(im, node, x, number)
    _, count, _ = CELLS[node.kind]
    states: list[Value | None] = [_initial(im, node, 5 + place, number) for place in range(count)]
    made: list[Value] = []
    shape = (1, cell.batch, cell.hidden)
    for time in range(x.shape[0])[::way]:
        states = cell.step(_at(im, x, time), states)
        assert states[0] is not None
        made.append(im.build.reshape(states[0], (1, *shape)))
    outputs = made if way > 0 else made[::-1]
    wants_all = bool(node.outputs) and bool(node.outputs[0]) and im.uses[node.outputs[0]] > 0
    whole = _side_by_side(im, node, outputs, axis=0) if wants_all else outputs[0]
    return whole, [im.build.reshape(state, shape) for state in states if state is not None]


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


def _initial(im: Importer, node: OnnxNode, place: int, number: int) -> Value | None:
    value = im.given(node, place)
    if value is None or (isinstance(value, Constant) and not value.array.any()):
        return None
    if isinstance(value, Constant):
        return Constant(value.array[number].astype(np.float32))
    if value.shape[0] > 1:
        raise im.refuse(node, "initial states of two directions must be constant")
    return im.build.reshape(value, value.shape[1:])


def _cell(im: Importer, node: OnnxNode, x: Value, number: int) -> Cell:
    kind, _, defaults = CELLS[node.kind]
    weights, hidden_weights = im.array(node, 1)[number], im.array(node, 2)[number]
    hidden = im.attribute(node, "hidden_size", hidden_weights.shape[-1])
    rows = kind.gates * hidden
    biases = im.optional_array(node, 3)
    both = np.zeros(2 * rows, np.float32) if biases is None else biases[number].astype(np.float32)
    fits = weights.shape == (rows, x.shape[2]) and hidden_weights.shape == (rows, hidden) and both.shape == (2 * rows,)
    if not fits or im.attribute(node, "clip", 0.0) or im.attribute(node, "input_forget", 0):
        raise im.refuse(node, "its weights do not fit, or clip or input_forget is set, which is not supported")
    names = [str(part, "utf-8", "replace").lower() for part in im.attribute(node, "activations", [])]
    for name in ("activation_alpha", "activation_beta"):
        im.attribute(node, name, None)
    per = len(defaults)
    chosen = names[number * per : (number + 1) * per] if names else list(defaults)
    if len(chosen) != per or any(name not in FUNCTIONS for name in chosen):
        raise im.refuse(node, f"activations other than {', '.join(FUNCTIONS)} are not supported")
    return _with_weights(im, node, kind, (weights, hidden_weights, both), [FUNCTIONS[name] for name in chosen], x)


def _with_weights(
    im: Importer, node: OnnxNode, kind: type[Cell], arrays: Sequence[Any], functions: list[str], x: Value
) -> Cell:
    weights, hidden_weights, both = arrays
    rows, hidden = hidden_weights.shape
    own, recurrent_bias = both[:rows] + both[rows:], np.zeros(rows, np.float32)
    linear = kind is GruCell and bool(im.attribute(node, "linear_before_reset", 0))
    if linear:
        # The candidate's bias is weighed by the reset gate.
        own[2 * hidden :], recurrent_bias[2 * hidden :] = both[2 * hidden : rows], both[rows + 2 * hidden :]
    named = (weights, "weights"), (hidden_weights, "recurrent"), (own, "bias"), (recurrent_bias, "recurrent_bias")
    first, second, third, fourth = (im.build.constant(np.ascontiguousarray(array), role) for array, role in named)
    cell = kind(im, first, second, third, fourth, functions, hidden, x.shape[1])
    if isinstance(cell, GruCell):
        cell.linear_before_reset = linear
        parts = [slice(gate * hidden, (gate + 1) * hidden) for gate in range(3)]
        cell.parts = [
            (im.build.constant(hidden_weights[p], "recurrent"), im.build.constant(recurrent_bias[p], "recurrent_bias"))
            for p in parts
            if not linear
        ]
    return cell


LOWERINGS: dict[str, Lowering] = {"Gemm": gemm, "MatMul": matmul, "Einsum": einsum, **dict.fromkeys(CELLS, recurrent)}
