"""GATHER, GATHER_ND, EMBEDDING_LOOKUP, DYNAMIC_UPDATE_SLICE: what moves, or where to, is an input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor, row_major_strides
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, CTable, Unsupported, element_code, joined_axes, kernel_call, require_types
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, axis_of, input_at, known_ints, swept
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.numerics.quantised import channel_scales
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Gather:
    """Inputs: data, indices. The first `batch_dims` axes of both run together. `counts_back`: indices below 0 count
    from the end, as in ONNX."""

    axis: int = 0
    batch_dims: int = 0
    counts_back: bool = False


@dataclass(frozen=True, slots=True)
class GatherNd:
    """Inputs: data, indices, whose last axis holds one number for each of the data's first axes."""

    counts_back: bool = False


INDICES = (DType.INT32, DType.INT64, DType.INT16)


def picked(indices: Array, size: Any, counts_back: bool) -> Array:
    """Indices inside an axis, as kernels make them."""
    wide = indices.astype(np.int64)
    found: Array = np.clip(np.where((wide < 0) & counts_back, wide + size, wide), 0, np.asarray(size) - 1)
    return found


def _index_range(sizes: Sequence[int], counts_back: bool) -> tuple[int, int]:
    """Of indices that lie inside all of these axes."""
    least = min(sizes, default=1)
    return -least if counts_back else 0, least - 1


def _index_type(tensor: Tensor) -> int:
    if tensor.dtype not in INDICES:
        raise Unsupported(f"{tensor.dtype.value} indices; supported: {', '.join(d.value for d in INDICES)}")
    return element_code(tensor.dtype)


