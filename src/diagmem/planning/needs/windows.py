"""What a schedule holds when: the lives of rows, and the live window of each buffer.

A store that only whole steps touch is one buffer, there from the step that first writes it to the last that reads it. A
store that single rows are made in, or read from, and that must lie in one piece is one buffer whose window moves: it
grows as rows are made and shrinks from the front as rows die, so others may use the space before and behind. Any other
tensor is a table of rows, each a buffer of its own, placed anywhere; a row of which parts are made one by one is there
from the first of them to the last use of any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from diagmem.model.graph import IntArray
from diagmem.model.schedule import PUSH, PushState, Schedule
from diagmem.ops.kind import SUM_BYTES
from diagmem.planning.needs.footprint import Footprint, Store, live_hulls, most_covered
from diagmem.planning.needs.problem import BEFORE_RUN, Buffer
from diagmem.planning.needs.rows import RowGraph, lines_up

RowStep = tuple[int, int]
"""A step in plain numbers: an op and its turn (0 where it runs whole); op PUSH and a row of the streamed input."""

Row = tuple[int, int]
"""A tensor and a row of it."""


class Life(NamedTuple):
    """The steps [first, end) during which a row must exist; one that is there before the run starts at step 0."""

    tensor: int
    row: int
    first: int
    end: int


def rows_read(rows: RowGraph, step: RowStep) -> list[Row]:
    op, turn = step
    if op == PUSH:
        return []
    needs = rows.ops[op].needs
    return [(need.tensor, row) for need in needs for row in range(need.first[turn], need.end[turn])]


def rows_made(rows: RowGraph, step: RowStep) -> list[Row]:
    op, turn = step
    if op == PUSH:
        return [(rows.graph.inputs[0], turn)]
    made = rows.ops[op].makes_at(turn)
    makes = rows.ops[op].makes
    return [(tensor, row) for tensor in makes for row in (range(rows.rows[tensor]) if made is None else made)]


def row_lives(rows: RowGraph, steps: Sequence[RowStep]) -> list[Life]:
    """The lives of all rows that the steps touch, by tensor and row. A row that is made again lives again."""
    found: list[tuple[Row, list[int]]] = []
    now: dict[Row, list[int]] = {}

    def born(row: Row, at: int) -> list[int]:
        now[row] = [at, at + 1]
        found.append((row, now[row]))
        return now[row]

    for at, step in enumerate(steps):
        for row in rows_read(rows, step):
            (now.get(row) or born(row, 0))[1] = at + 1
        for row in rows_made(rows, step):
            born(row, at)
    return sorted(Life(*row, *span) for row, span in found)


def sum_lives(rows: RowGraph, steps: Sequence[tuple[int, int | None]]) -> list[tuple[int, int, int]]:
    """(op, first, end) for each accumulator: the steps [first, end) during which it holds its sums. One that runs whole
    (turn None) holds none."""
    span: dict[int, tuple[int, int]] = {}
    for at, (op, turn) in enumerate(steps):
        if op != PUSH and turn is not None and rows.ops[op].accumulator_bytes:
            span[op] = (span.get(op, (at, at))[0], at + 1)
    return [(op, first, end) for op, (first, end) in span.items()]


def shared_bytes(rows: RowGraph, step: RowStep, dying: Collection[Row]) -> int:
    """The most bytes that the row made at a step can share with those that die there."""
    index, turn = step
    if index == PUSH or rows.ops[index].makes_at(turn) is None:
        return 0
    op = rows.ops[index]
    above = [
        (apart, rows.row_bytes[need.tensor])
        for need in op.needs
        for row, apart in enumerate(need.apart[turn], need.first[turn])
        if (need.tensor, row) in dying
    ]
    return most_covered(rows.row_bytes[op.makes[0]], above)


NEVER = 1 << 40
"""Stands for the start of nothing: no window reaches so far."""


@dataclass(frozen=True, slots=True)
class LiveWindow:
    """A buffer's window [low, high) in bytes at each of its steps, from its first one on. `is_still`: it is all of the
    buffer, all the time."""

    buffer: Buffer
    low: IntArray
    high: IntArray
    is_still: bool

    def low_at(self, steps: slice) -> IntArray:
        return self.low[steps.start - self.buffer.first_step : steps.stop - self.buffer.first_step]

    def high_at(self, steps: slice) -> IntArray:
        return self.high[steps.start - self.buffer.first_step : steps.stop - self.buffer.first_step]

    @classmethod
    def still(cls, buffer: Buffer) -> LiveWindow:
        steps = buffer.end_step - buffer.first_step
        return cls(buffer, np.zeros(steps, dtype=np.int64), np.full(steps, buffer.size_bytes, dtype=np.int64), True)

    @classmethod
    def of_lives(cls, buffer: Buffer, lives: Sequence[Life]) -> LiveWindow:
        """All of it, but nothing between one life and the next."""
        still = cls.still(buffer)
        has_gap = False
        for life, following in pairwise(lives):
            gap = slice(life.end - buffer.first_step, following.first - buffer.first_step)
            has_gap = has_gap or gap.start < gap.stop
            still.low[gap], still.high[gap] = NEVER, -NEVER
        return cls(buffer, still.low, still.high, not has_gap)

    @property
    def size(self) -> IntArray:
        """Bytes at each step."""
        held: IntArray = np.maximum(0, self.high - self.low)
        return held


class LiveWindows:
    """Collects the windows of a schedule, store by store."""

    def __init__(self, needs: Footprint, schedule: Schedule) -> None:
        self.needs, self.schedule, self.is_streamed = needs, schedule, schedule.is_streamed
        self.end = len(schedule.steps)
        self.steps_of: dict[int, list[int]] = defaultdict(list)
        for at, step in enumerate(schedule.steps):
            self.steps_of[step.op].append(at)
        self.by_turns = {step.op for step in schedule.steps if step.turn is not None}
        self.windows: list[LiveWindow] = []
        self.whole: dict[int, int] = {}
        self.home: dict[Row, tuple[int, int]] = {}

    def add(self, index: int, store: Store) -> None:
        touched_by = store.writers | store.readers | self._pushed(store)
        if store.holds_state or not touched_by & self.by_turns:
            self.whole[index] = len(self.windows)
            self.windows.append(self._state(store) if store.holds_state else self._still(store))
        elif store.is_scratch:
            (op,) = store.writers
            if not self.needs.rows.ops[op].accumulator_bytes:
                self.windows.append(self._scratch(store, op))
        elif not self._is_table(store):
            if len(store.tensors) == 1:
                size, rows = self.needs.rows.row_bytes[store.tensors[0]], self.needs.rows.rows[store.tensors[0]]
                self.home.update({(store.tensors[0], row): (len(self.windows), row * size) for row in range(rows)})
            self.whole[index] = len(self.windows)
            self.windows.append(self._moving(store))
        else:
            for window in self._table(store):
                assert window.buffer.rows is not None
                self.home[store.tensors[0], window.buffer.rows.start] = len(self.windows), 0
                self.windows.append(window)

    def _is_table(self, store: Store) -> bool:
        """Whether its rows may lie anywhere: nobody touches it whole, and rows of its views are parts of its own."""
        tensors = [self.needs.graph.tensors[t] for t in store.tensors]
        is_family = all(t.base == store.tensors[0] and lines_up(t, tensors[0]) for t in tensors)
        return is_family and not self.in_one_piece & {*store.tensors}

    def _pushed(self, store: Store) -> frozenset[int]:
        is_pushed = self.is_streamed and self.needs.graph.inputs[0] in store.tensors
        return frozenset([PUSH]) if is_pushed else frozenset()

    @cached_property
    def in_one_piece(self) -> frozenset[int]:
        """Tensors that must lie in one piece: what the caller sees whole, and what a whole step reads or writes."""
        graph = self.needs.graph
        whole = (graph.ops[step.op] for step in self.schedule.steps if step.turn is None)
        touched = {t for op in whole for t in (*op.inputs, *op.outputs)}
        given = () if self.is_streamed else graph.inputs
        return frozenset({*given, *graph.outputs, *touched})

    @cached_property
    def lives(self) -> Mapping[int, list[Life]]:
        """Tensor -> the lives of its rows, by row."""
        found: dict[int, list[Life]] = defaultdict(list)
        steps = [(step.op, step.turn or 0) for step in self.schedule.steps]
        for life in row_lives(self.needs.rows, steps):
            found[life.tensor].append(life)
        return found

    def _still(self, store: Store) -> LiveWindow:
        first = min((self.steps_of[op][0] for op in store.writers), default=BEFORE_RUN)
        ops = store.writers | store.readers
        last = self.end if store.is_kept else max((self.steps_of[op][-1] for op in ops), default=first)
        scratch_of = min(store.writers) if store.is_scratch else None
        return LiveWindow.still(
            Buffer(store.name, store.size_bytes, first, last + 1, store.align_bytes, store.tensors, scratch_of)
        )

    def _state(self, store: Store) -> LiveWindow:
        """There before, during and after the run, but not always all of it."""
        found = live_hulls(self.needs.graph, store, self.schedule.ops, self.needs.options.keep_inputs)
        low, high = (np.array([(NEVER, -NEVER)[n] if hull is None else hull[n] for hull in found]) for n in (0, 1))
        buffer = Buffer(store.name, store.size_bytes, BEFORE_RUN, self.end + 1, store.align_bytes, store.tensors)
        is_still = bool((low == 0).all() and (high == store.size_bytes).all())
        return LiveWindow(buffer, low.astype(np.int64), high.astype(np.int64), is_still)

    def _scratch(self, store: Store, op: int) -> LiveWindow:
        """Needed at each turn of an op, and not between them."""
        lives = [Life(-1, 0, at, at + 1) for at in self.steps_of[op]]
        span = lives[0].first, lives[-1].end
        buffer = Buffer(store.name, store.size_bytes, *span, store.align_bytes, scratch_of=op)
        return LiveWindow.of_lives(buffer, lives)

    def _table(self, store: Store) -> Iterator[LiveWindow]:
        """A buffer for each row; one that is made again is always at the same place."""
        base = store.tensors[0]
        size = self.needs.rows.row_bytes[base]
        lives = self.lives[base] if len(store.tensors) == 1 else self._lives_of_parts(store)
        for row, group in groupby(lives, key=lambda life: life.row):
            own, name, rows_held = list(group), f"{store.name}[{row}]", range(row, row + 1)
            span = own[0].first, own[-1].end
            buffer = Buffer(name, size, *span, store.align_bytes, (base,), rows=rows_held)
            yield LiveWindow.of_lives(buffer, own)

    def _lives_of_parts(self, store: Store) -> Iterator[Life]:
        """A row is there from the first of its parts that is made to the last that is read."""
        parts = sorted((life for t in store.tensors for life in self.lives[t]), key=lambda life: life.row)
        for row, group in groupby(parts, key=lambda life: life.row):
            lives = list(group)
            yield Life(store.tensors[0], row, min(life.first for life in lives), max(life.end for life in lives))

    def _moving(self, store: Store) -> LiveWindow:
        """A store in one piece. Its window moves only if it holds a single tensor; else it is whole from its start."""
        lives = [life for t in store.tensors for life in self.lives[t]]
        first = BEFORE_RUN if not store.writers else min(life.first for life in lives)
        end = self.end + 1 if store.is_kept else max((life.end for life in lives), default=first + 1)
        buffer = Buffer(store.name, store.size_bytes, first, end, store.align_bytes, store.tensors)
        window = LiveWindow.still(buffer)
        if len(store.tensors) > 1:
            return window
        low, high = window.low, window.high
        size, rows = self.needs.rows.row_bytes[store.tensors[0]], self.needs.rows.rows[store.tensors[0]]
        if not store.is_kept:
            died = np.full(rows, first + 1, dtype=np.int64)
            for life in lives:
                died[life.row] = life.end
            # What lies before a row that still lives is not given up.
            for row, at in enumerate(np.maximum.accumulate(died)):
                low[at - first :] = (row + 1) * size
        if store.writers:
            high[:] = 0
            for life in lives:
                high[life.first - first :] = np.maximum(high[life.first - first :], (life.row + 1) * size)
        return LiveWindow(buffer, low, high, is_still=False)

    def held_by_ops(self) -> Iterator[Buffer]:
        """Sums of accumulators, and what a run remembers while it waits for the caller's next row."""
        unit, graph = self.needs.unit_bytes, self.needs.graph
        steps = [(step.op, step.turn) for step in self.schedule.steps]
        for op, first, end in sum_lives(self.needs.rows, steps) if self.by_turns else ():
            name, size = f"sums of op {graph.ops[op].number}", self.needs.rows.ops[op].accumulator_bytes
            yield Buffer(name, size, first, end, max(SUM_BYTES, unit), scratch_of=op)
        if self.is_streamed:
            state = PushState.of(graph, self.schedule.ops)
            align = max(state.at_bytes, unit)
            yield Buffer("state", state.size_bytes, BEFORE_RUN, self.end + 1, align, scratch_of=PUSH)
