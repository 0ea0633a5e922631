"""Where the elements of tensors lie, and which of them are the same bytes under several names.

A *root* is a tensor with bytes of its own. Its views, and reshapes that stay where it lies, are other names for these
bytes. A root that any step touches row by row is looked at in *units* of one row, since its rows may lie anywhere, even
where others of them lie at other times; any other root is one unit. A *part* of a root is what one op writes of it; a
view that is made by turns is one part for each turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from diagmem.model.graph import Graph, IntArray, Tensor
from diagmem.model.views import distinct, pieces
from diagmem.validation.places import is_reshape
from diagmem.validation.shadow import Layout, Touches

NOBODY = -1
"""Writer of elements that no op writes."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one op writes of a root. `turn`: None where all of the tensor counts as one part."""

    tensor: int
    turn: int | None = None


class Memory:
    """`rows`: tensor that is no view -> the address of each row; what is not there lies outside the arena. `by_row`:
    the tensors that some step touches row by row."""

    def __init__(self, graph: Graph, rows: Mapping[int, IntArray], by_row: Iterable[int]) -> None:
        self.graph, self.rows = graph, rows
        self.staying = {
            node.op.outputs[0]: node.op.inputs[0]
            for node in graph.nodes
            if is_reshape(node)
            and not graph.holds_state(node.op.inputs[0])
            and self._is_at_one_place(node.op.inputs[0], node.op.outputs[0])
        }
        self.root = [self._root(tensor) for tensor in graph.tensors]
        split = {self.root[tensor] for tensor in by_row}
        self.units = [graph.tensors[root].rows if root in split else 1 for root in self.root]
        self.unit_bytes = [
            graph.tensors[root].size_bytes // units if units else 0
            for root, units in zip(self.root, self.units, strict=True)
        ]
        self._layouts: dict[tuple[int, int | None, int], Layout] = {}
        self.families: dict[int, Family] = {}

    def _is_at_one_place(self, source: int, target: int) -> bool:
        found = [self.rows.get(tensor) for tensor in (source, target)]
        return found[0] is not None and found[1] is not None and found[0][0] == found[1][0]

    def _root(self, tensor: Tensor) -> int:
        root = tensor.base
        while root in self.staying:
            root = self.staying[root]
        return root

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """Root -> all names of its bytes."""
        found: dict[int, list[int]] = {}
        for tensor, root in enumerate(self.root):
            found.setdefault(root, []).append(tensor)
        return found

    @cached_property
    def has_views(self) -> set[int]:
        """The roots that are not one part each, or are read in parts."""
        roots = {self.root[t.index] for t in self.graph.tensors if t.view is not None}
        return {root for root in roots if self.graph.tensors[root].elems}

    def is_in_arena(self, tensor: int) -> bool:
        return self.root[tensor] in self.rows

    def unit_elems(self, tensor: Tensor) -> int:
        """Elements of a tensor, which is no view, in each unit."""
        return self.unit_bytes[tensor.index] // tensor.dtype.size_bytes

    def extent(self, tensor: Tensor, turn: int | None, unit: int) -> tuple[int, int]:
        """The lowest address and the highest end."""
        if tensor.view is None:
            low = int(self.rows[self.root[tensor.index]][unit])
            return low, low + self.unit_bytes[tensor.index]
        layout = self.layout(tensor, turn, unit)
        return layout.low, layout.high

    def layout(self, tensor: Tensor, turn: int | None, unit: int) -> Layout:
        """The bytes of a tensor, or of a turn's part of it, that lie in a unit."""
        key = tensor.index, turn, unit
        if key not in self._layouts:
            start, size = int(self.rows[self.root[tensor.index]][unit]), tensor.dtype.size_bytes
            if tensor.view is None:
                self._layouts[key] = Layout.block(start, self.unit_elems(tensor), size)
            elif self.units[tensor.index] == 1 and turn is None:
                self._layouts[key] = Layout.of(tensor, start + tensor.offset_bytes)
            else:
                family = self.families[self.root[tensor.index]]
                at = family.grains(tensor)[family.picked(tensor, turn, unit)] * family.grain_bytes
                at = start + at - unit * self.unit_bytes[tensor.index]
                self._layouts[key] = Layout(at, family.grain_bytes // size, size)
        return self._layouts[key]

    def picked(self, touches: Touches, first: int, tensor: Tensor, turn: int | None, unit: int) -> Touches:
        """Of touches of a tensor's elements from `first` on, those that `layout` speaks of."""
        if self.units[tensor.index] == 1 and turn is None:
            return touches
        if tensor.view is None:
            elems = self.unit_elems(tensor)
            return touches.picked(np.array([unit - first // elems], dtype=np.int64), elems)
        family = self.families[self.root[tensor.index]]
        return touches.picked(family.picked(tensor, turn, unit), family.grain_bytes // tensor.dtype.size_bytes)


class Family:
    """A root in grains: so many bytes that no view, unit or part begins or ends within one."""

    def __init__(self, memory: Memory, root: int, parts: Sequence[Part]) -> None:
        self.memory, self.root, self.parts = memory, root, tuple(parts)
        tensors = memory.graph.tensors
        self.grain_bytes = memory.unit_bytes[root]
        for member in (tensors[m] for m in memory.members[root]):
            size, found = member.dtype.size_bytes, pieces(member.shape, member.strides)
            starts = int(np.gcd.reduce(found.starts)) if len(found.starts) else 0
            turn_bytes = member.row_bytes if any(p.tensor == member.index and p.turn is not None for p in parts) else 0
            self.grain_bytes = math.gcd(
                self.grain_bytes, member.offset_bytes, found.length * size, starts * size, turn_bytes
            )
        self._grains: dict[int, IntArray] = {}
        self._picked: dict[tuple[int, int | None, int], IntArray] = {}

    def grains(self, tensor: Tensor) -> IntArray:
        """The grains of a tensor, in the order of its elements."""
        if tensor.index not in self._grains:
            size, found = tensor.dtype.size_bytes, pieces(tensor.shape, tensor.strides)
            starts = (found.starts * size + tensor.offset_bytes) // self.grain_bytes
            within = np.arange(found.length * size // self.grain_bytes, dtype=np.int64)
            self._grains[tensor.index] = (starts[:, None] + within).reshape(-1)
        return self._grains[tensor.index]

    def picked(self, tensor: Tensor, turn: int | None, unit: int) -> IntArray:
        """Which of a tensor's grains lie in a unit and belong to a turn."""
        key = tensor.index, turn, unit
        if key not in self._picked:
            is_inside = self.units_of(self.grains(tensor)) == unit
            if turn is not None:
                is_inside &= self._turns(tensor) == turn
            self._picked[key] = np.flatnonzero(is_inside)
        return self._picked[key]

    def units_of(self, grains: IntArray) -> IntArray:
        found: IntArray = grains * self.grain_bytes // self.memory.unit_bytes[self.root]
        return found

    def _turns(self, tensor: Tensor) -> IntArray:
        """The turn that makes each grain of a tensor."""
        return np.arange(len(self.grains(tensor)), dtype=np.int64) * self.grain_bytes // tensor.row_bytes

    @cached_property
    def is_written_twice(self) -> bool:
        count = np.zeros(self.memory.graph.tensors[self.root].size_bytes // self.grain_bytes, dtype=np.int64)
        for tensor in dict.fromkeys(part.tensor for part in self.parts):
            np.add.at(count, self.grains(self.memory.graph.tensors[tensor]), 1)
        return bool((count > 1).any())

    @cached_property
    def _writer(self) -> IntArray:
        """The part that each grain belongs to."""
        tensors = self.memory.graph.tensors
        found = np.full(tensors[self.root].size_bytes // self.grain_bytes, NOBODY, dtype=np.int64)
        number = {part: n for n, part in enumerate(self.parts)}
        for tensor in dict.fromkeys(part.tensor for part in self.parts):
            grains = self.grains(tensors[tensor])
            if Part(tensor) in number:
                found[grains] = number[Part(tensor)]
            else:
                first = number[Part(tensor, 0)]
                found[grains] = first + self._turns(tensors[tensor])
        return found

    def looked_at(self, tensor: Tensor, elements: IntArray | None) -> list[tuple[int, int]]:
        """Parts by number (NOBODY: unwritten), and units, of some elements of a tensor; None: of all."""
        grains = self.grains(tensor)
        if elements is not None:
            grains = grains[distinct(elements * tensor.dtype.size_bytes // self.grain_bytes)]
        units = self.memory.units[self.root]
        count = np.bincount((self._writer[grains] - NOBODY) * units + self.units_of(grains))
        return [(int(n) // units + NOBODY, int(n) % units) for n in np.flatnonzero(count)]

    def units_in(self, part: Part) -> list[int]:
        """The units that a part lies in."""
        tensor = self.memory.graph.tensors[part.tensor]
        grains = self.grains(tensor)
        if part.turn is not None:
            grains = grains[self._turns(tensor) == part.turn]
        return [int(unit) for unit in distinct(self.units_of(grains))]
