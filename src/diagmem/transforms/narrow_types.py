"""Weights, state and integers in the narrow type that the file stores, or that holds all their values.

Streaming converters quantise a network but leave its variables in float32: what is read is concatenated with new data
and quantised, and a part of that is dequantised to be assigned. Dequantising and quantising by the same scale changes
no value, so the detour through float32 can go. Integer networks scale in 64 bits, whatever numbers they hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Node, Op, Tensor
from diagmem.ops import Activation, kind_of, kinds
from diagmem.ops.elementwise.comparison import ComparisonKind, SelectKind
from diagmem.ops.elementwise.unary import CLAMPS, UnaryKind
from diagmem.ops.kind import Array
from diagmem.ops.loops.chunks import RearrangeKind
from diagmem.ops.numerics.quantised import real_range
from diagmem.transforms._editing import Choice, edited, is_seen_by_caller

NARROW = (DType.FLOAT16, DType.INT8)
REAL = {DType.FLOAT32}


def narrow_weights(graph: Graph, choice: Choice) -> Graph:
    """DEQUANTIZE of a constant goes if every reader is a layer that takes the weights as they are stored. Results are
    the same bit for bit, since the same numbers are multiplied."""
    instead: dict[int, int] = {}
    gone: list[int] = []
    for node in graph.nodes:
        if node.op.kind != "DEQUANTIZE" or not choice(node.op) or is_seen_by_caller(graph, node.output.index):
            continue
        stored = _stored(graph, node.input(0))
        readers = [graph.nodes[op] for op in graph.consumers.get(node.output.index, ())]
        if stored is not None and readers and all(_takes(reader, node.output, stored) for reader in readers):
            instead[node.output.index] = stored.index
            gone.append(node.op.index)
    return edited(graph, without=gone, instead=instead) if gone else graph


def narrow_inputs(graph: Graph, choice: Choice) -> Graph:
    """DEQUANTIZE goes if every reader can read the integers, and dequantises each as it does: the same float32 numbers
    in the same order."""
    instead: dict[int, int] = {}
    ops: dict[int, Op] = {}
    for node in graph.nodes:
        if node.op.kind != "DEQUANTIZE" or not choice(node.op) or is_seen_by_caller(graph, node.output.index):
            continue
        readers = [graph.ops[op] for op in graph.consumers.get(node.output.index, ())]
        names = {op.index: _widened(op, node.input(0)) for op in readers}
        if readers and node.output.view is None and all(names.values()):
            instead[node.output.index] = node.input(0).index
            ops |= {op.index: replace(op, kind=names[op.index]) for op in readers}
    gone = [graph.producer[tensor] for tensor in instead]
    return edited(graph, without=gone, ops=ops, instead=instead) if gone else graph


def _widened(reader: Op, stored: Tensor) -> str:
    """The operation that reads the integers; "" where there is none."""
    kind = kind_of(reader.kind)
    name = kind.widened.get(reader.kind, "") if kind is not None else ""
    widened = kind_of(name)
    return name if widened is not None and stored.dtype in widened.ways(name) else ""


def _stored(graph: Graph, tensor: Tensor) -> Tensor | None:
    """The constant itself, or the one that DENSIFY makes dense."""
    maker = _maker(graph, tensor, "DENSIFY")
    found = tensor if maker is None else maker.input(0)
    return found if found.is_constant and found.data is not None and found.dtype in NARROW else None


def _takes(reader: Node, wide: Tensor, stored: Tensor) -> bool:
    """Whether there is a kernel for the layer with the weights as they are stored."""
    kind, positions = kind_of(reader.op.kind), [p for p, t in enumerate(reader.op.inputs) if t == wide.index]
    if kind is None or kind.takes.weights is None or positions != [kind.takes.weights.filter]:
        return False
    if {reader.input(0).dtype, reader.output.dtype} != REAL:
        return False
    try:
        # The bias does not matter here; an operation that has not been folded yet may make it.
        kind.c_call(replace(reader, inputs=(reader.inputs[0], stored)))
    except ModelError:
        return False
    return True


STORED = (DType.INT8, DType.INT16)


@dataclass(frozen=True, slots=True)
class _Way:
    """From a variable back to it: read, joined, quantised; dequantised, assigned. `sources`: float32 parts that are
    joined -> the integers that they are dequantised from."""

    variable: Tensor
    read: Node
    joined: Node
    quantised: Node
    dequantised: Node
    assigned: Node
    sources: dict[int, int]


def narrow_state(graph: Graph, choice: Choice) -> Graph:
    """Variables, and the op that joins what is read with new data, work on integers; QUANTIZE behind it, and DEQUANTIZE
    before the assignment and before the new data, are gone."""
    tensors: list[Tensor] = []
    ops: dict[int, Op] = {}
    gone: set[int] = set()
    for way in _ways(graph):
        real_parts = {graph.producer[t] for t in way.sources if graph.consumers[t] == (way.joined.op.index,)}
        removed = {way.quantised.op.index, way.dequantised.op.index}
        if not all(choice(graph.ops[op]) for op in removed):
            continue
        stored = way.quantised.output
        first = quantised_values(way.variable.first_values, stored)
        tensors.append(
            replace(way.variable, dtype=stored.dtype, quantisation=stored.quantisation, initial=first, data=None)
        )
        tensors.append(replace(way.read.output, dtype=stored.dtype, quantisation=stored.quantisation))
        joined, assigned = way.joined.op, way.assigned.op
        inputs = tuple(way.sources.get(t, t) for t in joined.inputs)
        ops[joined.index] = replace(joined, inputs=inputs, outputs=way.quantised.op.outputs)
        ops[assigned.index] = replace(assigned, inputs=way.dequantised.op.inputs)
        gone |= removed | {op for op in real_parts if choice(graph.ops[op])}
    return edited(graph, without=gone, ops=ops, tensors=tensors) if gone else graph


def quantised_values(values: Array, like: Tensor) -> Array:
    """Float32 values, quantised like a tensor."""
    data = Tensor(0, "real", values.shape, DType.FLOAT32)
    node = Node(Op(0, "QUANTIZE", (0,), (1,)), (data,), (replace(like, index=1, shape=values.shape, view=None),))
    with np.errstate(all="ignore"):
        return kinds()["QUANTIZE"].reference(node, (values.astype(np.float32),))[0]


def _ways(graph: Graph) -> Iterator[_Way]:
    for variable in graph.variables:
        ends = _read_and_assigned(graph, variable)
        way = None if ends is None else _way(graph, variable, *ends)
        if way is not None and _comes_back(way):
            yield way


def _read_and_assigned(graph: Graph, variable: Tensor) -> tuple[Node, Node] | None:
    """The one op that reads it and the one that writes it, if there is no other."""
    touching = [node for node in graph.nodes if variable.index in (*node.op.inputs, *node.op.outputs)]
    is_plain = variable.dtype is DType.FLOAT32 and variable.view is None and variable.index not in graph.families
    if not is_plain or [node.op.kind for node in touching] != ["READ_VARIABLE", "ASSIGN_VARIABLE"]:
        return None
    return touching[0], touching[1]


def _way(graph: Graph, variable: Tensor, read: Node, assigned: Node) -> _Way | None:
    joined = _only_reader(graph, read.output, "CONCATENATION")
    quantised = None if joined is None else _only_reader(graph, joined.output, "QUANTIZE")
    real = _maker(graph, assigned.input(0), "DEQUANTIZE")
    if joined is None or quantised is None or real is None or joined.attributes.activation is not Activation.NONE:
        return None
    if _only_reader(graph, real.output, "ASSIGN_VARIABLE") is None or not _is_like(real.input(0), quantised.output):
        return None
    sources: dict[int, int] = {}
    for part in (t for t in joined.inputs if t is not None and t.index != read.output.index):
        made = _maker(graph, part, "DEQUANTIZE")
        if made is None or made.input(0).is_constant or not _is_like(made.input(0), quantised.output):
            return None
        sources[part.index] = made.input(0).index
    return _Way(variable, read, joined, quantised, real, assigned, sources)


def _only_reader(graph: Graph, tensor: Tensor, kind: str) -> Node | None:
    """The only op that reads a tensor, if it is of this kind and the caller does not see the tensor."""
    readers = graph.consumers.get(tensor.index, ())
    if len(readers) != 1 or is_seen_by_caller(graph, tensor.index) or tensor.view is not None:
        return None
    node = graph.nodes[readers[0]]
    return node if node.op.kind == kind else None


def _maker(graph: Graph, tensor: Tensor, kind: str) -> Node | None:
    node = graph.nodes[graph.producer[tensor.index]] if tensor.index in graph.producer else None
    return node if node is not None and node.op.kind == kind else None


def _is_like(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are quantised in the same way, by one scale."""
    found = one.quantisation
    is_known = one.dtype in STORED and found is not None and not found.per_channel
    return is_known and (one.dtype, found) == (other.dtype, other.quantisation)