class GatherKind(RearrangeKind):
    names = ("GATHER",)
    orders = (Order.REFERENCE, Order.MEMCPY)
    takes = Signature((2, 2), numbers=(1,))
    table = Table(Gather, ("Axis", "BatchDims"))

    def output_shapes(self, name: str, attributes: Gather, inputs: Inputs) -> Shapes:
        axis, batch_dims = _axes(attributes, inputs)
        data, indices = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        return ((*data[:axis], *indices[batch_dims:], *data[axis + 1 :]),)

    def index_range(self, node: Node, position: int) -> tuple[int, int] | None:
        return _index_range([_sizes(node).size], node.attributes.counts_back) if position == 1 else None

    def moves(self, node: Node, order: Order) -> Chunks:
        axis, _ = _axes(node.attributes, node.inputs)
        shape, indices = node.input(0).shape, known_ints(node.inputs, 1)
        if not all(0 <= index < shape[axis] for index in indices):
            raise ModelError(f"{node.label}: an index lies outside axis {axis} of {list(shape)}; the file is damaged")
        sizes = _sizes(node)
        row = np.arange(sizes.batches * sizes.rows, dtype=np.int64).reshape(sizes.batches, sizes.rows, 1)
        picks = np.array(indices, dtype=np.int64).reshape(sizes.batches, 1, -1)
        chunks = Chunks.of((row * sizes.size + picks) * sizes.run, sizes.run)
        return chunks.moved_at_once() if order is Order.MEMCPY else chunks

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        sizes, (data, indices) = _sizes(node), inputs
        rows = data.reshape(sizes.batches, sizes.rows, sizes.size, sizes.run)
        picks = picked(indices, sizes.size, node.attributes.counts_back).reshape(sizes.batches, 1, sizes.picks, 1)
        return (np.take_along_axis(rows, picks, axis=2).reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        sizes, counts_back = _sizes(node), node.attributes.counts_back
        fields = {
            "element": node.output.dtype.size_bytes,
            "index_type": _index_type(node.input(1)),
            "from_end": sizes.size if counts_back else 0,
            **sizes._asdict(),
        }
        return kernel_call("gather", fields, (node.input(0), node.input(1), node.output))


class _Sizes(NamedTuple):
    """Of the loops, the outermost first: axes that indices and data share, data axes between those and the gathered
    one; then the gathered axis, the indices of each batch, the elements of a slice."""

    batches: int
    rows: int
    size: int
    picks: int
    run: int


def _sizes(node: Node) -> _Sizes:
    axis, batch_dims = _axes(node.attributes, node.inputs)
    data, indices = node.input(0).shape, node.input(1).shape
    return _Sizes(
        math.prod(data[:batch_dims]),
        math.prod(data[batch_dims:axis]),
        data[axis],
        math.prod(indices[batch_dims:]),
        math.prod(data[axis + 1 :]),
    )


def _axes(attributes: Gather, inputs: Inputs) -> tuple[int, int]:
    """Axis and number of batch axes, both counted from the front."""
    data, indices = input_at(inputs, 0).shape, input_at(inputs, 1).shape
    axis = axis_of(attributes.axis, len(data))
    batch_dims = attributes.batch_dims + (len(indices) if attributes.batch_dims < 0 else 0)
    if not 0 <= batch_dims <= min(axis, len(indices)) or data[:batch_dims] != indices[:batch_dims]:
        raise ModelError(
            f"indices {list(indices)} do not suit {list(data)} with {attributes.batch_dims} batch axes and axis "
            f"{attributes.axis}; the file is damaged"
        )
    return axis, batch_dims


class GatherNdKind(RearrangeKind):
    names = ("GATHER_ND",)
    takes = Signature((2, 2), numbers=(1,))
    table = Table(GatherNd, name=None)

    def output_shapes(self, name: str, attributes: GatherNd, inputs: Inputs) -> Shapes:
        data, indices = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if not indices or indices[-1] > len(data):
            raise ModelError(f"indices {list(indices)} do not suit {list(data)}; the file is damaged")
        return ((*indices[:-1], *data[indices[-1] :]),)

    def index_range(self, node: Node, position: int) -> tuple[int, int] | None:
        sizes = node.input(0).shape[: _depth(node)]
        return _index_range(sizes, node.attributes.counts_back) if position == 1 else None

    def moves(self, node: Node, order: Order) -> Chunks:
        indices = known_ints(node.inputs, 1)
        rows, sizes = np.array(indices, np.int64).reshape(-1, _depth(node)), node.input(0).shape[: _depth(node)]
        if ((rows < 0) | (rows >= np.array(sizes, np.int64))).any():
            raise ModelError(f"{node.label}: an index lies outside {list(sizes)}; the file is damaged")
        return Chunks.of(rows @ np.array(_steps(node), np.int64), _run(node))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        data, indices = inputs
        sizes = np.array(node.input(0).shape[: _depth(node)], np.int64)
        rows = picked(indices.reshape(-1, _depth(node)), sizes, node.attributes.counts_back)
        starts = rows @ np.array(_steps(node), np.int64)
        return (data.reshape(-1)[starts[:, None] + np.arange(_run(node))].reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        if not _depth(node):
            raise Unsupported("indices without numbers")
        element = node.output.dtype.size_bytes
        fields = {
            "element": element,
            "index_type": _index_type(node.input(1)),
            "counts_back": int(node.attributes.counts_back),
            "run": _run(node),
            "slices": math.prod(node.input(1).shape[:-1]),
            "depth": _depth(node),
            "size": CTable("size", np.array(node.input(0).shape[: _depth(node)], np.int32)),
            "step": CTable("step", np.array(_steps(node), np.int32) * element),
        }
        return kernel_call("gather_nd", fields, (node.input(0), node.input(1), node.output))


def _depth(node: Node) -> int:
    """How many numbers an index has."""
    return node.input(1).shape[-1]


def _run(node: Node) -> int:
    """The elements of a slice."""
    return math.prod(node.input(0).shape[_depth(node) :])


def _steps(node: Node) -> tuple[int, ...]:
    return tuple(row_major_strides(node.input(0).shape)[: _depth(node)])


class EmbeddingLookupKind(OpKind):
    """Inputs: indices, the table, which is a constant as a rule."""

    names = ("EMBEDDING_LOOKUP",)
    takes = Signature((2, 2), data=1, numbers=(0,), made={DType.INT8: (DType.INT8, DType.FLOAT32)})

    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        return ((input_at(inputs, 0).elems, *input_at(inputs, 1).shape[1:]),)

    def index_range(self, node: Node, position: int) -> tuple[int, int] | None:
        return _index_range(node.input(1).shape[:1], False) if position == 0 else None

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: Runs.of(0, node.input(0).elems, 0, stride=_run_of_row(node))})

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        indices, table = inputs
        rows = table[np.clip(indices.reshape(-1), 0, len(table) - 1)]
        if node.output.dtype is DType.FLOAT32 and table.dtype == np.int8:
            rows = rows.astype(np.float32) * np.float32(_scale(node))
        return (rows.reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        indices, table = node.input(0), node.input(1)
        require_types(DType.INT32, (indices,))
        is_widened = table.dtype is DType.INT8 and node.output.dtype is DType.FLOAT32
        if not is_widened:
            require_types(node.output.dtype, (table,))
        fields = {
            "rows": table.shape[0],
            "picks": indices.elems,
            "run": _run_of_row(node),
            "element": node.output.dtype.size_bytes,
            "scale": _scale(node) if is_widened else 0.0,
        }
        return kernel_call("embedding_lookup", fields, (indices, table, node.output))


def _run_of_row(node: Node) -> int:
    """The elements of a row."""
    return node.input(1).elems // node.input(1).shape[0]


def _scale(node: Node) -> float:
    """TFLite Micro takes the zero point of such a table to be 0, whatever the file says."""
    found = node.input(1).quantisation
    if found is None or len(set(channel_scales(node.input(1), 0) if not any(found.zero_points) else found.scales)) > 1:
        raise Unsupported("a table of 8-bit integers without one scale")
    return found.scales[0]


MOST_AXES = 6
"""How many axes `dynamic_update_slice.c` walks over."""


class DynamicUpdateSliceKind(OpKind):
    """Inputs: data, the new part, where it begins. A part that would reach out of the data is moved inside."""

    names = ("DYNAMIC_UPDATE_SLICE",)
    takes = Signature((3, 3), alike=(1,), numbers=(2,))

    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        shape, part = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if len(shape) != len(part) or any(b > a for a, b in zip(shape, part, strict=True)):
            raise ModelError(f"{list(part)} is no part of {list(shape)}; the file is damaged")
        begin = input_at(inputs, 2).shape
        if begin != (len(shape),):
            raise ModelError(f"a part of {len(shape)} axes begins at indices {list(begin)}; the file is damaged")
        return (shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """First it reads where the part begins, then it copies all, then the part, which may lie anywhere."""
        whole, part = node.output.elems, node.input(1).elems
        steps = 1 + whole + part
        reads = (Runs.of(0, whole, 1), Runs.of(0, part, 1 + whole), Runs.of(0, node.input(2).elems, 0, stride=0))
        known = (None if node.input(p).is_constant else runs for p, runs in enumerate(reads))
        anywhere = Runs.of(0, whole if part else 0, 1 + whole, stride=0, hold=max(1, part))
        return Accesses(steps, tuple(known), (Runs.join(Runs.of(0, whole, 1), anywhere),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        data, part, begin = inputs
        room = np.array(data.shape, np.int64) - part.shape
        first = np.clip(begin.astype(np.int64), 0, room)
        found: Array = data.copy()
        found[tuple(slice(b, b + size) for b, size in zip(first.tolist(), part.shape, strict=True))] = part
        return (found,)

    def c_call(self, node: Node) -> CCall:
        data, part, begin = (node.input(p) for p in range(3))
        require_types(node.output.dtype, (data, part))
        if begin.dtype not in (DType.INT32, DType.INT64):
            raise Unsupported(f"{begin.dtype.value} indices; supported: int32, int64")
        rank, element = len(data.shape), node.output.dtype.size_bytes
        if rank > MOST_AXES:
            raise Unsupported(f"{rank} axes; at most {MOST_AXES} are supported")
        (size,) = joined_axes(MOST_AXES, ())
        fields = {
            "element": element,
            "axes": rank,
            "index_type": element_code(begin.dtype),
            "size": (*data.shape, *size[rank:]),
            "part": (*part.shape, *size[rank:]),
            "step": (*(s * element for s in row_major_strides(data.shape)), *[0] * (MOST_AXES - rank)),
        }
        return kernel_call("dynamic_update_slice", fields, (data, part, begin, node.output))


KINDS = (GatherKind(), GatherNdKind(), EmbeddingLookupKind(), DynamicUpdateSliceKind())
