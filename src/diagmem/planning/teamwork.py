"""How several cores share the work of a plan, without a byte more of arena: phases, a pure function of the plan.

With out_end(b) the end of what the units before b have written, and in_first(a) the lowest byte that units from a on
still read, units [a, b) may be done by any cores in any order iff out_end(b) <= in_first(a), both as addresses. The
longest such phase, then the next, gives the fewest. Where not even one unit fits, cores hold what they have made until
all have read; or one core goes on alone. Where no unit writes what another one reads, there is one phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from diagmem.kernels import Library
from diagmem.model.graph import Graph, IntArray, Node, Tensor
from diagmem.model.teamwork import Along, Cut, How, Phase, Phases, Sharing, Teamwork
from diagmem.model.views import places
from diagmem.ops import OpKind, Order, kind_of
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.orders import PIXEL_BY_PIXEL
from diagmem.planning.plan import Plan

BARRIER_INSTRUCTIONS = 100
"""What it costs a core to wait for the others, at the least."""

HELD_BYTES = 256
"""Of its stack, that each of two cores may keep its part of a phase in."""

_FAR = 1 << 48
"""No address."""


def teamwork(plan: Plan, cores: int) -> Teamwork:
    """How up to so many cores share the work of a plan."""
    found = (SharedOp(plan, plan.graph.nodes[op], cores).best() for op in _ops_run_whole(plan))
    return Teamwork(cores, tuple(sharing for sharing in found if sharing is not None))


def running_ops(plan: Plan) -> list[int]:
    """The ops in the order in which they run, without those that move nothing."""
    return [op for op in _ops_run_whole(plan) if not _stays(plan, plan.graph.nodes[op])]


def most_held_bytes(graph: Graph, shared: Teamwork | None) -> int:
    """The most that all cores hold back together in a phase: two of them half of it each."""
    found = 0
    for sharing in () if shared is None else shared.sharings:
        unit_bytes = graph.nodes[sharing.op].output.size_bytes // sharing.cut.units
        grains = -(-sharing.most_held // sharing.cut.grain)
        found = max(found, 2 * -(-grains // 2) * sharing.cut.grain * unit_bytes)
    return found


def estimated_work(node: Node) -> float:
    """Instructions of an op, roughly: what kernels in plain C need for a product and for an output."""
    kind = kind_of(node.op.kind)
    macs = 0 if kind is None else kind.macs(node)
    outputs = sum(tensor.elems for tensor in node.outputs)
    return 2.5 * macs + 25.0 * outputs


def estimated_speedup(plan: Plan, shared: Teamwork, cores: int) -> float:
    """How much faster so many cores are than one, roughly: by the critical path in instructions."""
    ops = running_ops(plan)
    alone = sum(estimated_work(plan.graph.nodes[op]) for op in ops)
    path = float(BARRIER_INSTRUCTIONS)
    for op, waits in zip(ops, shared.barriers_after(ops), strict=True):
        path += op_path(plan.graph.nodes[op], shared.by_op.get(op), cores)
        path -= 0 if waits else BARRIER_INSTRUCTIONS
    return alone / path if path else 1.0


def op_path(node: Node, sharing: Sharing | None, cores: int) -> float:
    """Instructions from the op's begin to the barrier behind it, roughly."""
    work = estimated_work(node)
    return work + BARRIER_INSTRUCTIONS if sharing is None else critical_path(sharing, work, cores)


def critical_path(sharing: Sharing, work: float, cores: int) -> float:
    """Instructions of the core that has most to do in each phase, and of all barriers."""
    cut, each = sharing.cut, work / sharing.cut.units
    longest = sum(_largest_share(phase, cut, cores) for phase in sharing.each_phase())
    return longest * each + sharing.barriers * BARRIER_INSTRUCTIONS


