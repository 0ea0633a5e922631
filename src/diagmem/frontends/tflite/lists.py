"""Lists of tensors, which loops fill entry by entry.

Converters write them as TensorLists, or as one tensor along whose first axis the entries lie: to set one, a loop joins
what lies before it, the new entry, and what lies behind it. Here a list is the rows of tensors that it consists of.
Nothing moves until an operation reads it as a tensor; then it is joined, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from diagmem.model.errors import ModelError, damaged
from diagmem.model.graph import ABSENT, DType, Node, Shape, Tensor
from diagmem.ops.kind import Array, axis_of, known_ints, unless_computed
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.moving.strided_slice import StridedSlice, box_of
from diagmem.ops.options import CUSTOM, Activation


class Slab(NamedTuple):
    """Rows [begin, end) of a tensor, along its first axis. ABSENT: entries that were never set, which are zeros."""

    tensor: int
    begin: int
    end: int


Rows = tuple[Slab, ...]


def joined(slabs: Iterable[Slab]) -> Rows:
    """One behind the other; neighbours of one tensor become one."""
    found: list[Slab] = []
    for slab in slabs:
        last = found[-1] if found else None
        if last is not None and last.tensor == slab.tensor and last.end == slab.begin:
            found[-1] = last._replace(end=slab.end)
        elif slab.end > slab.begin:
            found.append(slab)
    return tuple(found)


def cut(rows: Rows, begin: int, end: int) -> Rows:
    """Entries [begin, end)."""
    found, at = [], 0
    for tensor, first, last in rows:
        found.append(Slab(tensor, first + max(0, begin - at), min(last, first + end - at)))
        at += last - first
    return joined(found)


def replaced(rows: Rows, begin: int, new: Rows) -> Rows:
    """With other entries from `begin` on."""
    return joined((*cut(rows, 0, begin), *new, *cut(rows, begin + length(new), length(rows))))


def length(rows: Rows) -> int:
    return sum(end - begin for _, begin, end in rows)


def list_kind(kind: str) -> str:
    """TensorFlow's name of an operation on TensorLists, which in TensorFlow Lite is a custom one; else empty."""
    return kind.removeprefix(CUSTOM).removeprefix("Flex") if kind.startswith(CUSTOM) and "TensorList" in kind else ""


class Growing(Protocol):
    """The graph to which operations are added. `values`: of the tensors that are known."""

    tensors: list[Tensor]
    values: dict[int, Array]

    def emit(self, kind: str, given: Sequence[int], attributes: object, like: Tensor) -> int:
        """Adds an operation; its output."""
        ...

    def new(self, tensor: Tensor) -> int: ...

    def constant(self, like: Tensor, values: Array) -> int: ...


NUMBERS = Tensor(0, "rows", (), DType.INT32)
MOST_ENTRIES = 10_000
ADVICE = "only lists whose length and order of entries are known can be planned; convert with a fixed batch size"


