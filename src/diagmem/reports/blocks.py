"""A plan as shapes: every buffer with its place, its steps, and the window of it that matters at each moment."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from diagmem.model.graph import Node
from diagmem.model.schedule import PUSH
from diagmem.planning.plan import Plan
from diagmem.planning.problem import Buffer
from diagmem.reports.fronts import Front, Fronts, fronts, sort_of
from diagmem.reports.row_windows import RowWindow, row_windows

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
        return tuple(self._shared())

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
        change = [0] * (self.rows + 1)
        for buffer in self.plan.buffers:
            change[min(self.rows, max(0, buffer.first_step))] += buffer.size_bytes
            change[min(self.rows, buffer.end_step)] -= buffer.size_bytes
        total, found = 0, []
        for delta in change[: self.rows]:
            total += delta
            found.append(total)
        return tuple(found)

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
        if peak is None or not buffer.first_step <= peak < buffer.end_step:
            return None
        op = self.plan.schedule.ops[peak]
        if buffer.first_step == peak:
            return "made"
        return "used" if op != PUSH and set(self.plan.graph.ops[op].inputs) & set(buffer.tensors) else "held"

    def _shared(self) -> Iterator[Shared]:
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
                        yield Shared(step, start, end)