def _largest_share(phase: Phase, cut: Cut, cores: int) -> int:
    """Units of the core that has most of them."""
    if phase.how is How.ALONE:
        return phase.units
    grains = -(-phase.units // cut.grain)
    ends = [min(phase.units, grains * core // cores * cut.grain) for core in range(cores + 1)]
    return max(end - begin for begin, end in pairwise(ends))


def _ops_run_whole(plan: Plan) -> list[int]:
    return [step.op for step in plan.schedule.steps if step.turn is None]


def _stays(plan: Plan, node: Node) -> bool:
    kind = kind_of(node.op.kind)
    if kind is None or not (kind.is_alias or kind.is_copy) or node.input(0).is_constant:
        return False
    return plan.offsets.get(node.input(0).index) == plan.offsets.get(node.output.index)


@dataclass(frozen=True)
class Extents:
    """For each unit the bytes [low, high) of the arena around all that it touches of a tensor."""

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


@dataclass(frozen=True)
class SharedOp:
    """The ways to share one op of a plan among cores. `barrier`: what it costs to wait for each other."""

    plan: Plan
    node: Node
    cores: int
    barrier: float = BARRIER_INSTRUCTIONS

    def best(self) -> Sharing | None:
        """The one with the shortest critical path; None where one core is as fast alone."""
        work = estimated_work(self.node)
        found = [sharing for cut in self.cuts if (sharing := self.sharing(cut)) is not None]
        best = min(found, key=lambda sharing: critical_path(sharing, work, self.cores), default=None)
        if best is None or critical_path(best, work, self.cores) >= work + BARRIER_INSTRUCTIONS:
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
    def cuts(self) -> tuple[Cut, ...]:
        node = self.node
        kind = kind_of(node.op.kind)
        is_simple = kind is not None and len(node.outputs) == 1 and not kind.states(node)
        if not is_simple or _stays(self.plan, node) or Order.REFERENCE not in self.kind.orders:
            return ()
        return tuple(cut for cut in self.library.cuts(node) if cut.units > cut.grain)

    @cached_property
    def accesses(self) -> Accesses:
        """Element by element: what each element of the output is made of."""
        return self.kind.accesses(self.node, Order.REFERENCE)

    @cached_property
    def overlapping(self) -> tuple[tuple[Tensor, Runs], ...]:
        """The inputs that share addresses with the output, and how they are read."""
        return tuple(self._overlapping())

    def _overlapping(self) -> Iterator[tuple[Tensor, Runs]]:
        out, offsets = self.node.output, self.plan.offsets
        for position, tensor in self.node.activations():
            runs = self.accesses.reads[position]
            if tensor.index not in offsets or out.index not in offsets or runs is None:
                continue
            begin, other = offsets[tensor.index], offsets[out.index]
            if begin < other + out.span_bytes and other < begin + tensor.span_bytes:
                yield tensor, runs

    def sharing(self, cut: Cut) -> Sharing | None:
        """The phases in which cores share units of this sort; None where they cannot."""
        whole = (Phases(cut.units, cut.units, How.SHARED),)
        if not self.overlapping:
            return Sharing(self.node.op.index, cut, whole)
        if cut.along is Along.CHANNELS and not cut.can_hold:
            is_apart = all(self._is_congruent(tensor, runs) for tensor, runs in self.overlapping)
            return Sharing(self.node.op.index, cut, whole) if is_apart else None
        pairs = [self.pair(cut, tensor, runs) for tensor, runs in self.overlapping]
        if all(pair.is_independent for pair in pairs):
            return Sharing(self.node.op.index, cut, whole)
        phases = self._phases(cut, pairs)
        return None if phases is None else Sharing(self.node.op.index, cut, phases)

    def _is_congruent(self, tensor: Tensor, runs: Runs) -> bool:
        """Whether each channel of the output is made of that of the input with its number, and only ever lies on
        it."""
        out, depth = self.node.output, self.node.output.shape[-1]
        is_alike = tensor.shape[-1:] == out.shape[-1:] and tensor.dtype.size_bytes == out.dtype.size_bytes
        is_plain = tensor.view is None and out.view is None
        apart = self.plan.offsets[tensor.index] - self.plan.offsets[out.index]
        if not (is_alike and is_plain) or apart % (depth * out.dtype.size_bytes):
            return False
        own = (runs.start - runs.step) % depth == 0
        swept = (runs.pitch == runs.stride) & (runs.hold == 1)
        return bool((own & (swept | ((runs.length == 1) & (runs.hold == 1)))).all())

    def pair(self, cut: Cut, tensor: Tensor, runs: Runs) -> Pair:
        """What each unit reads of one of the inputs, and writes, as addresses."""
        out = self.node.output
        unit_elems = out.elems // cut.units
        first = np.arange(cut.units, dtype=np.int64) * unit_elems
        writes = self._bytes(out, first, first + unit_elems - 1)
        runs = _within_units(runs, unit_elems)
        far = runs.start + (runs.length - 1) * runs.pitch
        inside = self._bytes(tensor, np.minimum(runs.start, far), np.maximum(runs.start, far))
        low, high = np.full(cut.units, _FAR, dtype=np.int64), np.full(cut.units, -_FAR, dtype=np.int64)
        begin, end = runs.step // unit_elems, _last_steps(runs) // unit_elems
        np.minimum.at(low, begin, inside.low)
        np.maximum.at(high, begin, inside.high)
        for run in np.flatnonzero(end > begin):
            # It is read by several units, at all of them.
            span = slice(begin[run], end[run] + 1)
            low[span], high[span] = np.minimum(low[span], inside.low[run]), np.maximum(high[span], inside.high[run])
        return Pair(Extents(low, high), writes)

    def _bytes(self, tensor: Tensor, first: IntArray, last: IntArray) -> Extents:
        size, start = tensor.dtype.size_bytes, self.plan.offsets[tensor.index]
        if tensor.view is not None:
            at = places(tensor.shape, tensor.strides)
            first, last = at[first], at[last]
        return Extents(start + first * size, start + (last + 1) * size)

    def _phases(self, cut: Cut, pairs: list[Pair]) -> tuple[Phases, ...] | None:
        """Phase by phase the way that costs least for each unit; None where some can only be done alone, but not
        without the others."""
        found: list[Phase] = []
        # Channels are cut by whole blocks; a kernel may begin at any pixel.
        border = cut.grain if cut.along is Along.CHANNELS else 1
        is_whole = np.logical_and.reduce([pair.out_end <= pair.in_first for pair in pairs])
        is_whole &= (np.arange(cut.units + 1) % border == 0) | (np.arange(cut.units + 1) == cut.units)
        most = self._most_held(cut)
        may_be_alone = border == 1 and self.library.order(self.node) in PIXEL_BY_PIXEL
        first, each = 0, estimated_work(self.node) / cut.units
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
        unit_bytes = self.node.output.size_bytes // cut.units
        fitting = 2 * HELD_BYTES // unit_bytes
        step = cut.grain * self.cores
        return fitting // step * step if fitting >= step else fitting


def _last_steps(runs: Runs) -> IntArray:
    last: IntArray = runs.step + (runs.length - 1) * runs.stride + runs.hold - 1
    return last


def _within_units(runs: Runs, unit_elems: int) -> Runs:
    """Runs that are swept across several units taken apart into their elements."""
    sweeps = (runs.stride > 0) & (runs.step // unit_elems < _last_steps(runs) // unit_elems)
    if not sweeps.any():
        return runs
    swept, others = (Runs(*(getattr(runs, name)[which] for name in Runs.__slots__)) for which in (sweeps, ~sweeps))
    element, first, last = swept.touches()
    return Runs.join(others, Runs.of(element, 1, first, stride=0, hold=last - first + 1))


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
