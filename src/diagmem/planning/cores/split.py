"""How several cores share the work of an op, without a byte more of arena: phases, a pure function of the plan.

With out_end(b) the end of what the units before b have written, and in_first(a) the lowest byte that units from a on
still read, units [a, b) may be done by any cores in any order iff out_end(b) <= in_first(a), both as addresses. The
longest such phase, then the next, gives the fewest. Where not even one unit fits, cores hold what they have made until
all have read; or one core goes on alone. Where no unit writes what another one reads, there is one phase.

A turn makes one row, from rows that lie anywhere: those that share addresses with it, mostly none, are what phases are
made for. Turns of one op differ only in that, so most of them are shared in one way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diagmem.kernels import Library
from diagmem.model.graph import IntArray, Node, Tensor, places
from diagmem.model.schedule import Along, Cut, How, Phase, Phases, Split
from diagmem.ops import OpKind, Order, kind_of, node_macs
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.orders import PIXEL_BY_PIXEL
from diagmem.planning.plan import Plan

BARRIER_INSTRUCTIONS = 100
"""What it costs a core to wait for the others, at the least."""

HELD_BYTES = 256
"""Of its stack, that each of two cores may keep its part of a phase in."""

_FAR = 1 << 48
"""No address."""


def estimated_work(node: Node) -> float:
    """Instructions of an op, roughly: what kernels in plain C need for a product and for an output."""
    return 2.5 * node_macs(node) + 25.0 * sum(tensor.elems for tensor in node.outputs)


def op_path(node: Node, split: Split | None, cores: int) -> float:
    """Instructions from the op's begin to the barrier behind it, roughly."""
    work = estimated_work(node)
    return work + BARRIER_INSTRUCTIONS if split is None else critical_path(split, work, cores)


def critical_path(split: Split, work: float, cores: int) -> float:
    """Instructions of the core that has most to do in each phase, and of all barriers."""
    cut, each = split.cut, work / split.cut.units
    longest = sum(_largest_share(phase, cut, cores) for phase in split.each_phase())
    return longest * each + split.barriers * BARRIER_INSTRUCTIONS


