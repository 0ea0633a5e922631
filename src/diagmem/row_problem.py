"""The placement problem of a graph that runs row by row.

A tensor that only row steps touch is kept as a table of rows, each a buffer of its own, placed anywhere. A tensor that
must lie in one piece is one buffer whose window moves: it grows as rows are made and shrinks from the front as rows
die, so others may use the space before and behind. A row may lie over rows that die while it is made, as far as its
kernel allows. All of it becomes separations, and the allocators need not know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from diagmem.footprint import Footprint, Store, most_covered
from diagmem.graph import IntArray
from diagmem.ops.kind import SUM_BYTES
from diagmem.problem import BEFORE_RUN, Buffer, Problem
from diagmem.rows import RowGraph
from diagmem.schedule import PUSH, PushState, Schedule
from diagmem.schedulers.lives import Life, Row, Turn, row_lives, sum_lives

NEVER = 1 << 40
"""Stands for the start of nothing: no window reaches so far."""

Pair = tuple[int, int]
"""Two buffers by index: the one below, the one above."""


def row_problem(needs: Footprint, rows: RowGraph, schedule: Schedule) -> Problem:
    """Buffers and separations under a schedule of single rows. A streamed input has no store in one piece."""
    return _Posed.of(needs, rows, schedule).problem()


@dataclass(frozen=True, slots=True)
class _Window:
    """A buffer's window [low, high) in bytes at each of its steps, from its first one on."""

    buffer: Buffer
    low: IntArray
    high: IntArray

    def low_at(self, steps: slice) -> IntArray:
        return self.low[steps.start - self.buffer.first_step : steps.stop - self.buffer.first_step]

    def high_at(self, steps: slice) -> IntArray:
        return self.high[steps.start - self.buffer.first_step : steps.stop - self.buffer.first_step]

    @classmethod
    def still(cls, buffer: Buffer) -> _Window:
        """All of it, all the time."""
        steps = buffer.end_step - buffer.first_step
        return cls(buffer, np.zeros(steps, dtype=np.int64), np.full(steps, buffer.size_bytes, dtype=np.int64))

    @classmethod
    def of_lives(cls, buffer: Buffer, lives: Sequence[Life]) -> _Window:
        """All of it, but nothing between one life and the next."""
        window = cls.still(buffer)
        for life, following in pairwise(lives):
            gap = slice(life.last + 1 - buffer.first_step, following.first - buffer.first_step)
            window.low[gap], window.high[gap] = NEVER, -NEVER
        return window

    @property
    def size(self) -> IntArray:
        """Bytes at each step."""
        held: IntArray = np.maximum(0, self.high - self.low)
        return held


class _Met(NamedTuple):
    """A row, or a tensor, that is made of another one that dies: buffers, where in these the two lie, their sizes, and
    the separation of the two."""

    out: int
    out_at: int
    out_bytes: int
    source: int
    source_at: int
    in_bytes: int
    apart: int


