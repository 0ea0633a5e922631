"""Cores that share an op: whether every byte is there until it is read, in whatever order they run.

Time is counted in barriers: between two of them anything may happen at any moment. A byte that is written must have
been read by all that read it before the barrier behind which that may happen; but for a unit that reads what it
overwrites itself, and for units that one core does alone, which are in the kernel's own order: that one is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diagmem.kernels import Library
from diagmem.model.graph import Graph, IntArray, Node, Tensor
from diagmem.model.multicore import Along, How, Multicore, Split
from diagmem.model.schedule import Schedule, Step
from diagmem.model.views import places
from diagmem.ops import Order, kind_of
from diagmem.ops.accesses import Runs
from diagmem.ops.orders import PIXEL_BY_PIXEL
from diagmem.validation.findings import Fault, Finding
from diagmem.validation.kernel import TurnedRuns, cut_to_turns
from diagmem.validation.places import Placed

MOST_TOUCHES = 1 << 21
"""That are looked at together."""


def faults_of_multicore(
    graph: Graph, library: Library, schedule: Schedule, placed: Placed, multicore: Multicore
) -> Iterator[Finding]:
    """What is wrong with how cores share steps, one finding for each op or turn of it."""
    step_of = {step: number for number, step in enumerate(schedule.steps)}
    seen: set[Step] = set()
    for split in multicore.splits:
        steps = [Step(split.op, turn) for turn in ((None,) if split.turns is None else split.turns)]
        if not step_of.keys() >= {*steps} or seen & {*steps} or len({*steps}) < len(steps) or split.op < 0:
            yield Finding(Fault.SHARED_UNKNOWN, tensor=f"op {split.op}")
            continue
        seen.update(steps)
        node = graph.nodes[split.op]
        fault = _fault_of_cut(node, library, split)
        if fault is not None:
            yield Finding(fault, step_of[steps[0]] if steps else None, split.op, number=node.op.number)
            continue
        work = _Work.of(node, placed, split)
        for step in steps if work is not None else ():
            assert work is not None
            yield from work.races(step.turn, step_of[step])


def _fault_of_cut(node: Node, library: Library, split: Split) -> Fault | None:
    """What is wrong with the units and phases, whatever lies where."""
    cut, is_row = split.cut, split.turns is not None
    kind = kind_of(node.op.kind)
    is_known = kind is not None and Order.REFERENCE in kind.orders and len(node.outputs) == 1
    # Rows that are parts of others lie where phases are not checked for them.
    is_known &= not (is_row and any(t is not None and t.view is not None for t in (*node.inputs, *node.outputs)))
    known = library.row_cuts(node) if is_row else library.cuts(node)
    if not is_known or cut not in known or _made_elems(node, split) % max(1, cut.units):
        return Fault.SHARED_UNKNOWN
    ends = [0, *(phases.end for phases in split.phases)]
    is_ascending = all(end > begin for begin, end in pairwise(ends))
    if not is_ascending or ends[-1] != cut.units or any(phases.step < 1 for phases in split.phases):
        return Fault.PHASES_AMISS
    if cut.along is Along.CHANNELS and any(phase.first % cut.grain for phase in split.each_phase()):
        return Fault.PHASES_AMISS
    hows = {phases.how for phases in split.phases}
    if How.HELD in hows and not (cut.can_hold and node.output.is_in_one_piece):
        return Fault.HELD_AMISS
    order = library.row_order(node) if is_row else library.order(node)
    if How.ALONE in hows and (len(list(split.each_phase())) > 1 and order not in PIXEL_BY_PIXEL):
        return Fault.ALONE_AMID
    return None


def _made_elems(node: Node, split: Split) -> int:
    """Elements that are made at once: all of the output, or a row of it."""
    return node.output.elems // (1 if split.turns is None else node.output.rows)


@dataclass(frozen=True, eq=False)
class _Times:
    """For each unit: between which barriers it is read for and written, and who does it. Units of one number in `by`
    are done by one core in order."""

    read: IntArray
    written: IntArray
    by: IntArray

    @classmethod
    def of(cls, split: Split) -> _Times:
        units = split.cut.units
        read, written, by = np.zeros(units, dtype=np.int64), np.zeros(units, dtype=np.int64), np.arange(units)
        for barriers, phase in enumerate(split.each_phase()):
            span = slice(phase.first, phase.end)
            read[span], written[span] = barriers, barriers + (phase.how is How.HELD)
            if phase.how is How.ALONE:
                by[span] = units + barriers
        return cls(read, written, by)


@dataclass(frozen=True, eq=False)
class _Work:
    """What cores share of an op: `made` elements at once, each of them at the kernel step of its number. `reads`: for
    each input its touches, by turn where there are turns; `places`: tensor -> where each element lies."""

    node: Node
    split: Split
    times: _Times
    made: int
    reads: Sequence[tuple[Tensor, Runs | TurnedRuns]]
    places: Mapping[int, IntArray]

    @classmethod
    def of(cls, node: Node, placed: Placed, split: Split) -> _Work | None:
        """None where the output's place is not known."""
        kind, made = kind_of(node.op.kind), _made_elems(node, split)
        assert kind is not None
        tensors = {t.index: t for t in (node.output, *(t for _, t in node.activations()))}
        places = {index: at for index, t in tensors.items() if (at := _addresses(t, placed)) is not None}
        if node.output.index not in places:
            return None
        ends = None if split.turns is None else np.arange(1, node.output.rows + 1, dtype=np.int64) * made
        accesses = kind.cut_accesses(node)
        given = ((t, accesses.reads[position]) for position, t in node.activations() if t.index in places)
        reads = [(t, runs if ends is None else cut_to_turns(runs, ends)) for t, runs in given if runs is not None]
        return cls(node, split, _Times.of(split), made, reads, places)

    def races(self, turn: int | None, step: int) -> Iterator[Finding]:
        """The first byte of an input that may be overwritten too early, for each input."""
        out, first = self.node.output, (turn or 0) * self.made
        written = self.places[out.index][first : first + self.made]
        low, high = int(written.min(initial=0)), int(written.max(initial=0)) + out.dtype.size_bytes
        # The unit that writes each byte; below 0: none does.
        writer = np.full(high - low, -1, dtype=np.int64)
        made = _units(self.split, self.made, np.arange(self.made, dtype=np.int64))
        for byte in range(out.dtype.size_bytes):
            writer[written - low + byte] = made
        readers = _Readers(self.split, self.made, first, self.times)
        for tensor, reads in self.reads:
            runs = reads if isinstance(reads, Runs) else reads.of_turn(turn or 0)
            byte_at = _first_race(
                runs, _Source(self.places[tensor.index], tensor.dtype.size_bytes, low), writer, readers
            )
            if byte_at is not None:
                lost = tensor.label, low + byte_at
                yield Finding(Fault.RACE, step, self.split.op, *lost, number=self.node.op.number)