def _largest_share(phase: Phase, cut: Cut, cores: int) -> int:
    """Units of the core that has most of them."""
    if phase.how is How.ALONE:
        return phase.units
    grains = -(-phase.units // cut.grain)
    ends = [min(phase.units, grains * core // cores * cut.grain) for core in range(cores + 1)]
    return max(end - begin for begin, end in pairwise(ends))


def stays(offsets: Mapping[int, int], node: Node) -> bool:
    """Whether an op that runs whole moves nothing. `offsets`: of the tensors in one piece."""
    kind = kind_of(node.op.kind)
    if kind is None or not (kind.is_alias or kind.is_copy) or node.input(0).is_constant:
        return False
    return offsets.get(node.input(0).index) == offsets.get(node.output.index)


@dataclass(frozen=True)
class Extents:
    """For each unit, the byte range [low, high) of the arena that covers all its accesses to a tensor."""

    low: IntArray
    high: IntArray


@dataclass(frozen=True)
class Pair:
    """What each unit reads of an input and writes of the output."""

    reads: Extents
    writes: Extents

    @property
    def is_independent(self) -> bool:
        """Whether no unit writes where another one reads. Writes follow each other upwards."""
        first = np.searchsorted(self.writes.high, self.reads.low, side="right")
        end = np.searchsorted(self.writes.low, self.reads.high, side="left")
        unit = np.arange(len(first))
        return bool(((first >= end) | ((first == unit) & (end == unit + 1)) | (self.reads.low >= _FAR)).all())

    @cached_property
    def out_end(self) -> IntArray:
        """Of the units before each, and before the end."""
        return np.append(-_FAR, np.maximum.accumulate(self.writes.high))

    @cached_property
    def in_first(self) -> IntArray:
        """Of the units from each on, and of none."""
        return np.append(np.minimum.accumulate(self.reads.low[::-1])[::-1], _FAR)


class Near(NamedTuple):
    """A stretch of an input that shares addresses with what is made: elements from `first` on lie at `address`, one
    behind the other; and how it is read."""

    tensor: Tensor
    runs: Runs
    address: int
    first: int = 0


@dataclass(frozen=True)
class SharedOp:
    """The ways to share one op of a plan among cores. `barrier`: what it costs to wait for each other."""

    plan: Plan
    node: Node
    cores: int
    barrier: float = BARRIER_INSTRUCTIONS

    def best(self) -> Split | None:
        """The one with the shortest critical path; None where one core is as fast alone."""
        found = [split for cut in self.cuts if (split := self.split(cut)) is not None]
        best = min(found, key=lambda split: critical_path(split, self.work, self.cores), default=None)
        if best is None or critical_path(best, self.work, self.cores) >= self.work + BARRIER_INSTRUCTIONS:
            return None
        return best

    @property
    def library(self) -> Library:
        return self.plan.options.library

    @property
    def kind(self) -> OpKind:
        kind = kind_of(self.node.op.kind)
        assert kind is not None
        return kind

    @property
    def work(self) -> float:
        """Instructions, roughly."""
        return estimated_work(self.node)

    @property
    def made_elems(self) -> int:
        """Elements of the output that are made, from one of them on."""
        return self.node.output.elems

    @property
    def first_elem(self) -> int:
        return 0

    @property
    def out_address(self) -> int:
        """Of the first of them."""
        return self.plan.offsets[self.node.output.index]

    @property
    def order(self) -> Order | None:
        return self.library.order(self.node)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        if not can_be_shared(self.node) or stays(self.plan.offsets, self.node):
            return ()
        return tuple(cut for cut in self.library.cuts(self.node) if cut.units > cut.grain)

    @cached_property
    def accesses(self) -> Accesses:
        """Element by element: what each element of the output is made of."""
        return self.kind.cut_accesses(self.node)

    @cached_property
    def near(self) -> tuple[Near, ...]:
        """The inputs that share addresses with the output, and how they are read."""
        return tuple(self._near())

    def _near(self) -> Iterator[Near]:
        out, offsets = self.node.output, self.plan.offsets
        for position, tensor in self.node.activations():
            runs = self.accesses.reads[position]
            if tensor.index not in offsets or out.index not in offsets or runs is None:
                continue
            begin, other = offsets[tensor.index], offsets[out.index]
            if begin < other + out.span_bytes and other < begin + tensor.span_bytes:
                yield Near(tensor, runs, begin)

    def split(self, cut: Cut) -> Split | None:
        """The phases in which cores share units of this sort; None where they cannot."""
        whole = (Phases(cut.units, cut.units, How.SHARED),)
        if not self.near:
            return self._in_phases(cut, whole)
        if cut.along is Along.CHANNELS and not cut.can_hold:
            return self._in_phases(cut, whole) if all(map(self._is_congruent, self.near)) else None
        pairs = [self.pair(cut, near) for near in self.near]
        if all(pair.is_independent for pair in pairs):
            return self._in_phases(cut, whole)
        phases = self._phases(cut, pairs)
        return None if phases is None else self._in_phases(cut, phases)

    def _in_phases(self, cut: Cut, phases: tuple[Phases, ...]) -> Split:
        return Split(self.node.op.index, cut, phases)

    def _is_congruent(self, near: Near) -> bool:
        """Whether each output channel is computed from the input channel of the same number, and overlaps only that
        one."""
        out, depth, tensor, runs = self.node.output, self.node.output.shape[-1], near.tensor, near.runs
        is_alike = tensor.shape[-1:] == out.shape[-1:] and tensor.dtype.size_bytes == out.dtype.size_bytes
        is_plain = tensor.view is None and out.view is None
        if not (is_alike and is_plain) or (near.address - self.out_address) % (depth * out.dtype.size_bytes):
            return False
        own = (runs.start - runs.step) % depth == 0
        swept = (runs.pitch == runs.stride) & (runs.hold == 1)
        return bool((own & (swept | ((runs.length == 1) & (runs.hold == 1)))).all())

    def pair(self, cut: Cut, near: Near) -> Pair:
        """What each unit reads of one of the inputs, and writes, as addresses."""
        unit_elems = self.made_elems // cut.units
        first = np.arange(cut.units, dtype=np.int64) * unit_elems
        writes = _bytes(self.node.output, self.out_address, first, first + unit_elems - 1)
        runs = _within_units(near.runs, unit_elems)
        begin, end = runs.step // unit_elems, runs.last_steps // unit_elems
        begin, end = begin - self.first_elem // unit_elems, end - self.first_elem // unit_elems
        far = runs.start + (runs.length - 1) * runs.pitch
        ends = np.minimum(runs.start, far) - near.first, np.maximum(runs.start, far) - near.first
        inside = _bytes(near.tensor, near.address, *ends)
        low, high = np.full(cut.units, _FAR, dtype=np.int64), np.full(cut.units, -_FAR, dtype=np.int64)
        single = np.flatnonzero((begin == end) & (begin >= 0) & (begin < cut.units))
        np.minimum.at(low, begin[single], inside.low[single])
        np.maximum.at(high, begin[single], inside.high[single])
        for run in np.flatnonzero((end > begin) & (end >= 0) & (begin < cut.units)):
            # It is read by several units, at all of them.
            span = slice(max(0, begin[run]), end[run] + 1)
            low[span], high[span] = np.minimum(low[span], inside.low[run]), np.maximum(high[span], inside.high[run])
        return Pair(Extents(low, high), writes)

    def _phases(self, cut: Cut, pairs: list[Pair]) -> tuple[Phases, ...] | None:
        """Phase by phase the way that costs least for each unit; None where some can only be done alone, but not
        without the others."""
        found: list[Phase] = []
        # Channels are cut by whole blocks; a kernel may begin at any pixel.
        border = cut.grain if cut.along is Along.CHANNELS else 1
        is_whole = np.logical_and.reduce([pair.out_end <= pair.in_first for pair in pairs])
        is_whole &= (np.arange(cut.units + 1) % border == 0) | (np.arange(cut.units + 1) == cut.units)
        most = self._most_held(cut)
        may_be_alone = border == 1 and self.order in PIXEL_BY_PIXEL
        first, each = 0, self.work / cut.units
        while first < cut.units:
            shared = min(int(np.searchsorted(pair.out_end, pair.in_first[first], side="right")) - 1 for pair in pairs)
            shared = cut.units if shared >= cut.units else shared // border * border
            ends = np.flatnonzero(is_whole[first + 1 : first + most + 1])
            even = first + (shared - first) // (cut.grain * self.cores) * cut.grain * self.cores
            ways = [Phase(first, end, How.SHARED) for end in (shared, even) if end > first]
            ways += [Phase(first, first + 1 + int(ends[-1]), How.HELD)] if len(ends) else []
            ways += [Phase(first, first + 1, How.ALONE)] if may_be_alone else []
            if not ways:
                return None
            found.append(min(ways, key=lambda way: self._cost(way, cut, each)))
            first = found[-1].end
        return _joined(found)

    def _cost(self, phase: Phase, cut: Cut, each: float) -> float:
        """Instructions for each unit. One core that goes on alone waits for nobody."""
        if phase.how is How.ALONE:
            return each
        return (_largest_share(phase, cut, self.cores) * each + self.barrier) / phase.units

    def _most_held(self, cut: Cut) -> int:
        """Units of a phase that is held: what fits into the stacks of two cores, at least one for each core."""
        if not cut.can_hold or self.node.output.view is not None:
            return 0
        unit_bytes = self.made_elems * self.node.output.dtype.size_bytes // cut.units
        fitting = 2 * HELD_BYTES // unit_bytes
        step = cut.grain * self.cores
        return fitting // step * step if fitting >= step else fitting


def can_be_shared(node: Node) -> bool:
    """Whether it has one output, of which is known what each element is made of, and no state."""
    kind = kind_of(node.op.kind)
    is_simple = kind is not None and len(node.outputs) == 1 and not kind.states(node)
    return is_simple and kind is not None and Order.REFERENCE in kind.orders


def _bytes(tensor: Tensor, address: int, first: IntArray, last: IntArray) -> Extents:
    """Those of elements of a tensor, counted from the one at `address`: its first one, if it is a view."""
    size = tensor.dtype.size_bytes
    if tensor.view is not None:
        at = places(tensor.shape, tensor.strides)
        first, last = at[first], at[last]
    return Extents(address + first * size, address + (last + 1) * size)


def _within_units(runs: Runs, unit_elems: int) -> Runs:
    """Runs that are swept across several units taken apart into their elements."""
    sweeps = (runs.stride > 0) & (runs.step // unit_elems < runs.last_steps // unit_elems)
    if not sweeps.any():
        return runs
    element, first, last = runs.picked(sweeps).touches()
    return Runs.join(runs.picked(~sweeps), Runs.of(element, 1, first, stride=0, hold=last - first + 1))


def _joined(phases: list[Phase]) -> tuple[Phases, ...]:
    """Neighbours of one size as one; what one core does alone needs no barrier between."""
    found: list[Phases] = []
    for phase in phases:
        last = found[-1] if found else None
        begin = (found[-2].end if len(found) > 1 else 0) if last else 0
        if last and last.how is phase.how is How.ALONE:
            found[-1] = Phases(phase.end, phase.end - begin, How.ALONE)
        elif last and last.how is phase.how and phase.units <= last.step and (last.end - begin) % last.step == 0:
            found[-1] = Phases(phase.end, last.step, phase.how)
        else:
            found.append(Phases(phase.end, phase.units, phase.how))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Reads:
    """Runs of which each stays within a row of `tensor`, and within the turns [first, last]."""

    tensor: Tensor
    runs: Runs
    row: IntArray
    first: IntArray
    last: IntArray

    @classmethod
    def of(cls, node: Node, tensor: Tensor, runs: Runs) -> _Reads:
        row_elems, made_elems = tensor.elems // tensor.rows, node.output.elems // node.output.rows
        far = runs.start + (runs.length - 1) * runs.pitch
        last = runs.last_steps
        crosses = (runs.start // row_elems != far // row_elems) | (
            (runs.stride > 0) & (runs.step // made_elems != last // made_elems)
        )
        element, begin, end = runs.picked(crosses).touches()
        single = Runs.of(element, 1, begin, stride=0, hold=end - begin + 1)
        runs = Runs.join(runs.picked(~crosses), single)
        return cls(tensor, runs, runs.start // row_elems, runs.step // made_elems, runs.last_steps // made_elems)

    def pairs(self, turns: int) -> IntArray:
        """turn * rows + row for each row that a turn reads, once."""
        count = np.minimum(self.last, turns - 1) - self.first + 1
        nth = np.arange(int(count.sum()), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
        return np.unique((np.repeat(self.first, count) + nth) * self.tensor.rows + np.repeat(self.row, count))

    def of_row(self, turn: int, row: int) -> Runs:
        return self.runs.picked((self.first <= turn) & (turn <= self.last) & (self.row == row))


@dataclass(frozen=True)
class SharedTurns:
    """The ways to share each turn of one op among cores."""

    plan: Plan
    node: Node
    cores: int
    barrier: float = BARRIER_INSTRUCTIONS

    def splits(self, choose: Callable[[SharedTurn], Split | None] = SharedOp.best) -> tuple[Split, ...]:
        """One for each turn that cores are faster with, turns that are shared alike together. `choose`: the best."""
        found: dict[Split, list[int]] = {}
        if not self._can_be_shared:
            return ()
        apart = SharedTurn(self.plan, self.node, self.cores, self.barrier)
        in_one_phase = choose(apart)
        for turn in range(self.node.output.rows):
            near = tuple(self._near(turn)) if turn in self._near_rows else ()
            chosen = choose(replace(apart, turn=turn, rows=near)) if near else in_one_phase
            if chosen is not None:
                found.setdefault(chosen, []).append(turn)
        return tuple(replace(split, turns=tuple(turns)) for split, turns in found.items())

    @property
    def _can_be_shared(self) -> bool:
        """What sums up rows is not, nor what is part of something else."""
        node, library = self.node, self.plan.options.library
        is_plain = all(tensor.view is None for tensor in (*(t for _, t in node.activations()), *node.outputs))
        return can_be_shared(node) and is_plain and bool(library.row_cuts(node))

    @cached_property
    def _reads(self) -> tuple[_Reads, ...]:
        accesses = SharedOp(self.plan, self.node, self.cores).accesses
        given = ((tensor, accesses.reads[position]) for position, tensor in self.node.activations())
        placed = self.plan.row_offsets
        return tuple(_Reads.of(self.node, t, runs) for t, runs in given if runs is not None and t.index in placed)

    @cached_property
    def _near_rows(self) -> dict[int, list[tuple[int, int]]]:
        """Turn -> which of the reads, and rows, share addresses with the row that it makes."""
        found: dict[int, list[tuple[int, int]]] = {}
        out = self.node.output
        made = np.array(self.plan.row_offsets[out.index], dtype=np.int64)
        for number, reads in enumerate(self._reads):
            tensor = reads.tensor
            pairs = reads.pairs(out.rows)
            turn, row = pairs // tensor.rows, pairs % tensor.rows
            at = np.array(self.plan.row_offsets[tensor.index], dtype=np.int64)[row]
            meets = (at < made[turn] + out.row_bytes) & (made[turn] < at + tensor.row_bytes)
            for t, r in zip(turn[meets].tolist(), row[meets].tolist(), strict=True):
                found.setdefault(t, []).append((number, r))
        return found

    def _near(self, turn: int) -> Iterator[Near]:
        for number, row in self._near_rows[turn]:
            reads = self._reads[number]
            tensor = reads.tensor
            at = self.plan.row_offsets[tensor.index][row]
            yield Near(tensor, reads.of_row(turn, row), at, row * (tensor.elems // tensor.rows))


@dataclass(frozen=True)
class SharedTurn(SharedOp):
    """The ways to share one turn. `rows`: the input rows that share addresses with the row that is made."""

    turn: int = 0
    rows: tuple[Near, ...] = ()

    @property
    def work(self) -> float:
        return super().work / self.node.output.rows

    @property
    def made_elems(self) -> int:
        return self.node.output.elems // self.node.output.rows

    @property
    def first_elem(self) -> int:
        return self.turn * self.made_elems

    @property
    def out_address(self) -> int:
        return self.plan.row_offsets[self.node.output.index][self.turn]

    @property
    def order(self) -> Order | None:
        return self.library.row_order(self.node)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        return tuple(cut for cut in self.library.row_cuts(self.node) if cut.units > cut.grain)

    @cached_property
    def near(self) -> tuple[Near, ...]:
        return self.rows

    def _in_phases(self, cut: Cut, phases: tuple[Phases, ...]) -> Split:
        return Split(self.node.op.index, cut, phases, ())