@dataclass(frozen=True)
class _Posed:
    """`windows`: one for each buffer. `pieces`: store -> buffer, of those in one piece. `home`: (tensor, row) -> its
    buffer, and the offset in it, for the tensors whose rows come and go one by one."""

    needs: Footprint
    rows: RowGraph
    turns: tuple[Turn, ...]
    windows: tuple[_Window, ...]
    pieces: Mapping[int, int]
    home: Mapping[Row, tuple[int, int]]

    @classmethod
    def of(cls, needs: Footprint, rows: RowGraph, schedule: Schedule) -> _Posed:
        turns = tuple((step.op, step.turn or 0) for step in schedule.steps)
        whole = rows.in_one_piece(input_rows=any(op == PUSH for op, _ in turns))
        lives: dict[int, list[Life]] = defaultdict(list)
        for life in row_lives(rows, turns):
            lives[life.tensor].append(life)
        windows: list[_Window] = []
        pieces: dict[int, int] = {}
        home: dict[Row, tuple[int, int]] = {}
        for index, store in enumerate(needs.stores):
            tensor = store.tensors[0] if len(store.tensors) == 1 else None
            if tensor is not None and tensor not in whole:
                for window in _table(store, rows, lives[tensor]):
                    home[tensor, (window.buffer.rows or range(1)).start] = len(windows), 0
                    windows.append(window)
            elif not store.is_scratch:
                if tensor is not None:
                    size = rows.row_bytes[tensor]
                    home.update({(tensor, row): (len(windows), row * size) for row in range(rows.rows[tensor])})
                pieces[index] = len(windows)
                windows.append(_piece(store, rows, [life for t in store.tensors for life in lives[t]], len(turns)))
        windows += (_Window.still(buffer) for buffer in _held(rows, turns, needs.unit_bytes))
        return cls(needs, rows, turns, tuple(windows), pieces, home)

    def problem(self) -> Problem:
        buffers = tuple(window.buffer for window in self.windows)
        near = {pair: apart for pair, met in self.meetings.items() for _, apart in met}
        overlaps = {**near, **dict(self._moving_pairs())}
        pressure = self._pressure()
        return Problem(buffers, overlaps, self.needs.unit_bytes, pressure, max(pressure, default=0))

    @cached_property
    def meetings(self) -> Mapping[Pair, list[tuple[int, int]]]:
        """(output below, input above) -> the steps at which a row of the one is made of rows of the other that die, and
        the separation that each asks for."""
        found: dict[Pair, list[tuple[int, int]]] = defaultdict(list)
        for at, turn in enumerate(self.turns):
            asked: dict[Pair, int] = {}
            for met in self._met_at(at, turn):
                apart = met.out_at + met.apart - met.source_at
                asked[met.out, met.source] = max(apart, asked.get((met.out, met.source), apart))
            for pair, apart in asked.items():
                found[pair].append((at, max(apart, *self._beside(pair, at))))
        return found

    def _met_at(self, at: int, turn: Turn) -> Iterator[_Met]:
        """The input rows that die while a row is made of them."""
        if turn[0] == PUSH or not self.needs.options.overlap:
            return
        op = self.rows.ops[turn[0]]
        if op.is_whole:
            yield from self._met_whole(at, op.index)
        for made in op.makes_at(turn[1]) or ():
            out, out_bytes = self.home.get((op.makes[0], made)), self.rows.row_bytes[op.makes[0]]
            for need in op.needs:
                size = self.rows.row_bytes[need.tensor]
                for row, apart in enumerate(need.apart[turn[1]], need.first[turn[1]]):
                    source = self.home.get((need.tensor, row))
                    if out is not None and source is not None and self._dies(source[0], source[1] + size, at):
                        yield _Met(*out, out_bytes, *source, size, apart)

    def _met_whole(self, at: int, op: int) -> Iterator[_Met]:
        """Whole tensors that die while others are made of them."""
        for (made, read), apart in self.needs.separations[op].items():
            out, source = (self.windows[self.pieces[store]].buffer for store in (made, read))
            if out.first_step == at == source.end_step - 1:
                yield _Met(self.pieces[made], 0, out.size_bytes, self.pieces[read], 0, source.size_bytes, apart)

    def _dies(self, buffer: int, end: int, at: int) -> bool:
        """Whether the window leaves behind all bytes below `end` after this step."""
        window = self.windows[buffer]
        next_step = at + 1 - window.buffer.first_step
        return next_step >= len(window.low) or int(window.low[next_step]) >= end

    def _beside(self, pair: Pair, at: int) -> Iterator[int]:
        """What other rows of the two ask for at the step: rows made before against rows that die now, and the row made
        now against rows that live on."""
        below, above = (self.windows[index] for index in pair)
        here, there = at - below.buffer.first_step, at - above.buffer.first_step
        yield -above.buffer.size_bytes
        if here > 0:
            yield int(below.high[here - 1] - above.low[there])
        if there + 1 < len(above.low):
            yield int(below.high[here] - above.low[there + 1])

    def _moving_pairs(self) -> Iterator[tuple[Pair, int]]:
        """separation(below, above) for each pair in which a window moves, or is not always there."""
        moving = {n for n, window in enumerate(self.windows) if window.size.min() < window.size.max()}
        moving.update(self.pieces.values())
        for index in sorted(moving):
            for other in range(len(self.windows)):
                if other != index and (other not in moving or other > index):
                    yield from self._both_ways(index, other)

    def _both_ways(self, a: int, b: int) -> Iterator[tuple[Pair, int]]:
        first, second = self.windows[a].buffer, self.windows[b].buffer
        steps = slice(max(first.first_step, second.first_step), min(first.end_step, second.end_step))
        if steps.start < steps.stop:
            for pair in ((a, b), (b, a)):
                apart = self.windows[pair[0]].high_at(steps) - self.windows[pair[1]].low_at(steps)
                for at, asked in self.meetings.get(pair, ()):
                    apart[at - steps.start] = asked
                yield pair, int(apart.max())

    def _pressure(self) -> tuple[int, ...]:
        """Bytes that no placement can do without at each step: rows and sums in whole units, windows by their bytes,
        less what the row that is made can share with those that die."""
        unit, steps = self.needs.unit_bytes, len(self.turns)
        live = np.zeros(steps + 2, dtype=np.int64)
        moving = set(self.pieces.values())
        for index, window in enumerate(self.windows):
            # A unit at the edge of a window that moves may also hold bytes of another buffer.
            size = window.size if index in moving else window.size + unit - 1
            live[window.buffer.first_step + 1 : window.buffer.end_step + 1] += size // unit * unit
        given, after = live[0], live[-1]
        during = live[1:-1].copy()
        for at, turn in enumerate(self.turns):
            during[at] -= self._shared(at, turn) // unit * unit
        if steps:
            during[0], during[-1] = max(during[0], given), max(during[-1], after)
        return tuple(during.tolist())

    def _shared(self, at: int, turn: Turn) -> int:
        """The most bytes that the row made at a step can share with rows that die."""
        dying: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for met in self._met_at(at, turn):
            dying[met.out].append((met.apart, met.in_bytes))
        sizes = {met.out: met.out_bytes for met in self._met_at(at, turn)}
        return sum(most_covered(sizes[out], inputs) for out, inputs in dying.items())


