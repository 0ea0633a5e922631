"""From a graph's footprint and a schedule to the placement problem: what lives when, and how far apart it must start.

A store that only whole steps touch is one buffer, there from the step that first writes it to the last that reads it. A
store that single rows are made in, or read from, and that must lie in one piece is one buffer whose window moves: it
grows as rows are made and shrinks from the front as rows die, so others may use the space before and behind. Any other
tensor is a table of rows, each a buffer of its own, placed anywhere; a row of which parts are made one by one is there
from the first of them to the last use of any.

A new buffer may overlap a dying one as far as the kernel allows. All of this is expressed as separations, so allocators
need not know about rows or kernels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diagmem.kernels.rows import RowGraph, lines_up
from diagmem.model.errors import PlanError
from diagmem.model.graph import IntArray
from diagmem.model.schedule import PUSH, PushState, Schedule, Step
from diagmem.planning.needs.footprint import Footprint, Store, live_hulls, most_covered, most_shared
from diagmem.planning.needs.problem import BEFORE_RUN, Buffer, Problem

RowStep = tuple[int, int]
"""A step in plain numbers: an op and its turn (0 where it runs whole); op PUSH and a row of the streamed input."""

Row = tuple[int, int]
"""A tensor and a row of it."""


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


def row_lives(rows: RowGraph, steps: Sequence[RowStep]) -> dict[Row, list[range]]:
    """For each row that the steps touch, by tensor and row, the steps during which it must exist: once more each time
    that it is recomputed. One that is there before the run starts at step 0."""
    found: dict[Row, list[range]] = defaultdict(list)
    for at, step in enumerate(steps):
        for row in rows_read(rows, step):
            lives = found[row]
            lives[-1:] = [range(lives[-1].start if lives else 0, at + 1)]
        for row in rows_made(rows, step):
            found[row].append(range(at, at + 1))
    return dict(sorted(found.items()))


def sum_lives(rows: RowGraph, steps: Sequence[tuple[int, int | None]]) -> dict[int, range]:
    """For each accumulator the steps during which it holds its sums. One that runs whole (turn None) holds none."""
    found: dict[int, range] = {}
    for at, (op, turn) in enumerate(steps):
        if op != PUSH and turn is not None and rows.ops[op].accumulator_bytes:
            found[op] = range(found[op].start if op in found else at, at + 1)
    return found


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

    def within(self, first: int, end: int) -> tuple[IntArray, IntArray]:
        """Where it begins and ends at each of the steps [first, end)."""
        own = slice(first - self.buffer.first_step, end - self.buffer.first_step)
        return self.low[own], self.high[own]

    @classmethod
    def still(cls, buffer: Buffer) -> LiveWindow:
        steps = buffer.end_step - buffer.first_step
        return cls(buffer, np.zeros(steps, dtype=np.int64), np.full(steps, buffer.size_bytes, dtype=np.int64), True)

    @classmethod
    def of_lives(cls, buffer: Buffer, lives: Sequence[range]) -> LiveWindow:
        """All of it, but nothing between one life and the next."""
        still = cls.still(buffer)
        has_gap = False
        for life, following in pairwise(lives):
            gap = slice(life.stop - buffer.first_step, following.start - buffer.first_step)
            has_gap = has_gap or gap.start < gap.stop
            still.low[gap], still.high[gap] = NEVER, -NEVER
        return cls(buffer, still.low, still.high, not has_gap)

    def live_bytes(self, unit: int) -> IntArray:
        """At each step, in whole units. One at the edge of a window that moves may also hold bytes of another
        buffer."""
        held: IntArray = np.maximum(0, self.high - self.low)
        return (-(-held // unit) if self.is_still else held // unit) * unit


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
    def lives(self) -> Mapping[int, Mapping[int, list[range]]]:
        """Tensor -> the lives of each of its rows."""
        found: dict[int, dict[int, list[range]]] = defaultdict(dict)
        steps = [(step.op, step.turn or 0) for step in self.schedule.steps]
        for (tensor, row), lives in row_lives(self.needs.rows, steps).items():
            found[tensor][row] = lives
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
        lives = [range(at, at + 1) for at in self.steps_of[op]]
        span = lives[0].start, lives[-1].stop
        buffer = Buffer(store.name, store.size_bytes, *span, store.align_bytes, scratch_of=op)
        return LiveWindow.of_lives(buffer, lives)

    def _table(self, store: Store) -> Iterator[LiveWindow]:
        """A buffer for each row; one that is recomputed is always at the same place."""
        base = store.tensors[0]
        size = self.needs.rows.row_bytes[base]
        for row, lives in (self.lives[base] if len(store.tensors) == 1 else self._lives_of_parts(store)).items():
            span, rows = (lives[0].start, lives[-1].stop), range(row, row + 1)
            buffer = Buffer(f"{store.name}[{row}]", size, *span, store.align_bytes, (base,), rows=rows)
            yield LiveWindow.of_lives(buffer, lives)

    def _lives_of_parts(self, store: Store) -> Mapping[int, list[range]]:
        """A row is there from the first of its parts that is made to the last that is read."""
        parts: dict[int, list[range]] = defaultdict(list)
        for tensor in store.tensors:
            for row, lives in self.lives[tensor].items():
                parts[row] += lives
        spans = ((row, min(life.start for life in of), max(life.stop for life in of)) for row, of in parts.items())
        return {row: [range(first, end)] for row, first, end in sorted(spans)}

    def _moving(self, store: Store) -> LiveWindow:
        """A store in one piece. Its window moves only if it holds a single tensor; else it is whole from its start."""
        lives = [(row, life) for t in store.tensors for row, own in self.lives[t].items() for life in own]
        first = BEFORE_RUN if not store.writers else min(life.start for _, life in lives)
        end = self.end + 1 if store.is_kept else max((life.stop for _, life in lives), default=first + 1)
        buffer = Buffer(store.name, store.size_bytes, first, end, store.align_bytes, store.tensors)
        window = LiveWindow.still(buffer)
        if len(store.tensors) > 1:
            return window
        low, high = window.low, window.high
        size, rows = self.needs.rows.row_bytes[store.tensors[0]], self.needs.rows.rows[store.tensors[0]]
        if not store.is_kept:
            died = np.full(rows, first + 1, dtype=np.int64)
            for row, life in lives:
                died[row] = life.stop
            # What lies before a row that still lives is not given up.
            for row, at in enumerate(np.maximum.accumulate(died)):
                low[at - first :] = (row + 1) * size
        if store.writers:
            high[:] = 0
            for row, life in lives:
                high[life.start - first :] = np.maximum(high[life.start - first :], (row + 1) * size)
        return LiveWindow(buffer, low, high, is_still=False)

    def held_by_ops(self) -> Iterator[Buffer]:
        """Sums of accumulators, and what a run remembers while it waits for the caller's next row."""
        unit, graph = self.needs.unit_bytes, self.needs.graph
        steps = [(step.op, step.turn) for step in self.schedule.steps]
        for op, life in sum_lives(self.needs.rows, steps).items() if self.by_turns else ():
            name, size = f"sums of op {graph.ops[op].number}", self.needs.rows.ops[op].accumulator_bytes
            align = max(size // graph.nodes[op].output.elems, unit)
            yield Buffer(name, size, life.start, life.stop, align, scratch_of=op)
        if self.is_streamed:
            state = PushState.of(graph, self.schedule.ops)
            align = max(state.at_bytes, unit)
            yield Buffer("state", state.size_bytes, BEFORE_RUN, self.end + 1, align, scratch_of=PUSH)


def as_run(needs: Footprint, schedule: Schedule) -> Footprint:
    """What is needed where ops that could take rows into sums take none if the schedule runs them whole."""
    graph = needs.graph
    steps = (step for step in schedule.steps if step.turn is None) if schedule.has_turns else ()
    whole = [step.op for step in steps if needs.rows.ops[step.op].accumulator_bytes]
    return needs.with_whole([graph.ops[op].number for op in whole])


Pair = tuple[int, int]
"""Two buffers by index: the one below, the one above."""


def build_problem(needs: Footprint, schedule: Schedule) -> Problem:
    """The buffers and separations of a graph that runs in this order."""
    _check_order(needs, schedule)
    return Built.of(needs, schedule).problem()


class Moment(NamedTuple):
    """What lives at a step, or before or after the run: the bytes of each buffer, in whole units; and for each pair of
    which the first is made of the second, how many bytes the two may share at the most."""

    live: dict[int, int]
    shared: dict[Pair, int]


def moments(needs: Footprint, schedule: Schedule) -> list[Moment]:
    """Before the run, at each step, and after it: by these, what some of the buffers need among themselves."""
    return Built.of(needs, schedule).moments()


class _Met(NamedTuple):
    """A row or tensor computed from one that dies at that step: both buffers, where the two lie in them, their sizes,
    and their separation."""

    out: int
    out_at: int
    out_bytes: int
    source: int
    source_at: int
    in_bytes: int
    apart: int


@dataclass(frozen=True)
class Built:
    """`windows`: one for each buffer. `whole`: store -> buffer, of those in one piece. `home`: (tensor, row) -> its
    buffer, and the offset in it, for the tensors whose rows come and go one by one."""

    needs: Footprint
    steps: tuple[Step, ...]
    windows: tuple[LiveWindow, ...]
    whole: Mapping[int, int]
    home: Mapping[Row, tuple[int, int]]

    @classmethod
    def of(cls, needs: Footprint, schedule: Schedule) -> Built:
        needs = as_run(needs, schedule)
        found = LiveWindows(needs, schedule)
        for index, store in enumerate(needs.stores):
            found.add(index, store)
        found.windows += map(LiveWindow.still, found.held_by_ops())
        return cls(needs, schedule.steps, tuple(found.windows), found.whole, found.home)

    def problem(self) -> Problem:
        buffers = tuple(window.buffer for window in self.windows)
        near = {pair: apart for pair, met in self.meetings.items() for _, apart in met}
        overlaps = {**near, **dict(self._moving_pairs())}
        during, outside = self._pressure()
        return Problem(buffers, overlaps, self.needs.unit_bytes, during, max(outside, *during) if during else outside)

    @cached_property
    def meetings(self) -> Mapping[Pair, list[tuple[int, int]]]:
        """(output below, input above) -> the steps at which something of the one is made of something of the other that
        dies, and the separation that each asks for."""
        found: dict[Pair, list[tuple[int, int]]] = defaultdict(list)
        for at in range(len(self.steps)):
            asked: dict[Pair, int] = {}
            for met in self._met_at(at):
                apart = met.out_at + met.apart - met.source_at
                asked[met.out, met.source] = max(apart, asked.get((met.out, met.source), apart))
            for pair, apart in asked.items():
                found[pair].append((at, max(apart, *self._beside(pair, at))))
        return found

    def _met_at(self, at: int) -> Iterator[_Met]:
        """What dies while something is made of it."""
        step = self.steps[at]
        if step.op == PUSH or not self.needs.options.overlap:
            return
        if step.turn is None:
            yield from self._met_whole(at, step.op)
            return
        op, turn = self.needs.rows.ops[step.op], step.turn
        for made in op.makes_at(turn) or ():
            out = self.home.get((op.makes[0], made))
            for need in op.needs if out is not None else ():
                size = self.needs.rows.row_bytes[need.tensor]
                for row, apart in enumerate(need.apart[turn], need.first[turn]):
                    source = self.home.get((need.tensor, row))
                    if out is not None and source is not None and self._dies(source[0], source[1] + size, at):
                        yield _Met(*out, self.needs.rows.row_bytes[op.makes[0]], *source, size, apart)

    def _met_whole(self, at: int, op: int) -> Iterator[_Met]:
        """Whole tensors that die while others are made of them."""
        for (made, read), apart in self.needs.separations(op).items():
            out, source = (self.windows[self.whole[store]].buffer for store in (made, read))
            # Of what holds state, parts come and go: what else of it lives is looked at beside.
            is_begun = self.needs.stores[made].holds_state or out.first_step == at
            if is_begun and (self.needs.stores[read].holds_state or source.end_step - 1 == at):
                yield _Met(self.whole[made], 0, out.size_bytes, self.whole[read], 0, source.size_bytes, apart)

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
        moving = {n for n, window in enumerate(self.windows) if not window.is_still}
        for index in sorted(moving):
            for other in range(len(self.windows)):
                if other != index and (other not in moving or other > index):
                    for pair in ((index, other), (other, index)):
                        _, apart = self._apart(pair)
                        if len(apart):
                            yield pair, int(apart.max())

    def _apart(self, pair: Pair) -> tuple[int, IntArray]:
        """The first step at which two buffers live, and what each step from there on asks for between their starts."""
        below, above = (self.windows[n] for n in pair)
        first = max(below.buffer.first_step, above.buffer.first_step)
        steps = first, max(first, min(below.buffer.end_step, above.buffer.end_step))
        apart = below.within(*steps)[1] - above.within(*steps)[0]
        for at, asked in self.meetings.get(pair, ()):
            apart[at - first] = asked
        return first, apart

    def asked_at(self, pair: Pair) -> int:
        """The step that asks for most between two buffers that live at once."""
        first, apart = self._apart(pair)
        return first + int(apart.argmax())

    def _pressure(self) -> tuple[tuple[int, ...], int]:
        """Lower bounds for any placement: at each step, and before or after the run. Fixed buffers are counted in whole
        units, moving windows in bytes, less the most that new buffers can share with dying ones."""
        unit, steps = self.needs.unit_bytes, len(self.steps)
        live = np.zeros(steps + 2, dtype=np.int64)
        for window in self.windows:
            live[window.buffer.first_step + 1 : window.buffer.end_step + 1] += window.live_bytes(unit)
        during = live[1:-1].copy()
        for at in range(steps):
            during[at] -= self._shared(at) * unit
        return tuple(during.tolist()), int(max(live[0], live[-1]))

    def moments(self) -> list[Moment]:
        unit = self.needs.unit_bytes
        found = [Moment({}, defaultdict(int)) for _ in range(len(self.steps) + 2)]
        for number, window in enumerate(self.windows):
            for at, size in enumerate(window.live_bytes(unit).tolist(), window.buffer.first_step + 1):
                found[at].live[number] = size
        for at in range(len(self.steps)):
            for met in self._met_at(at):
                most = min(met.in_bytes, met.out_bytes, met.out_bytes - met.apart)
                found[at + 1].shared[met.out, met.source] += max(0, -(-most // unit) * unit)
        return found

    def _shared(self, at: int) -> int:
        """The most units that what is made at a step can share with what dies."""

        def units(size_bytes: int) -> int:
            return -(-size_bytes // self.needs.unit_bytes)

        dying: dict[int, list[_Met]] = defaultdict(list)
        for met in self._met_at(at):
            dying[met.out].append(met)
        made = ((units(met[0].out_bytes), [(units(m.apart), units(m.in_bytes)) for m in met]) for met in dying.values())
        sources = {(m.source, m.source_at): units(m.in_bytes) for met in dying.values() for m in met}
        return most_shared(made, sources.values())


def _check_order(needs: Footprint, schedule: Schedule) -> None:
    """Raises PlanError unless each op runs, and none that runs whole before another one that does and that it depends
    on. A turn may come before ops that it needs nothing of: the first row of a PAD."""
    whole = {step.op: at for at, step in enumerate(schedule.steps) if step.turn is None}
    by_turns = {step.op for step in schedule.steps if step.turn is not None and step.op != PUSH}
    runs_once = len(whole) == sum(step.turn is None for step in schedule.steps) and not whole.keys() & by_turns
    if whole.keys() | by_turns != set(range(len(needs.graph.ops))) or not runs_once:
        raise PlanError(
            f"schedule '{schedule.name}' of {len(schedule.steps)} steps: it must run each of the graph's "
            f"{len(needs.graph.ops)} ops once"
        )
    for op, before in enumerate(needs.after):
        for earlier in before:
            if earlier in whole and op in whole and whole[earlier] > whole[op]:
                raise PlanError(f"schedule '{schedule.name}': op {op} runs before op {earlier}, which it depends on")
