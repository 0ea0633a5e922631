"""The kernel of one op: what it touches, run whole or one turn at a time; and the bytes of the arena, and when they are
touched, which the validator compares pair by pair.

All is read off the library's `accesses`. Turn y makes row y of the output: it begins after the last kernel step that
writes row y - 1 and ends with the last one that writes row y. What is held over the end of a turn is touched in both.

Bytes are compared in runs: elements fall into pieces of neighbours, and a kernel's steps change evenly over cells of
elements, so that millions of bytes are compared in few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diagmem.kernels import Library
from diagmem.model.graph import IntArray, Node, Tensor, distinct, pieces
from diagmem.ops import kind_of, node_macs
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import WeightCopies

BoolArray = npt.NDArray[np.bool_]

FAR = 1 << 60
"""After every kernel step: that of what is never written (+) or never read (-)."""

AT_ONCE = 1 << 21
"""Bytes that are compared at once, and touches that are written out at once: each may need a hundred bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class TurnedRuns:
    """Runs by turn: turn y touches runs [bounds[y], bounds[y + 1])."""

    runs: Runs
    turns: IntArray
    bounds: IntArray

    def of_turn(self, turn: int) -> Runs:
        return self.runs.picked(slice(self.bounds[turn], self.bounds[turn + 1]))