@dataclass
class Lists:
    """`rows`: of the tensors that are lists. `items`: a list of one entry, as a tensor -> that entry. `wholes`: those
    that were joined. `handles`: those that are TensorLists, which have no shape of their own."""

    graph: Growing
    rows: dict[int, Rows] = field(default_factory=dict)
    items: dict[int, int] = field(default_factory=dict)
    wholes: dict[Rows, int] = field(default_factory=dict)
    handles: set[int] = field(default_factory=set)

    def of(self, tensor: int) -> Rows:
        found = self.graph.tensors[tensor]
        if tensor not in self.rows and not found.shape:
            raise damaged(f"'{found.label}' is a number, and taken for a list")
        return self.rows.get(tensor, (Slab(tensor, 0, found.shape[0] if found.shape else 0),))

    def whole(self, tensor: int) -> int:
        """The tensor as operations read it: joined if it is a list."""
        like = self.graph.tensors[tensor] if tensor != ABSENT else NUMBERS
        if tensor in self.handles:
            raise ModelError(f"tensor '{like.label}' is a TensorList: {ADVICE}")
        rows = self.rows.get(tensor)
        if rows is None:
            return tensor
        if rows not in self.wholes:
            parts = [self._part(slab, like) for slab in rows]
            is_one = len(parts) == 1
            self.wholes[rows] = parts[0] if is_one else self.graph.emit("CONCATENATION", parts, Concatenation(), like)
        return self.wholes[rows]

    def _part(self, slab: Slab, like: Tensor) -> int:
        """The rows of a slab as a tensor."""
        shape = (slab.end - slab.begin, *like.shape[1:])
        if slab.tensor == ABSENT:
            return self.graph.constant(like, np.zeros(shape, like.dtype.numpy))
        if self.graph.tensors[slab.tensor].shape == shape:
            return slab.tensor
        if slab.tensor in self.graph.values:
            return self.graph.constant(like, self.graph.values[slab.tensor][slab.begin : slab.end])
        numbers = self._numbers([slab.begin] + [0] * (len(shape) - 1), shape)
        return self.graph.emit("SLICE", [slab.tensor, *numbers], None, _shaped(like, shape))

    def _numbers(self, *given: Sequence[int]) -> list[int]:
        return [self.graph.constant(NUMBERS, np.array(numbers, np.int32)) for numbers in given]

    def _entry(self, rows: Rows, like: Tensor) -> int:
        """The only entry of a list as a tensor, without the list's axis."""
        (slab,) = rows
        if slab.tensor in self.items:
            return self.items[slab.tensor]
        wide = _shaped(like, (1, *like.shape))
        if slab.tensor in (ABSENT, *self.graph.values):
            return self._reshaped(self._part(slab, wide), like)
        if self.graph.tensors[slab.tensor].shape == wide.shape:
            return self._reshaped(slab.tensor, like)
        numbers = self._numbers([slab.begin], [slab.end], [1])
        return self.graph.emit("STRIDED_SLICE", [slab.tensor, *numbers], StridedSlice(shrink_axis_mask=1), like)

    def _reshaped(self, tensor: int, like: Tensor) -> int:
        """A tensor under another shape; one that is known stays so."""
        if tensor in self.graph.values:
            return self.graph.constant(like, self.graph.values[tensor].reshape(like.shape))
        numbers = self._numbers(like.shape)
        return self.graph.emit("RESHAPE", [tensor, *numbers], Reshape(new_shape=like.shape), like)

    def item(self, tensor: int) -> Rows:
        """A list of one entry."""
        tensor = self.whole(tensor)
        like = self.graph.tensors[tensor]
        wide = self._reshaped(tensor, _shaped(like, (1, *like.shape)))
        self.items[wide] = tensor
        return (Slab(wide, 0, 1),)

    def made(self, node: Node, given: Sequence[int]) -> int | None:
        """What a node makes of lists, or puts together as one; None where that is for an operation to do."""
        name, output = list_kind(node.op.kind), node.outputs[0] if node.outputs else None
        if output is None or (not name and any(t is not None and t.is_variable for t in (*node.inputs, output))):
            return None
        make = (_ON_LISTS if name else _ON_TENSORS).get(name or node.op.kind)
        rows = make(self, node, given) if make and ABSENT not in given else None
        if rows is None and name:
            raise ModelError(f"{node.label}: {ADVICE}")
        if rows is None:
            return None
        if name:
            output = self._with_shape_of_entries(output, rows, name)
        if name == GET or (not name and len(output.shape) < len(node.input(0).shape)):
            return self._entry(rows, output)
        made = self.graph.new(output)
        self.rows[made] = rows
        if name and name != STACK:
            self.handles.add(made)
        return made

    def _with_shape_of_entries(self, like: Tensor, rows: Rows, name: str) -> Tensor:
        """Converters leave it open, or write any; it is known once one is set."""
        held = [self.graph.tensors[slab.tensor] for slab in rows if slab.tensor != ABSENT]
        if name not in (GET, STACK):
            return _shaped(like, ())
        entry = held[0].shape[1:] if held else like.shape[name == STACK :]
        if any(size < 0 for size in entry) or len({(t.shape[1:], t.dtype, t.quantisation) for t in held}) > 1:
            raise ModelError(f"'{like.label}': its entries differ, or are not known: {ADVICE}")
        like = replace(like, dtype=held[0].dtype, quantisation=held[0].quantisation) if held else like
        return _shaped(like, entry if name == GET else (length(rows), *entry))

    # What `_ON_LISTS` and `_ON_TENSORS` use.

    def known(self, node: Node, given: Sequence[int], position: int) -> int:
        """A number that must be known: a place in a list, or its length."""
        found = self.graph.values.get(given[position]) if position < len(given) else None
        if found is None or found.size != 1:
            raise ModelError(f"{node.label}: its place in the list depends on the model's inputs: {ADVICE}")
        return int(found.reshape(-1)[0])

    def handle(self, node: Node, given: Sequence[int]) -> Rows:
        if not given or given[0] not in self.handles:
            raise damaged(f"{node.label}: its first input is no TensorList")
        return self.rows[given[0]]

    def place(self, node: Node, given: Sequence[int], rows: Rows) -> int:
        """The index of an entry that is there."""
        found = self.known(node, given, 1)
        if not 0 <= found < length(rows):
            raise damaged(f"{node.label}: entry {found} of a list of {length(rows)}")
        return found


