"""A model run in numpy, operation by operation: on which inputs, and when two results are the same.

Inputs are edges of the range, noise, and pictures of many scales.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, DType, Graph, Node, Shape, Tensor
from diagmem.ops import Unsupported, kind_of, kinds
from diagmem.ops.c_call import values_of
from diagmem.ops.kind import Array, Values
from diagmem.transforms.cleanup import drop_dead

Reference = Callable[[Node, Values], tuple[Array, ...]]
"""What a node computes from the values of its inputs."""


def runs(
    graph: Graph,
    inputs: Iterable[Sequence[Array]],
    restarts: Collection[int] = (),
    instead: Mapping[int, Reference] | None = None,
) -> Iterator[dict[int, Array]]:
    """The values of all tensors after each of several runs in a row. `restarts`: the runs before which the state is set
    to its first value, besides the first one."""
    state: dict[int, Array] = {}
    for number, given in enumerate(inputs):
        values = run(graph, given, instead, {} if number in restarts else state)
        state = {tensor.index: values[tensor.index] for tensor in graph.variables}
        yield values


def run(
    graph: Graph,
    inputs: Sequence[Array],
    instead: Mapping[int, Reference] | None = None,
    state: Mapping[int, Array] | None = None,
) -> dict[int, Array]:
    """The values of all tensors: constants, inputs, and whatever an operation writes. `instead`: ops, by their index,
    that are computed in another way than their kind's. `state`: what variables are, if not what they are at first. An
    op that nobody knows, and on which no output depends, is passed over, with all that reads from it: no plan needs to
    keep it."""
    values: dict[int, Array] = {tensor.index: tensor.first_values for tensor in graph.variables}
    values.update({**(state or {}), **dict(zip(graph.inputs, inputs, strict=True))})
    # The caller may be handed a constant.
    values.update({t: values_of(graph.tensors[t]) for t in graph.outputs if graph.tensors[t].is_constant})
    unknown: set[int] = set()
    for node in graph.nodes:
        if unknown.intersection(node.op.inputs):
            unknown.update(node.op.outputs)
            continue
        kind = kind_of(node.op.kind)
        try:
            if kind is None:
                raise Unsupported("diagmem does not know this operation")
            for tensor in node.inputs:
                if tensor is not None and tensor.is_constant:
                    values[tensor.index] = values_of(tensor)
            way = (instead or {}).get(node.op.index, kind.reference)
            outputs = _made(way, node, [None if i == ABSENT else values[i] for i in node.op.inputs])
        except Unsupported as reason:
            if node.op.number not in {op.number for op in drop_dead(graph, lambda op: True).ops}:
                unknown.update(node.op.outputs)
                continue
            raise ModelError(f"{node.label}: {reason}; it cannot be verified") from reason
        written = (*node.op.outputs, *(node.op.inputs[p] for p in kind.states(node)))
        values.update(zip(written, outputs, strict=True))
    return values


NOISE = 2.0**-20
"""By which part float32 numbers are off in shaken runs: as after 16 roundings."""


def shaken_runs(
    graph: Graph,
    inputs: Iterable[Sequence[Array]],
    restarts: Collection[int],
    instead: Mapping[int, Reference],
    seed: int,
) -> Iterator[dict[int, Array]]:
    """The same as `runs`, where each float32 number that goes in or is computed is a bit off: what rounding may do."""
    rng = np.random.default_rng(seed)

    def off(values: Array) -> Array:
        is_real = values.dtype == np.float32
        return (values * (1 + NOISE * rng.uniform(-1, 1, values.shape))).astype(np.float32) if is_real else values

    def way(node: Node, given: Values) -> tuple[Array, ...]:
        return tuple(map(off, instead.get(node.op.index, kinds()[node.op.kind].reference)(node, given)))

    ways = {node.op.index: way for node in graph.nodes if node.op.kind in kinds()}
    return runs(graph, ([off(values) for values in run] for run in inputs), restarts, ways)


def largest_change(values: Array, other: Array) -> float:
    """Between finite numbers."""
    with np.errstate(invalid="ignore", over="ignore"):
        change = np.abs(other.astype(np.float64) - values)
    return float(change[np.isfinite(change)].max(initial=0.0))


@np.errstate(all="ignore")
def _made(way: Reference, node: Node, given: Values) -> tuple[Array, ...]:
    """What a node makes. Sizes and paddings that earlier operations compute are as good as constants here."""
    try:
        return way(node, given)
    except ModelError:
        known = (t and replace(t, data=v, is_constant=True) for t, v in zip(node.inputs, given, strict=True))
        return way(replace(node, inputs=tuple(known)), given)


def differing(got: Array, wanted: Array) -> npt.NDArray[np.bool_]:
    """Which elements of two flat arrays of one type differ. IEEE 754 leaves open which bits a NaN has that comes out of
    an operation, and processors differ in it: where both are NaN they are equal."""
    size = got.dtype.itemsize
    bits = (got.view(np.uint8) != wanted.view(np.uint8)).reshape(len(got), size).any(axis=1)
    if got.dtype.kind == "f":
        bits &= ~(np.isnan(got) & np.isnan(wanted))
    found: npt.NDArray[np.bool_] = bits
    return found


CELLS = (2, 4, 8, 16, 2**31)
"""Structure of every size: networks answer plain noise almost always the same way, which would hide a difference."""


def restarts(graph: Graph, count: int) -> tuple[int, ...]:
    """Before which of so many runs a model that has state is set back to its first: half-way."""
    return (count // 2,) if graph.variables and count > 1 else ()


def sample_inputs(graph: Graph, count: int, seed: int = 0) -> list[list[Array]]:
    """`count` runs, for each the values of each graph input: five edge cases first, then random ones. The same for the
    same seed, and the first ones the same for any count."""
    rng = np.random.default_rng(seed)
    tensors = [graph.tensors[i] for i in graph.inputs]
    ranges = [_range(graph, t) for t in tensors]
    return [[_values(t, limits, n, rng) for t, limits in zip(tensors, ranges, strict=True)] for n in range(count)]


def _values(tensor: Tensor, limits: tuple[int, int], n: int, rng: np.random.Generator) -> Array:
    (low, high), dtype, shape = limits, tensor.dtype, tensor.shape
    zero = tensor.quantisation.zero_points[0] if tensor.quantisation else 0
    ramp = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    edges = (
        np.full(shape, low),
        np.full(shape, high),
        np.full(shape, zero),
        low + ramp % (high - low + 1),
        low + ramp % 2,
    )
    if n < len(edges):
        return np.asarray(edges[n]).astype(dtype.numpy)
    unit = _picture(shape, rng) if n % 2 else rng.uniform(0, 1, shape)
    values = low + unit * (high - low)
    return np.asarray(values if dtype is DType.FLOAT32 else np.rint(values)).astype(dtype.numpy)


def _range(graph: Graph, tensor: Tensor) -> tuple[int, int]:
    if tensor.dtype in (DType.INT8, DType.UINT8, DType.INT16):
        return int(np.iinfo(tensor.dtype.numpy).min), int(np.iinfo(tensor.dtype.numpy).max)
    if tensor.dtype is DType.FLOAT32:
        return -4, 4
    # Kernels do not check indices; what wider integers are otherwise nobody says.
    found = list(_index_ranges(graph, tensor.index))
    return max((low for low, _ in found), default=0), min((high for _, high in found), default=1)


def _index_ranges(graph: Graph, tensor: int) -> Iterator[tuple[int, int]]:
    """What those ask for that take a tensor as indices, directly or after elements were moved; others take it to be 0
    or 1."""
    for node in (graph.nodes[op] for op in graph.consumers.get(tensor, ())):
        kind = kind_of(node.op.kind)
        for position in (p for p, t in enumerate(node.op.inputs) if t == tensor):
            limits = None if kind is None else kind.index_range(node, position)
            if limits is None and kind is not None and kind.only_moves(node.op.kind):
                yield from (each for made in node.op.outputs for each in _index_ranges(graph, made))
            else:
                yield limits or (0, 1)


def _picture(shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Values in [0, 1]: noise on grids of several widths, of random contrast about a random mean."""
    total = np.zeros(shape)
    for cells in CELLS:
        grid = rng.uniform(-1, 1, tuple(min(size, cells) for size in shape))
        total += rng.uniform() * grid[np.ix_(*(np.arange(s) * g // s for s, g in zip(shape, grid.shape, strict=True)))]
    largest = float(np.abs(total).max(initial=1e-9))
    contrast, mean = rng.uniform(0, 0.5), rng.uniform(0, 1)
    return np.asarray(np.clip(mean + contrast * total / largest, 0, 1))
