"""Cores that share an op: whether every byte is there until it is read, in whatever order they run.

Time is counted in barriers: between two of them anything may happen at any moment. A byte that is written must have
been read by all that read it before the barrier behind which that may happen; but for a unit that reads what it
overwrites itself, and for units that one core does alone, which are in the kernel's own order: that one is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from diagmem.kernels import Library
from diagmem.model.graph import Graph, IntArray, Node, Tensor
from diagmem.model.schedule import Schedule
from diagmem.model.teamwork import Along, How, Sharing, Teamwork
from diagmem.model.views import places
from diagmem.ops import Order, kind_of
from diagmem.ops.accesses import Runs
from diagmem.ops.orders import PIXEL_BY_PIXEL
from diagmem.validation.findings import Fault, Finding
from diagmem.validation.places import Placed

MOST_TOUCHES = 1 << 21
"""That are looked at together."""


def faults_of_teamwork(
    graph: Graph, library: Library, schedule: Schedule, placed: Placed, teamwork: Teamwork
) -> Iterator[Finding]:
    """What is wrong with how cores share ops, one finding for each op."""
    step_of = {step.op: number for number, step in enumerate(schedule.steps) if step.turn is None}
    seen: set[int] = set()
    for sharing in teamwork.sharings:
        if sharing.op not in step_of or sharing.op in seen:
            yield Finding(Fault.SHARED_UNKNOWN, tensor=f"op {sharing.op}")
            continue
        seen.add(sharing.op)
        node, step = graph.nodes[sharing.op], step_of[sharing.op]
        fault = _fault_of_cut(node, library, sharing)
        if fault is not None:
            yield Finding(fault, step, sharing.op, number=node.op.number)
        else:
            yield from _races(node, placed, sharing, step)


def _fault_of_cut(node: Node, library: Library, sharing: Sharing) -> Fault | None:
    """What is wrong with the units and phases, whatever lies where."""
    cut = sharing.cut
    kind = kind_of(node.op.kind)
    is_known = kind is not None and Order.REFERENCE in kind.orders and len(node.outputs) == 1
    if not is_known or cut not in library.cuts(node) or node.output.elems % max(1, cut.units):
        return Fault.SHARED_UNKNOWN
    ends = [0, *(phases.end for phases in sharing.phases)]
    is_ascending = all(end > begin for begin, end in pairwise(ends))
    if not is_ascending or ends[-1] != cut.units or any(phases.step < 1 for phases in sharing.phases):
        return Fault.PHASES_AMISS
    if cut.along is Along.CHANNELS and any(phase.first % cut.grain for phase in sharing.each_phase()):
        return Fault.PHASES_AMISS
    hows = {phases.how for phases in sharing.phases}
    if How.HELD in hows and not (cut.can_hold and node.output.is_in_one_piece):
        return Fault.HELD_AMISS
    if How.ALONE in hows and (len(list(sharing.each_phase())) > 1 and library.order(node) not in PIXEL_BY_PIXEL):
        return Fault.ALONE_AMID
    return None


@dataclass(frozen=True, eq=False)
class _Times:
    """For each unit: between which barriers it is read for and written, and who does it. Units of one number in `by`
    are done by one core in order."""

    read: IntArray
    written: IntArray
    by: IntArray

    @classmethod
    def of(cls, sharing: Sharing) -> _Times:
        units = sharing.cut.units
        read, written, by = np.zeros(units, dtype=np.int64), np.zeros(units, dtype=np.int64), np.arange(units)
        for barriers, phase in enumerate(sharing.each_phase()):
            span = slice(phase.first, phase.end)
            read[span], written[span] = barriers, barriers + (phase.how is How.HELD)
            if phase.how is How.ALONE:
                by[span] = units + barriers
        return cls(read, written, by)


def _races(node: Node, placed: Placed, sharing: Sharing, step: int) -> Iterator[Finding]:
    """The first byte of an input that may be overwritten too early, for each input."""
    kind, out = kind_of(node.op.kind), node.output
    assert kind is not None
    accesses, times = kind.accesses(node, Order.REFERENCE), _Times.of(sharing)
    written = _addresses(out, placed)
    if written is None:
        return
    low, high = int(written.min(initial=0)), int(written.max(initial=0)) + out.dtype.size_bytes
    # The unit that writes each byte; below 0: none does.
    writer = np.full(high - low, -1, dtype=np.int64)
    made = _units(sharing, out, np.arange(out.elems, dtype=np.int64))
    for byte in range(out.dtype.size_bytes):
        writer[written - low + byte] = made
    for position, tensor in node.activations():
        runs, read = accesses.reads[position], _addresses(tensor, placed)
        if runs is None or read is None:
            continue
        byte_at = _first_race(tensor, runs, read - low, writer, _Readers(sharing, out, times))
        if byte_at is not None:
            lost = low + byte_at
            yield Finding(Fault.RACE, step, sharing.op, tensor.label, lost, number=node.op.number)


@dataclass(frozen=True, eq=False)
class _Readers:
    """Which units read at a kernel step: those that make the elements of the output from `first` to `last`."""

    sharing: Sharing
    out: Tensor
    times: _Times

    def clash(self, first: IntArray, last: IntArray, writer: IntArray) -> IntArray:
        """Which of some touches find a byte that its writer may have written by then."""
        begin, end = (_units(self.sharing, self.out, np.minimum(at, self.out.elems - 1)) for at in (first, last))
        times = self.times
        is_channel = self.sharing.cut.along is Along.CHANNELS
        late = np.maximum(times.read[begin], times.read[end])
        late = np.full_like(late, times.read.max()) if is_channel and (first != last).any() else late
        is_own = (times.by[begin] == times.by[writer]) & (times.by[end] == times.by[writer])
        is_own &= (first == last) | (not is_channel)
        found: IntArray = (late > times.written[writer]) | ((late == times.written[writer]) & ~is_own)
        return found


def _first_race(tensor: Tensor, runs: Runs, read: IntArray, writer: IntArray, readers: _Readers) -> int | None:
    """The first byte, counted from the output's lowest, that may be gone when it is read."""
    for some in _in_parts(runs):
        element, first, last = some.touches()
        for byte in range(tensor.dtype.size_bytes):
            at = read[element] + byte
            inside = np.flatnonzero((at >= 0) & (at < len(writer)))
            inside = inside[writer[at[inside]] >= 0]
            lost = readers.clash(first[inside], last[inside], writer[at[inside]])
            if lost.any():
                return int(at[inside][np.flatnonzero(lost)].min())
    return None


def _in_parts(runs: Runs) -> Iterator[Runs]:
    """Runs of a bounded number of touches each, but for a single one that has more."""
    touched = np.cumsum(runs.length)
    begin = 0
    while begin < len(touched):
        before = int(touched[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(touched, before + MOST_TOUCHES)))
        yield Runs(*(getattr(runs, name)[begin:end] for name in Runs.__slots__))
        begin = end


def _units(sharing: Sharing, out: Tensor, elements: IntArray) -> IntArray:
    """The units that elements of the output belong to."""
    units = sharing.cut.units
    return elements % units if sharing.cut.along is Along.CHANNELS else elements // (out.elems // units)


def _addresses(tensor: Tensor, placed: Placed) -> IntArray | None:
    """Where each element lies; None where that is not known, or not in this arena."""
    rows: Sequence[int] | IntArray | None = placed.rows.get(tensor.base)
    if rows is None:
        return None
    start = int(rows[0]) + tensor.offset_bytes
    return start + places(tensor.shape, tensor.strides) * tensor.dtype.size_bytes