def _comes_back(way: _Way) -> bool:
    """Whether every integer survives being dequantised and quantised."""
    stored = way.quantised.output
    info = np.iinfo(stored.dtype.numpy)
    every = np.arange(info.min, info.max + 1).astype(stored.dtype.numpy)
    shapes = [replace(t, shape=every.shape) for t in (way.dequantised.input(0), way.dequantised.output)]
    node = replace(way.dequantised, inputs=(shapes[0],), outputs=(shapes[1],))
    with np.errstate(all="ignore"):
        (real,) = kinds()["DEQUANTIZE"].reference(node, (every,))
    return bool(np.array_equal(quantised_values(real, stored), every))


Range = tuple[float, float]
"""The least and the largest value. In float32 there may be one that is no number besides, which CAST makes 0."""

ANY: Range = (-math.inf, math.inf)

_ENDS: Mapping[str, Callable[..., float]] = {
    "ADD": lambda x, y: x + y,
    "SUB": lambda x, y: x - y,
    "MUL": lambda x, y: x * y,
    "DIV": lambda x, y: x / y,
    "FLOOR_DIV": lambda x, y: x / y,
    "MAXIMUM": max,
    "MINIMUM": min,
    "NEG": lambda x: -x,
    **dict.fromkeys(("FLOOR", "CEIL", "ROUND", *CLAMPS), lambda x: x),
}
"""Kinds whose results lie between those at the ends of their inputs' ranges, and how to compute these."""

