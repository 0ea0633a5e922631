"""An oracle for the validator: every byte of the arena with its owner, every touch of every turn in its place.

Slow and plain on purpose, and nothing of the validator: this is what the clever code is held against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from diagmem.kernels import Library
from diagmem.model.graph import Graph, Node, Tensor
from diagmem.model.schedule import PUSH, PushState, Schedule
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses
from tests.ops.simulation import by_step, places

Owner = tuple[object, int]

CONTESTED: Owner = ("two that are filled before the run", 0)


def turns_of(node: Node, library: Library) -> int:
    """How many turns an op has; 0 where it can only be run whole."""
    kind, accesses = kind_of(node.op.kind), library.accesses(node)
    if kind is None or kind.is_alias or accesses is None or len(node.outputs) != 1:
        return 0
    if sums_of(node) is not None:
        return node.input(0).rows
    return node.output.rows if kind.has_row_kernel(node) and windows(node, accesses) else 0


def sums_of(node: Node) -> int | None:
    kind = kind_of(node.op.kind)
    return None if kind is None or kind.is_alias or len(node.outputs) != 1 else kind.accumulator_bytes(node)


def windows(node: Node, accesses: Accesses) -> list[range]:
    """The kernel steps of each turn; none where rows are not written one after another."""
    row_elems = node.output.elems // node.output.rows
    steps: dict[int, list[int]] = {}
    for step, elements in sorted(by_step(accesses.writes[0]).items()):
        for element in elements:
            steps.setdefault(element // row_elems, []).append(step)
    if sorted(steps) != list(range(node.output.rows)):
        return []
    found, begin = [], 0
    for row in range(node.output.rows):
        if steps[row][0] < begin:
            return []
        found.append(range(begin, steps[row][-1] + 1))
        begin = steps[row][-1] + 1
    found[-1] = range(found[-1].start, accesses.steps)
    return found


@dataclass
class Shadow:
    """`addresses`: tensor that is no view -> the address of each row."""

    graph: Graph
    library: Library
    addresses: Mapping[int, Sequence[int]]
    scratch: Mapping[int, int]
    memory: dict[int, Owner] = field(default_factory=dict)
    alias: dict[int, int] = field(default_factory=dict)
    version: Counter[Owner] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.owners = cache(self._owners)
        self.windows = cache(lambda op: windows(self.graph.nodes[op], self.accesses(op)))
        self.accesses = cache(self._accesses)
        self.steps = cache(self._steps)

    def loses_bytes(self, schedule: Schedule, keep_inputs: bool = False) -> bool:
        """Whether some read, by an op or by the caller at the end, finds a byte that is not its tensor's own.

        Of plans in which scratch or two results of one step share bytes with something, the validator judges more
        strictly than this.
        """
        is_streamed = any(step.op == PUSH for step in schedule.steps)
        state = PushState.of(self.graph, schedule.ops).size_bytes if is_streamed else 0
        self._fill(is_streamed, state, [t.index for t in self.graph.tensors if t.is_variable])
        if self._run_loses(schedule, keep_inputs, state):
            return True
        if not self.graph.variables:
            return False
        # Nothing but the state is left for the next run.
        kept = {at for t in self.graph.variables for at, _ in self._bytes(t, range(t.elems))}
        self.memory = {at: owner for at, owner in self.memory.items() if at in kept}
        self._fill(is_streamed, state, [])
        return self._run_loses(schedule, keep_inputs, state)

    def _run_loses(self, schedule: Schedule, keep_inputs: bool, state: int) -> bool:
        for step in schedule.steps:
            if step.op == PUSH:
                tensor = self.graph.tensors[self.graph.inputs[0]]
                self._write(tensor, row_of(tensor, step.turn or 0))
            elif not self._run(step.op, step.turn):
                return True
        kept = {*self.graph.outputs, *(self.graph.inputs if keep_inputs else ())}
        kept |= {t.index for t in self.graph.tensors if t.is_variable}
        kept_tensors = [self.graph.tensors[t] for t in kept if not self.graph.tensors[t].is_constant]
        return not all(self._owns(t, range(t.elems)) for t in kept_tensors) or not self._holds(PUSH, state)

    def _fill(self, is_streamed: bool, state: int, variables: Sequence[int]) -> None:
        given = [t for t in self.graph.inputs if not is_streamed or t != self.graph.inputs[0]]
        given += variables
        seen: set[int] = set()
        for index in given:
            for at, owner in self._bytes(self.graph.tensors[index], range(self.graph.tensors[index].elems)):
                self.memory[at] = CONTESTED if at in seen else owner
                seen.add(at)
        for byte in range(state):
            at = self.scratch[PUSH] + byte
            self.memory[at] = CONTESTED if at in seen else (("held", PUSH), byte)

    def _run(self, op: int, turn: int | None) -> bool:
        """Whether a step finds all that it reads. What it makes of a variable is another version of it."""
        found = self._run_kernel(op, turn)
        for tensor in self.graph.nodes[op].outputs:
            if tensor.is_variable:
                self.version.update(owner for _, owner in self._bytes(tensor, range(tensor.elems), is_bare=True))
        return found

    def _run_kernel(self, op: int, turn: int | None) -> bool:
        node = self.graph.nodes[op]
        kind = kind_of(node.op.kind)
        inputs = {t.index: t for _, t in node.activations()}.values()
        if kind is not None and kind.is_alias and self._stays(node):
            self.alias[node.output.index] = node.input(0).index
            self.owners.cache_clear()
            return True
        if turn is not None and sums_of(node) is not None:
            return self._take(node, turn)
        if kind is None or kind.is_alias or self.library.accesses(node) is None:
            for tensor in node.outputs:
                self._write(tensor, range(tensor.elems))
            return all(self._owns(tensor, range(tensor.elems)) for tensor in inputs)
        reads, writes = self.steps(op)
        for step in range(self.accesses(op).steps) if turn is None else self.windows(op)[turn]:
            for position, touched in reads.items():
                if not self._owns(node.input(position), touched.get(step, ())):
                    return False
            for tensor, touched in zip(node.outputs, writes, strict=True):
                self._write(tensor, touched.get(step, ()))
        return True

    def _accesses(self, op: int) -> Accesses:
        found = self.library.accesses(self.graph.nodes[op])
        assert found is not None
        return found

    def _steps(self, op: int) -> tuple[dict[int, dict[int, list[int]]], list[dict[int, list[int]]]]:
        accesses = self.accesses(op)
        reads = {p: by_step(runs) for p, runs in enumerate(accesses.reads) if runs is not None}
        return reads, [by_step(runs) for runs in accesses.writes]

    def _take(self, node: Node, turn: int) -> bool:
        """An op that sums up rows: within a turn nothing is known but that all is touched."""
        op, size, tensor = node.op.index, sums_of(node) or 0, node.input(0)
        if turn == 0:
            self.memory.update((self.scratch[op] + b, (("held", op), b)) for b in range(size))
        if turn == tensor.rows - 1:
            self._write(node.output, range(node.output.elems))
        own = self._owns(tensor, row_of(tensor, turn)) and self._holds(op, size)
        return own and (turn < tensor.rows - 1 or self._owns(node.output, range(node.output.elems)))

    def _stays(self, node: Node) -> bool:
        source, target = node.input(0), node.output
        if source.is_constant or source.is_variable or target.is_variable or source.view or target.view:
            return False
        if self.graph.holds_state(source.index):
            return False
        return self.addresses[source.index][0] == self.addresses[target.index][0]

    def _holds(self, op: int, size: int) -> bool:
        return all(self.memory.get(self.scratch[op] + b) == (("held", op), b) for b in range(size))

    def _owns(self, tensor: Tensor, elements: Sequence[int]) -> bool:
        return all(self.memory.get(at) == owner for at, owner in self._bytes(tensor, elements))

    def _write(self, tensor: Tensor, elements: Sequence[int]) -> None:
        self.memory.update(self._bytes(tensor, elements, newer=1 if tensor.is_variable else 0))

    def _bytes(
        self, tensor: Tensor, elements: Sequence[int], newer: int = 0, is_bare: bool = False
    ) -> Iterator[tuple[int, Owner]]:
        owners, size = self.owners(tensor.index), tensor.dtype.size_bytes
        for element in elements:
            for at, owner in owners[element * size : (element + 1) * size]:
                yield at, owner if is_bare else (owner, self.version[owner] + newer)

    def _owners(self, index: int) -> list[tuple[int, Owner]]:
        """The address of each byte of a tensor, and what must be there: a byte of the tensor that it is part of, or is
        under another shape."""
        tensor = self.graph.tensors[index]
        base, size = self.graph.tensors[tensor.base], tensor.dtype.size_bytes
        value = base.index
        while value in self.alias:
            value = self.alias[value]
        found: list[tuple[int, Owner]] = []
        for place in places(tensor):
            for byte in range(tensor.offset_bytes + place * size, tensor.offset_bytes + (place + 1) * size):
                row, within = divmod(byte, base.row_bytes)
                found.append((self.addresses[base.index][row] + within, (value, byte)))
        return found


def row_of(tensor: Tensor, row: int) -> range:
    """The elements of a row."""
    size = tensor.elems // tensor.rows
    return range(row * size, (row + 1) * size)
