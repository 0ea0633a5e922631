"""A plan as shapes: every buffer with its place, its steps, and the window of it that matters at each moment.

Windows come from `fronts` (how far an op has read and written) and from the rows that a buffer holds at each step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from diagmem.kernels import Library
from diagmem.model.graph import DType, IntArray, Node
from diagmem.model.schedule import PUSH
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses, Runs
from diagmem.planning.needs.build_problem import as_run, row_lives
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.needs.problem import Buffer, live_bytes
from diagmem.planning.plan import Plan

SAMPLES = 64

TOLERANCE = 0.01

Front = tuple[tuple[float, int], ...]
"""Points (share of the operation's steps done, bytes), from 0 to 1; between them it is a straight line."""


def sort_of(node: Node) -> Hashable:
    """The same for operations that touch their tensors alike: many of a network's do, and each sort need be looked at
    only once."""
    tensors = tuple((t.shape, t.dtype, t.is_constant, t.strides) if t else None for t in (*node.inputs, *node.outputs))
    reads_values = any(t is not None and t.data is not None and t.dtype is DType.INT32 for t in node.inputs)
    return node.op.kind, node.op.attributes, tensors, node.op.index if reads_values else None


@dataclass(frozen=True, slots=True)
class Fronts:
    """`written[o]`: end of what is written of output o. `needed[i]`: start of what will still be read of input i, None
    for constants."""

    written: tuple[Front, ...]
    needed: tuple[Front | None, ...]


def fronts(node: Node, library: Library, samples: int = SAMPLES, tolerance: float | None = TOLERANCE) -> Fronts | None:
    """The fronts of an operation as the library runs it; None where its loops are not known.

    `tolerance`: how far a drawn line may pass from a point that is left out, as a part of the buffer; None: none is.
    """
    kind, order = kind_of(node.op.kind), library.order(node)
    if kind is None or order is None or kind.is_alias:
        return None
    accesses = kind.accesses(node, order)
    steps = np.unique(np.linspace(0, accesses.steps - 1, min(samples, accesses.steps)).astype(np.int64))
    return Fronts(
        tuple(
            _front(accesses, steps, _written(runs, steps) * tensor.dtype.size_bytes, 0, tolerance)
            for runs, tensor in zip(accesses.writes, node.outputs, strict=True)
        ),
        tuple(
            None
            if runs is None or tensor is None
            else _front(accesses, steps, *_needed_bytes(runs, steps, tensor.elems, tensor.dtype.size_bytes), tolerance)
            for runs, tensor in zip(accesses.reads, node.inputs, strict=True)
        ),
    )


def _front(accesses: Accesses, steps: IntArray, size_bytes: IntArray, at_start: int, tolerance: float | None) -> Front:
    """Points after each of the steps, and the one before the first; those on a straight line are left out."""
    done = (steps + 1) / accesses.steps
    points = [(0.0, at_start), *zip(done.tolist(), size_bytes.tolist(), strict=True)]
    if tolerance is None:
        return tuple(points)
    return tuple(simplified(points, tolerance * max(value for _, value in points)))


def simplified(points: list[tuple[float, int]], tolerance: float) -> list[tuple[float, int]]:
    """The fewest of the points such that the line through them passes within `tolerance` bytes of the others."""
    if len(points) < 3:
        return points
    (t0, b0), (t1, b1) = points[0], points[-1]
    off = [abs(b - (b0 + (b1 - b0) * (t - t0) / (t1 - t0))) for t, b in points]
    worst = max(range(len(points)), key=off.__getitem__)
    if off[worst] <= tolerance:
        return [points[0], points[-1]]
    return simplified(points[: worst + 1], tolerance)[:-1] + simplified(points[worst:], tolerance)


def _written(runs: Runs, steps: IntArray) -> IntArray:
    """The end of everything written up to and including each of the steps, in elements."""
    found = np.zeros(len(steps), dtype=np.int64)
    stride = np.maximum(runs.stride, 1)
    for place, step in enumerate(steps):
        begun = runs.step <= step
        count = np.where(runs.stride > 0, (step - runs.step) // stride + 1, runs.length)
        last = np.minimum(count, runs.length) - 1
        ends = runs.start + np.maximum(0, last * runs.pitch) + 1
        found[place] = ends[begun].max(initial=0)
    return found


def _needed_bytes(runs: Runs, steps: IntArray, elems: int, size_bytes: int) -> tuple[IntArray, int]:
    needed = _needed(runs, np.append(-1, steps), elems) * size_bytes
    return needed[1:], int(needed[0])


def _needed(runs: Runs, steps: IntArray, elems: int) -> IntArray:
    """The first element that is read after each of the steps; `elems` if none is."""
    if not len(runs.start):
        return np.full(len(steps), elems, dtype=np.int64)
    # A run's elements are read for the last time from `first` to `last`, one after the other.
    first = runs.step + runs.hold - 1
    last = first + (runs.length - 1) * runs.stride
    lowest = runs.start + np.minimum(0, (runs.length - 1) * runs.pitch)
    order = np.argsort(first, kind="stable")
    still_whole = np.append(np.minimum.accumulate(lowest[order][::-1])[::-1], elems)
    found = still_whole[np.searchsorted(first[order], steps, side="right")]
    for place, step in enumerate(steps):
        under_way = np.flatnonzero((first <= step) & (step < last))
        if len(under_way):
            passed = (step - first[under_way]) // np.maximum(1, runs.stride[under_way]) + 1
            ahead = runs.start[under_way] + passed * np.maximum(0, runs.pitch[under_way])
            falling = runs.pitch[under_way] < 0
            found[place] = min(found[place], np.where(falling, lowest[under_way], ahead).min())
    return found


Edge = tuple[tuple[float, float], ...]
"""Points (byte of the tensor, step), both ascending; none where the tensor is there at once, or to the end."""


@dataclass(frozen=True, slots=True)
class RowWindow:
    """`made`: where what has been made ends. `needed`: where what is still needed starts."""

    made: Edge
    needed: Edge


def row_windows(plan: Plan) -> Mapping[int, RowWindow]:
    """Tensor -> its window, for those of a plan that runs row by row which are in one piece and have several rows."""
    rows = as_run(footprint(plan.graph, plan.options), plan.schedule).rows
    steps = [(step.op, step.turn or 0) for step in plan.schedule.steps]
    lives: dict[int, list[tuple[int, range]]] = {}
    for (tensor, row), found in row_lives(rows, steps).items():
        lives.setdefault(tensor, []).extend((row, life) for life in found)
    given = plan.graph.inputs if all(op != PUSH for op, _ in steps) else ()
    kept = {*plan.graph.outputs, *(plan.graph.inputs if plan.options.keep_inputs else ())}
    return {
        tensor: RowWindow(
            () if tensor in given else _stairs([(row, life.start) for row, life in found], rows.row_bytes[tensor]),
            () if tensor in kept else _stairs([(row, life.stop) for row, life in found], rows.row_bytes[tensor]),
        )
        for tensor, found in lives.items()
        if tensor in plan.offsets and rows.rows[tensor] > 1
    }


def _stairs(steps_of_rows: list[tuple[int, int]], size: int) -> Edge:
    """Row r is passed at a step, or at that of a row before it if that is later."""
    points: list[tuple[float, float]] = []
    latest = 0
    for row, step in steps_of_rows:
        latest = max(latest, step)
        points += [(row * size, latest), ((row + 1) * size, latest)]
    return tuple(points)


MARGIN_ROWS = 0.5
"""What the caller holds before and after the run is drawn half a row beyond the steps."""


@dataclass(frozen=True, slots=True)
class Block:
    """A buffer from row `first` to row `end` at bytes [offset, offset + size). `window`: points (byte, row) around the
    bytes that matter; `is_full`: all of them do all the time. `role`: made, used or held at the plan's peak, else None.
    `is_state`: what a run leaves there is what the next one finds."""

    index: int
    buffer: Buffer
    offset: int
    first: float
    end: float
    window: tuple[tuple[float, float], ...]
    is_full: bool
    role: str | None
    is_state: bool = False

    @property
    def end_bytes(self) -> int:
        return self.offset + self.buffer.size_bytes


@dataclass(frozen=True, slots=True)
class Shared:
    """Bytes [start, end) that two buffers share at a step."""

    step: int
    start: int
    end: int


@dataclass(frozen=True)
class Picture:
    """The blocks of a plan and what they share."""

    plan: Plan

    @property
    def rows(self) -> int:
        return len(self.plan.schedule.steps)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        placed = zip(self.plan.buffers, self.plan.buffer_offsets, strict=True)
        return tuple(self._block(i, buffer, offset) for i, (buffer, offset) in enumerate(placed))

    @cached_property
    def shared(self) -> tuple[Shared, ...]:
        """Every step at which two live buffers share addresses."""
        found = []
        by_start: dict[int, list[Block]] = {}
        by_end: dict[int, list[Block]] = {}
        for block in self.blocks:
            by_start.setdefault(block.buffer.first_step, []).append(block)
            by_end.setdefault(block.buffer.end_step - 1, []).append(block)
        for step, made in sorted(by_start.items()):
            for new in made:
                for old in by_end.get(step, ()):
                    start, end = max(new.offset, old.offset), min(new.end_bytes, old.end_bytes)
                    if new is not old and start < end:
                        found.append(Shared(step, start, end))
        return tuple(found)

    @cached_property
    def peak(self) -> int | None:
        """The step at which the arena is used up to its end: the plan's peak, if it is used up then."""
        ends = [0] * self.rows
        for buffer, offset in zip(self.plan.buffers, self.plan.buffer_offsets, strict=True):
            for step in range(max(0, buffer.first_step), min(self.rows, buffer.end_step)):
                ends[step] = max(ends[step], offset + buffer.size_bytes)
        peak = self.plan.peak_step
        return peak if peak is None or ends[peak] == max(ends) else ends.index(max(ends))

    @cached_property
    def live(self) -> tuple[int, ...]:
        """For each step, the bytes of the buffers that live then, each counted whole."""
        return live_bytes(self.plan.buffers, self.rows)

    def _block(self, index: int, buffer: Buffer, offset: int) -> Block:
        first = max(float(buffer.first_step), -MARGIN_ROWS)
        end = min(float(buffer.end_step), self.rows + MARGIN_ROWS)
        offset_end = offset + buffer.size_bytes
        right: list[tuple[float, float]] = [(offset + size, buffer.first_step + t) for t, size in self._growth(buffer)]
        left: list[tuple[float, float]] = [
            (offset + start, buffer.end_step - 1 + t) for t, start in self._shrinkage(buffer)
        ]
        if buffer.rows is None and len(buffer.tensors) == 1 and buffer.tensors[0] in self.row_windows:
            window = self.row_windows[buffer.tensors[0]]
            right = [(offset + size, step) for size, step in window.made]
            left = [(offset + start, step) for start, step in window.needed]
        top, bottom = right or [(offset_end, first)], left or [(offset, end)]
        outline = dict.fromkeys([(offset, first), *top, (offset_end, end), *reversed(bottom)])
        is_full = not right and not left
        is_state = any(self.plan.graph.tensors[t].is_variable for t in buffer.tensors)
        return Block(index, buffer, offset, first, end, tuple(outline), is_full, self._role(buffer), is_state)

    def _growth(self, buffer: Buffer) -> Front:
        """The front of what is written, during the step that makes it; none if it is there at once."""
        node = self._node(buffer.first_step)
        if node is None or not buffer.tensors or buffer.tensors[0] not in node.op.outputs:
            return ()
        found = self.fronts[node.op.index]
        return found.written[node.op.outputs.index(buffer.tensors[0])] if found else ()

    def _shrinkage(self, buffer: Buffer) -> Front:
        """The front of what is still needed, during the last step; none if all of it is to the end."""
        node = self._node(buffer.end_step - 1)
        if node is None or buffer.end_step - 1 <= buffer.first_step:
            return ()
        read = [position for position, t in enumerate(node.op.inputs) if t in buffer.tensors]
        is_whole = len(read) == 1 and node.input(read[0]).view is None
        found = self.fronts[node.op.index] if is_whole else None
        return (found.needed[read[0]] or ()) if found else ()

    def _node(self, step: int) -> Node | None:
        """The operation that a step runs whole; None where there is none."""
        steps = self.plan.schedule.steps
        if not 0 <= step < len(steps) or steps[step].turn is not None or steps[step].op == PUSH:
            return None
        return self.plan.graph.nodes[steps[step].op]

    def step_words(self, step: int) -> str:
        """What runs at a step, in a few words."""
        op, turn = self.plan.schedule.steps[step].op, self.plan.schedule.steps[step].turn
        if op == PUSH:
            return "next row of the input"
        # The row comes first: where there is little space, the end is cut off.
        part = "" if turn is None else f"op {self.plan.graph.ops[op].number} row {turn}, "
        return part + self.plan.graph.ops[op].kind.lower().replace("_", " ")

    @cached_property
    def row_windows(self) -> Mapping[int, RowWindow]:
        return row_windows(self.plan) if self.plan.runs_by_rows else {}

    @cached_property
    def fronts(self) -> dict[int, Fronts | None]:
        sorts: dict[Hashable, Fronts | None] = {}
        for node in self.plan.graph.nodes:
            if sort_of(node) not in sorts:
                sorts[sort_of(node)] = fronts(node, self.plan.options.library)
        return {node.op.index: sorts[sort_of(node)] for node in self.plan.graph.nodes}

    def _role(self, buffer: Buffer) -> str | None:
        peak = self.peak
        if peak is None or peak not in buffer.steps:
            return None
        op = self.plan.schedule.ops[peak]
        if buffer.first_step == peak:
            return "made"
        return "used" if op != PUSH and set(self.plan.graph.ops[op].inputs) & set(buffer.tensors) else "held"
