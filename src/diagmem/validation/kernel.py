"""The kernel of one op: what it touches, run whole or one turn at a time.

All is read off the library's `accesses`. Turn y makes row y of the output: it begins after the last kernel step that
writes row y - 1 and ends with the last one that writes row y. What is held over the end of a turn is touched in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diagmem.kernels import Library
from diagmem.model.graph import IntArray, Node, Tensor
from diagmem.model.views import distinct
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import WeightCopies

BoolArray = npt.NDArray[np.bool_]

_END = 1 << 60
"""After every kernel step."""


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
        return 0 if self.kind is None else self.kind.macs(self.node)

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
        first, end = np.full(rows, _END, dtype=np.int64), np.zeros(rows, dtype=np.int64)
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
    begin, end = np.append(0, ends[:-1])[turn], np.append(ends[:-1], _END)[turn]
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