class Kernel:
    """`accesses`: None where its order is not known; runtimes copy reshapes in an order of their own.

    `sums_bytes`: what it keeps from turn to turn, if it takes its input a row at a turn and writes its output at the
    last one; 0 if it does not. What happens within such a turn is taken as unknown.
    """

    def __init__(self, node: Node, library: Library, cores: int = 1) -> None:
        kind = kind_of(node.op.kind)
        self.node, self.kind = node, kind
        self._library, self._cores = library, cores
        self._cuts: dict[tuple[bool, int], TurnedRuns] = {}

    @cached_property
    def accesses(self) -> Accesses | None:
        return None if self.kind is None or self.kind.is_alias else self._library.accesses(self.node)

    @cached_property
    def _by_turns(self) -> Accesses | None:
        """The same of a run by turns."""
        if self.accesses is None or self._library.row_order(self.node) == self._library.order(self.node):
            return self.accesses
        return self._library.row_accesses(self.node)

    @cached_property
    def scratch_bytes(self) -> int:
        return self._library.scratch_bytes(self.node, self._cores)

    def weights(self, by_turns: bool) -> WeightCopies | None:
        """What is copied of its constants where they are copied to RAM."""
        return self._library.weight_copies(self.node, by_turns)

    @property
    def scratch_align_bytes(self) -> int:
        return self._library.scratch_align_bytes

    @cached_property
    def macs(self) -> int:
        return node_macs(self.node)

    @cached_property
    def sums_bytes(self) -> int:
        if self.kind is None or self.accesses is None or len(self.node.outputs) != 1:
            return 0
        return self.kind.accumulator_bytes(self.node) or 0

    @cached_property
    def turns(self) -> int:
        """How many turns it has; 0 if it can only be run whole."""
        if self.sums_bytes:
            return self.node.input(0).rows
        if self.kind is None or self.accesses is None or len(self.node.outputs) != 1:
            return 0
        has_rows = self.kind.has_row_kernel(self.node) and self._ends is not None
        return self.node.output.rows if has_rows else 0

    @cached_property
    def _ends(self) -> IntArray | None:
        """For each output row one past the last kernel step that writes it; None unless rows are written one after
        another, none together with another."""
        output = self.node.output
        if self._by_turns is None or not output.elems:
            return None
        rows, row_elems = output.rows, output.elems // output.rows
        first, end = np.full(rows, FAR, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        for runs in within_rows(self._by_turns.writes[0], row_elems):
            row = runs.start // row_elems
            np.minimum.at(first, row, runs.step)
            np.maximum.at(end, row, runs.last_steps + 1)
        is_apart = (first < end).all() and (end[:-1] <= first[1:]).all()
        return end if is_apart else None

    def reads(self, tensor: int, turn: int | None) -> list[Runs] | None:
        """The touches of an input, at all positions where it stands; None where their order is not known."""
        accesses = self.accesses if turn is None else self._by_turns
        if accesses is None or (turn is not None and self.sums_bytes):
            return None
        found = []
        for position, other in self.node.activations():
            if other.index == tensor:
                runs = accesses.reads[position]
                if runs is None:
                    return None
                found.append(runs if turn is None else self._cut(False, position, runs).of_turn(turn))
        return found

    def writes(self, output: int, turn: int | None) -> Runs | None:
        """The touches of an output; None where their order is not known."""
        accesses = self.accesses if turn is None else self._by_turns
        if accesses is None or (turn is not None and self.sums_bytes):
            return None
        runs = accesses.writes[output]
        return runs if turn is None else self._cut(True, output, runs).of_turn(turn)

    def rows_read(self, tensor: Tensor, row_elems: int) -> tuple[IntArray, IntArray] | None:
        """Pairs of a turn and a row of so many elements that it reads, by turn; None where that is not known."""
        if self._by_turns is None:
            return None
        rows = max(1, tensor.elems // max(1, row_elems))
        found = []
        for position, other in self.node.activations():
            if other.index == tensor.index:
                runs = self._by_turns.reads[position]
                if runs is None:
                    return None
                cut = self._cut(False, position, runs)
                found.append(_touched_rows(cut, row_elems, rows))
        pairs = distinct(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
        return pairs // rows, pairs % rows

    def _cut(self, is_write: bool, number: int, runs: Runs) -> TurnedRuns:
        if (is_write, number) not in self._cuts:
            assert self._ends is not None
            self._cuts[is_write, number] = cut_to_turns(runs, self._ends)
        return self._cuts[is_write, number]


def within_rows(runs: Runs, row_elems: int) -> list[Runs]:
    """The runs that stay within a row, and the elements of the others one by one."""
    far = runs.start + (runs.length - 1) * runs.pitch
    stays = runs.start // row_elems == far // row_elems
    element, first, last = runs.picked(~stays).touches()
    return [runs.picked(stays), Runs.of(element, 1, first, hold=last - first + 1)]


def _touched_rows(cut: TurnedRuns, row_elems: int, rows: int) -> IntArray:
    """turn * rows + row for each row that a turn touches, some of them several times."""
    runs = cut.runs
    far = runs.start + (runs.length - 1) * runs.pitch
    first, last = np.minimum(runs.start, far) // row_elems, np.maximum(runs.start, far) // row_elems
    # Elements further apart than a row is long may leave rows out.
    leaps = (np.abs(runs.pitch) > row_elems) & (last > first + 1)
    count = np.where(leaps, 0, last - first + 1)
    nth = np.arange(int(count.sum()), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    swept = np.repeat(cut.turns * rows + first, count) + nth
    leaping = runs.picked(leaps)
    element, _, _ = leaping.touches()
    return np.concatenate([swept, np.repeat(cut.turns[leaps] * rows, leaping.length) + element // row_elems])


def cut_to_turns(runs: Runs, ends: IntArray) -> TurnedRuns:
    """Runs cut where turns end. What comes after the last write belongs to the last turn."""
    turns = len(ends)
    first_turn = np.minimum(np.searchsorted(ends, runs.step, side="right"), turns - 1)
    last_turn = np.minimum(np.searchsorted(ends, runs.last_steps, side="right"), turns - 1)
    count = last_turn - first_turn + 1
    nth = np.arange(int(count.sum()), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    turn = np.repeat(first_turn, count) + nth
    many = runs.picked(np.repeat(np.arange(len(count)), count))
    begin, end = np.append(0, ends[:-1])[turn], np.append(ends[:-1], FAR)[turn]
    is_at_once = many.stride == 0
    stride = np.maximum(1, many.stride)
    low: IntArray = np.where(is_at_once, 0, np.clip(-((many.step + many.hold - 1 - begin) // stride), 0, many.length))
    high = np.where(is_at_once, many.length, np.clip(-((many.step - end) // stride), 0, many.length))
    step = many.step + low * many.stride
    # All of a run that is touched at once is held for as long; of a swept one only single elements cross the border.
    hold = np.where(is_at_once, np.minimum(step + many.hold, end) - np.maximum(step, begin), many.hold)
    step = np.where(is_at_once, np.maximum(step, begin), step).astype(np.int64)
    cut = Runs(many.start + low * many.pitch, high - low, many.pitch, step, many.stride, hold)
    crosses = ~is_at_once & (many.hold > 1) & ((cut.step < begin) | (cut.last_steps >= end))
    cut, turn = _without_crossings(cut, turn, begin, end, crosses)
    order = np.argsort(turn, kind="stable")
    return TurnedRuns(cut.picked(order), turn[order], np.searchsorted(turn[order], np.arange(turns + 1)))


def _without_crossings(
    cut: Runs, turn: IntArray, begin: IntArray, end: IntArray, crosses: BoolArray
) -> tuple[Runs, IntArray]:
    """Empty runs dropped, and those that cross the border of a turn taken apart, so that each element is clipped."""
    kept = ~crosses & (cut.length > 0)
    crosses &= cut.length > 0
    apart, whole = cut.picked(crosses), cut.picked(kept)
    if not len(apart.start):
        return whole, turn[kept]
    element, first, last = apart.touches()
    low = np.maximum(first, np.repeat(begin[crosses], apart.length))
    high = np.minimum(last + 1, np.repeat(end[crosses], apart.length))
    single = Runs.of(element, 1, low, stride=0, hold=high - low)
    return Runs.join(whole, single), np.concatenate([turn[kept], np.repeat(turn[crosses], apart.length)])


@dataclass(frozen=True, eq=False)
class Layout:
    """Where a tensor's bytes lie: elements [j * piece_elems, (j + 1) * piece_elems) from the address `at[j]` on."""

    at: IntArray
    piece_elems: int
    elem_bytes: int

    @classmethod
    def block(cls, start: int, elems: int, elem_bytes: int) -> Layout:
        """Elements in one piece."""
        return cls(np.array([start] if elems else [], dtype=np.int64), elems, elem_bytes)

    @classmethod
    def of(cls, tensor: Tensor, address: int) -> Layout:
        """A tensor whose first element is at `address`."""
        size = tensor.dtype.size_bytes
        if tensor.is_in_one_piece:
            return cls.block(address, tensor.elems, size)
        found = pieces(tensor.shape, tensor.strides)
        return cls(address + found.starts * size, found.length, size)

    @cached_property
    def order(self) -> IntArray:
        """The pieces by ascending address."""
        return np.argsort(self.at)

    @cached_property
    def starts(self) -> IntArray:
        """Ascending."""
        return self.at[self.order]

    @property
    def piece_bytes(self) -> int:
        return self.piece_elems * self.elem_bytes

    @property
    def elems(self) -> int:
        return len(self.at) * self.piece_elems

    @cached_property
    def low(self) -> int:
        return int(self.at.min()) if self.elems else 0

    @cached_property
    def high(self) -> int:
        return int(self.at.max()) + self.piece_bytes if self.elems else 0

    def find(self, addresses: IntArray) -> tuple[IntArray, BoolArray]:
        """The element at each address, and whether there is one."""
        if len(self.at) == 1:
            elements = (addresses - self.at[0]) // self.elem_bytes
            is_inside = (elements >= 0) & (elements < self.elems)
            return np.where(is_inside, elements, 0), is_inside
        piece = np.maximum(np.searchsorted(self.starts, addresses, side="right") - 1, 0)
        within = (addresses - self.starts[piece]) // self.elem_bytes
        is_inside = (within >= 0) & (within < self.piece_elems)
        return np.where(is_inside, self.order[piece] * self.piece_elems + within, 0), is_inside

    def edges(self, cell: int, low: int, high: int) -> IntArray:
        """The addresses in [low, high) where a piece starts or ends, or a cell of so many elements begins."""
        if len(self.at) == 1:
            start, pitch = int(self.at[0]), cell * self.elem_bytes
            first = start + max(0, -(-(low - start) // pitch)) * pitch
            return np.append(np.arange(first, min(high, self.high), pitch, dtype=np.int64), self.high)
        begins = np.arange(0, self.elems, cell, dtype=np.int64)
        cells = self.at[begins // self.piece_elems] + begins % self.piece_elems * self.elem_bytes
        return np.concatenate([self.at, self.at + self.piece_bytes, cells])


@dataclass(frozen=True, slots=True, eq=False)
class Touches:
    """For each element e of a tensor the kernel step of a touch: base[e // cell] + slope * (e % cell)."""

    cell: int
    slope: int
    base: IntArray

    @classmethod
    def whole(cls, elems: int, step: int) -> Touches:
        """All elements at one step."""
        return cls(max(1, elems), 0, np.array([step], dtype=np.int64))

    @classmethod
    def of(cls, runs: Sequence[Runs], elems: int, latest: bool) -> Touches:
        """The last touch of each element, or the first."""
        parts = [_runs_to_touches(r, elems, latest) for r in runs]
        if len(parts) == 1:
            return parts[0]
        pick = np.maximum if latest else np.minimum
        every = np.arange(elems, dtype=np.int64)
        return cls(1, 0, pick.reduce([part.at(every) for part in parts]))

    def at(self, elems: IntArray) -> IntArray:
        return self.base[elems // self.cell] + self.slope * (elems % self.cell)

    def picked(self, groups: IntArray, group_elems: int) -> Touches:
        """Those of some elements only: of group j, elements [j * group_elems, (j + 1) * group_elems)."""
        cell = math.gcd(self.cell, group_elems)
        cells = groups[:, None] * (group_elems // cell) + np.arange(group_elems // cell, dtype=np.int64)
        return Touches(cell, self.slope, self.at(cells.reshape(-1) * cell))


def _runs_to_touches(runs: Runs, elems: int, latest: bool) -> Touches:
    pick: np.ufunc = np.maximum if latest else np.minimum
    never = -FAR if latest else FAR
    if not len(runs.start):
        return Touches.whole(elems, never)
    if (runs.pitch == 1).all() and (runs.stride == runs.stride[0]).all():
        # Runs that move alike are compared cell by cell: for a convolution a cell is a pixel.
        cell = math.gcd(elems, int(np.gcd.reduce(runs.start)), int(np.gcd.reduce(runs.length)))
        slope = int(runs.stride[0])
        if cell > 1:
            runs = replace(runs, start=runs.start // cell, length=runs.length // cell, stride=runs.stride * cell)
    else:
        cell, slope = 1, 0
    base = np.full(elems // cell, never, dtype=np.int64)
    for part in runs.parts(AT_ONCE):
        index, first, last = part.touches()
        pick.at(base, index, last if latest else first)
    return Touches(cell, slope, base)


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """Bytes, and the kernel step that touches each."""

    layout: Layout
    touches: Touches

    def at(self, addresses: IntArray) -> tuple[IntArray, BoolArray]:
        """The step at each address, and whether it is one of these bytes."""
        elements, is_inside = self.layout.find(addresses)
        return self.touches.at(elements), is_inside


def clash(value: Layout, read: Touched, written: Touched, in_step: bool) -> int | None:
    """An address of `value` that is read after it was written, None if there is none.

    `in_step`: both happen within one step, so that kernel steps decide (a step reads before it writes); else any byte
    that both touch is lost. Addresses fall into stretches on which both steps change evenly. There, among addresses
    that are equal modulo both element sizes, the difference of the two is largest at an end.
    """
    layouts = ((value, value.elems or 1), *((t.layout, t.touches.cell) for t in (read, written)))
    phase = np.arange(math.lcm(read.layout.elem_bytes, written.layout.elem_bytes), dtype=np.int64)[:, None]
    low, high = max(layout.low for layout, _ in layouts), min(layout.high for layout, _ in layouts)
    for begin in range(low, high, AT_ONCE):
        starts, ends = stretches(*layouts, span=(begin, min(begin + AT_ONCE, high)))
        at = np.concatenate([np.minimum(starts + phase, ends - 1), np.maximum(ends - 1 - phase, starts)]).reshape(-1)
        read_step, is_read = read.at(at)
        write_step, is_written = written.at(at)
        late = read_step > write_step if in_step else (read_step > -FAR // 2) & (write_step < FAR // 2)
        lost = at[late & is_read & is_written & value.find(at)[1]]
        if len(lost):
            return int(lost.min())
    return None


def stretches(*layouts: tuple[Layout, int], span: tuple[int, int] = (-FAR, FAR)) -> tuple[IntArray, IntArray]:
    """Starts and ends of the stretches into which layouts, each with the size of its cells, cut the addresses of a span
    that they may have in common."""
    low, high = max(span[0], *(layout.low for layout, _ in layouts)), min(span[1], *(a.high for a, _ in layouts))
    if low >= high or not all(layout.elems for layout, _ in layouts):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    edges = distinct(np.concatenate([layout.edges(cell, low, high) for layout, cell in layouts]))
    starts = np.append(np.int64(low), edges[(edges > low) & (edges < high)])
    return starts, np.append(starts[1:], high)


def shared_bytes(a: Layout, b: Layout) -> int:
    """How many addresses are in both."""
    if len(a.at) == len(b.at) == 1:
        return max(0, min(a.high, b.high) - max(a.low, b.low))
    starts, ends = stretches((a, a.elems or 1), (b, b.elems or 1))
    if not len(starts):
        return 0
    return int((ends - starts)[a.find(starts)[1] & b.find(starts)[1]].sum())