SIZES = ("SHAPE", "RANK")
"""They tell of a tensor, not of what it holds."""

MOST_EXACT, MOST_TERMS = 2.0**53, 10_000
"""Integers below that are exact in float64; sums of so many terms are off by less than a thousandth of the largest."""


def narrow_integers(graph: Graph, choice: Choice) -> Graph:
    """Integers of 64 bits become integers of 32 where all fit that an operation takes and makes. CAST takes either."""
    free = [t.index for t in graph.tensors if _is_free(graph, t)]
    if not free:
        return graph
    ranges = _ranges(graph)
    fits = {t for t in free if -(2**31) <= ranges[t][0] <= ranges[t][1] < 2**31}
    together = [(_wide(n), choice(n.op) and _has_narrow_kernel(n)) for n in graph.nodes if n.op.kind != "CAST"]
    left = -1
    while left != len(fits):
        left = len(fits)
        fits = fits.difference(*(wide for wide, can_change in together if not (can_change and wide <= fits)))
    return edited(graph, tensors=[_narrow(graph.tensors[t]) for t in sorted(fits)]) if fits else graph


def _is_free(graph: Graph, tensor: Tensor) -> bool:
    is_own = tensor.view is None and tensor.index not in graph.families and not tensor.is_variable
    return is_own and tensor.dtype is DType.INT64 and not is_seen_by_caller(graph, tensor.index)


def _wide(node: Node) -> set[int]:
    return {t.index for t in (*node.inputs, *node.outputs) if t is not None and t.dtype is DType.INT64}


def _narrow(tensor: Tensor) -> Tensor:
    if tensor.dtype is not DType.INT64:
        return tensor
    return replace(tensor, dtype=DType.INT32, data=None if tensor.data is None else tensor.data.astype(np.int32))