@dataclass(frozen=True, eq=False)
class _Readers:
    """Which units read at a kernel step: those that make the elements of the output of that number. `made` of them are
    made at once, from `first` on."""

    split: Split
    made: int
    first: int
    times: _Times

    def clash(self, first: IntArray, last: IntArray, writer: IntArray) -> IntArray:
        """Which of some touches find a byte that its writer may have written by then."""
        begin, end = (_units(self.split, self.made, np.minimum(at - self.first, self.made - 1)) for at in (first, last))
        times = self.times
        is_channel = self.split.cut.along is Along.CHANNELS
        late = np.maximum(times.read[begin], times.read[end])
        late = np.full_like(late, times.read.max()) if is_channel and (first != last).any() else late
        is_own = (times.by[begin] == times.by[writer]) & (times.by[end] == times.by[writer])
        is_own &= (first == last) | (not is_channel)
        found: IntArray = (late > times.written[writer]) | ((late == times.written[writer]) & ~is_own)
        return found


class _Source(NamedTuple):
    """Where each element of an input lies, of `size_bytes` bytes, and from where addresses are counted."""

    places: IntArray
    size_bytes: int
    low: int


def _first_race(runs: Runs, source: _Source, writer: IntArray, readers: _Readers) -> int | None:
    """The first byte, counted from the output's lowest, that may be gone when it is read."""
    for some in _in_parts(runs):
        element, first, last = some.touches()
        for byte in range(source.size_bytes):
            at = source.places[element] + (byte - source.low)
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
        yield runs.picked(slice(begin, end))
        begin = end


def _units(split: Split, made: int, elements: IntArray) -> IntArray:
    """The units that elements of the output belong to, of so many that are made at once."""
    units = split.cut.units
    return elements % units if split.cut.along is Along.CHANNELS else elements // (made // units)


def _addresses(tensor: Tensor, placed: Placed) -> IntArray | None:
    """Where each element lies; None where that is not known, or not in this arena."""
    rows: IntArray | None = placed.rows.get(tensor.base)
    if rows is None:
        return None
    size = tensor.dtype.size_bytes
    if tensor.view is None:
        row_elems = tensor.elems // len(rows)
        return np.repeat(rows, row_elems) + np.tile(np.arange(row_elems, dtype=np.int64) * size, len(rows))
    return int(rows[0]) + tensor.offset_bytes + places(tensor.shape, tensor.strides) * size