def _table(store: Store, rows: RowGraph, lives: list[Life]) -> Iterator[_Window]:
    """A buffer for each row; one that is made again is always at the same place."""
    size = rows.row_bytes[store.tensors[0]]
    for row, group in groupby(lives, key=lambda life: life.row):
        own, name, rows_held = list(group), f"{store.name}[{row}]", range(row, row + 1)
        span = own[0].first, own[-1].last + 1
        buffer = Buffer(name, size, *span, store.align_bytes, store.tensors, rows=rows_held)
        yield _Window.of_lives(buffer, own)


def _piece(store: Store, rows: RowGraph, lives: list[Life], steps: int) -> _Window:
    """A store in one piece. Its window moves only if it holds a single tensor; else it is whole from its start on."""
    first = BEFORE_RUN if not store.writers else min(life.first for life in lives)
    last = steps if store.is_kept else max((life.last for life in lives), default=first)
    buffer = Buffer(store.name, store.size_bytes, first, last + 1, store.align_bytes, store.tensors)
    window = _Window.still(buffer)
    if len(store.tensors) == 1:
        size = rows.row_bytes[store.tensors[0]]
        if not store.is_kept:
            died = np.full(rows.rows[store.tensors[0]], first, dtype=np.int64)
            for life in lives:
                died[life.row] = life.last
            # What lies before a row that still lives is not given up.
            for row, at in enumerate(np.maximum.accumulate(died)):
                window.low[at + 1 - first :] = (row + 1) * size
        if store.writers:
            window.high[:] = 0
            for life in lives:
                window.high[life.first - first :] = np.maximum(window.high[life.first - first :], (life.row + 1) * size)
    return window


def _held(rows: RowGraph, turns: tuple[Turn, ...], unit: int) -> Iterator[Buffer]:
    """Sums of accumulators, and what a run remembers while it waits for the caller's next row."""
    for op, first, last in sum_lives(rows, turns):
        size = rows.ops[op].accumulator_bytes
        name = f"sums of op {rows.graph.ops[op].number}"
        yield Buffer(name, size, first, last + 1, max(SUM_BYTES, unit), scratch_of=op)
    if any(op == PUSH for op, _ in turns):
        state = PushState.of(rows.graph, [op for op, _ in turns])
        align = max(state.at_bytes, unit)
        yield Buffer("state", state.size_bytes, BEFORE_RUN, len(turns) + 1, align, scratch_of=PUSH)