def _has_narrow_kernel(node: Node) -> bool:
    """Whether there is one for the same in 32 bits."""
    kind = kind_of(node.op.kind)
    if kind is None or not (
        isinstance(kind, ComparisonKind | SelectKind | RearrangeKind) or node.op.kind in (*_ENDS, "FLOOR_MOD")
    ):
        return False
    inputs = tuple(None if t is None else _narrow(t) for t in node.inputs)
    try:
        kind.c_call(replace(node, inputs=inputs, outputs=tuple(map(_narrow, node.outputs))))
    except ModelError:
        return False
    return True


def _ranges(graph: Graph) -> dict[int, Range]:
    """Of the values of each tensor; it may be too wide, never too narrow."""
    found = {t.index: _whole(t) for t in graph.tensors}
    for node in graph.nodes:
        given = [found[t] for t in node.op.inputs if t >= 0]
        try:
            low, high = _range(node, given)
        except ModelError:
            continue
        for output in (t for t in node.outputs if t.quantisation is None and not t.is_variable):
            if output.dtype is DType.FLOAT32:
                low, high = low - abs(low) / 1000, high + abs(high) / 1000
            else:
                low, high = float(np.floor(low)), float(np.ceil(high))
            is_exact = output.dtype is DType.FLOAT32 or node.op.kind in ("MAXIMUM", "MINIMUM")
            whole = found[output.index]
            if whole[0] <= low <= high <= whole[1] and (is_exact or max(-low, high) < MOST_EXACT):
                found[output.index] = low, high
    return found


def _whole(tensor: Tensor) -> Range:
    """All that a tensor is known to hold from its values, or its type."""
    data = tensor.data if tensor.is_constant and not tensor.is_variable else None
    if data is not None and data.size and data.dtype.kind in "iuf" and np.isfinite(data).all():
        return float(data.min()), float(data.max())
    if tensor.dtype is DType.INT4 or tensor.dtype.numpy.kind not in "iu":
        return ANY
    info = np.iinfo(tensor.dtype.numpy)
    return float(info.min), float(info.max)


def _range(node: Node, given: Sequence[Range]) -> Range:
    """Of what an operation makes; real numbers as if computed exactly."""
    name, kind = node.op.kind, kind_of(node.op.kind)
    low, high = given[0] if given else ANY
    if name in _ENDS:
        is_defined = name not in ("DIV", "FLOOR_DIV") or not given[1][0] <= 0 <= given[1][1]
        ends = [_ENDS[name](*corner) for corner in product(*given)] if is_defined else [math.nan]
        low, high = ANY if any(map(math.isnan, ends)) else (min(ends), max(ends))
    elif name in ("ABS", "FLOOR_MOD"):
        high = max(map(abs, given[-1]))
        low = 0 if name == "ABS" else -high
    elif name == "CAST":
        low, high = min(low, 0), max(high, 0)
    elif isinstance(kind, RearrangeKind | SelectKind) and not isinstance(kind, UnaryKind) and name not in SIZES:
        # Padding, and places that are not there, are 0.
        tensors = filter(None, node.inputs)
        alike = [found for t, found in zip(tensors, given, strict=True) if t.dtype is node.output.dtype]
        ends = list(chain((0.0,), *alike)) if alike else [*ANY]
        low, high = min(ends), max(ends)
    elif kind is not None and kind.takes.weights is not None and kind.takes.data == 0:
        low, high = _weighted(node, kind.takes.weights.axis, given)
    else:
        return ANY
    least, most = CLAMPS.get(name) or real_range(getattr(node.attributes, "activation", Activation.NONE))
    return min(max(low, least), most), min(max(high, least), most)


def _weighted(node: Node, axis: int, given: Sequence[Range]) -> Range:
    """Sums of products with constant weights, and a bias."""
    weights = node.input(1).data
    if weights is None or weights.dtype.kind != "f" or weights.size > MOST_TERMS * weights.shape[axis]:
        return ANY
    sizes = np.abs(np.moveaxis(weights.astype(np.float64), axis, 0)).reshape(weights.shape[axis], -1).sum(axis=1)
    largest = float(sizes.max(initial=0)) * max(map(abs, given[0])) + max(map(abs, (*given[2:3], (0.0,))[0]))
    return -largest, largest