def _shaped(like: Tensor, shape: Shape) -> Tensor:
    return replace(like, shape=shape, is_constant=False, data=None)


def _reserved(lists: Lists, node: Node, given: Sequence[int]) -> Rows:
    size = lists.known(node, given, 1)
    if not 0 <= size <= MOST_ENTRIES:
        raise ModelError(f"{node.label}: a list of {size} entries; at most {MOST_ENTRIES} are supported")
    return (Slab(ABSENT, 0, size),)


def _with_entry(lists: Lists, node: Node, given: Sequence[int]) -> Rows:
    rows = lists.handle(node, given)
    return replaced(rows, lists.place(node, given, rows), lists.item(given[-1]))


def _entry_of(lists: Lists, node: Node, given: Sequence[int]) -> Rows:
    rows = lists.handle(node, given)
    place = lists.place(node, given, rows)
    return cut(rows, place, place + 1)


GET, STACK = "TensorListGetItem", "TensorListStack"
MakesRows = Callable[[Lists, Node, Sequence[int]], Rows | None]

_ON_LISTS: Mapping[str, MakesRows] = {
    "TensorListReserve": _reserved,
    "EmptyTensorList": lambda lists, node, given: (),
    "TensorListFromTensor": lambda lists, node, given: lists.of(given[0]),
    "TensorListSetItem": _with_entry,
    "TensorListPushBack": lambda lists, node, given: (*lists.handle(node, given), *lists.item(given[1])),
    GET: _entry_of,
    STACK: lambda lists, node, given: lists.handle(node, given),
}


@unless_computed
def _sliced(lists: Lists, node: Node, given: Sequence[int]) -> Rows | None:
    """Along the first axis alone."""
    data, box = node.input(0), box_of(node.op.kind, node.attributes, node.inputs)
    if not box.ranges or data.quantisation != node.output.quantisation:
        return None
    first, *others = box.ranges
    is_whole = all(r == range(size) for r, size in zip(others, data.shape[1:], strict=True))
    is_part = box.out_shape in ((len(first), *data.shape[1:]), data.shape[1:])
    is_part &= len(box.out_shape) == len(data.shape) or len(first) == 1
    return cut(lists.of(given[0]), first.start, first.stop) if is_whole and is_part and first.step == 1 else None


@unless_computed
def _gathered(lists: Lists, node: Node, given: Sequence[int]) -> Rows | None:
    """One index."""
    data, indices = node.input(0), known_ints(node.inputs, 1)
    is_first = data.shape and node.attributes.batch_dims == 0 and axis_of(node.attributes.axis, len(data.shape)) == 0
    if not is_first or len(indices) != 1 or not 0 <= indices[0] < data.shape[0] or len(node.input(1).shape) > 1:
        return None
    return cut(lists.of(given[0]), indices[0], indices[0] + 1)


def _concatenated(lists: Lists, node: Node, given: Sequence[int]) -> Rows | None:
    is_plain = node.output.shape and axis_of(node.attributes.axis, len(node.output.shape)) == 0
    is_plain = is_plain and node.attributes.activation is Activation.NONE
    if not is_plain or len({(t.dtype, t.quantisation) for t in (node.output, *node.inputs) if t is not None}) > 1:
        return None
    return joined(slab for tensor in given for slab in lists.of(tensor))


@unless_computed
def _updated(lists: Lists, node: Node, given: Sequence[int]) -> Rows | None:
    data, part, begin = node.input(0).shape, node.input(1).shape, known_ints(node.inputs, 2)
    if not data or len(part) != len(data) or len(begin) != len(data) or data[1:] != part[1:]:
        return None
    return replaced(lists.of(given[0]), max(0, min(begin[0], data[0] - part[0])), lists.of(given[1]))


_ON_TENSORS: Mapping[str, MakesRows] = {
    "SLICE": _sliced,
    "STRIDED_SLICE": _sliced,
    "GATHER": _gathered,
    "CONCATENATION": _concatenated,
    "DYNAMIC_UPDATE_SLICE": _updated,
}
