"""Replays a plan on shadow memory: each read must find the bytes that its tensor last wrote.

It takes the graph, the order, the addresses, and what each kernel touches at which of its own steps; what must be where
when follows from those. It knows nothing of how the plan was made. Running an op whole, and running it a row at a time,
are one thing to it; what has state is run twice. It is exact: a finding is a byte that is lost, and a plan without
findings loses none. The only plans judged more strictly are those in which these share a byte: two results of one step;
what is held between turns, or used as scratch, and anything that lives meanwhile; an op of unknown order, a reshape
that is a copy, or an op that sums up rows, and what it reads. Also, what is beyond tensors, and each variable, must be
touched in the model's order, and a plan whose order or places make no sense is not looked at for lost bytes.

Only values that share addresses and time can harm each other, so bytes are looked at pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from diagmem.kernels import Library
from diagmem.model.graph import Graph, Tensor
from diagmem.model.schedule import Schedule
from diagmem.ops.accesses import Runs
from diagmem.validation.findings import Fault, Finding, Rules
from diagmem.validation.kernel import Kernel
from diagmem.validation.order import faults_of_order, faults_of_views
from diagmem.validation.places import Checker, held_bytes, staged_bytes, with_caller
from diagmem.validation.shadow import FAR, Layout, Touched, Touches, clash, shared_bytes
from diagmem.validation.values import Read, ReplayedRun, Value

NO_MORE = Rules()
"""Nothing is aligned, kept, elsewhere or made again beyond what must be."""

MOST_FINDINGS = 100
"""More tell nobody anything new."""

_TO_THE_END = FAR // 4
"""Kernel step of what is read when all is written."""

_AT_ONCE = -1
"""Kernel step of what is written before anything is read."""


def replay(
    graph: Graph,
    library: Library,
    schedule: Schedule,
    places: Mapping[int, Sequence[int]],
    scratch: Mapping[int, int],
    arena_bytes: int,
    rules: Rules = NO_MORE,
) -> list[Finding]:
    """All that is wrong with a plan, up to MOST_FINDINGS; nothing, if it is safe.

    `places`: tensor -> the address of each of its rows. A view need not be there; one that is, with one address for its
    first element or one for each row, must lie where its base has it. `scratch`: op -> address of its kernel's scratch,
    or of the sums that it keeps between its turns; PUSH -> that of the state of a run that waits for the caller's next
    row.
    """
    return list(islice(_findings(graph, library, schedule, places, scratch, arena_bytes, rules), MOST_FINDINGS))


def _findings(
    graph: Graph,
    library: Library,
    schedule: Schedule,
    places: Mapping[int, Sequence[int]],
    scratch: Mapping[int, int],
    arena_bytes: int,
    rules: Rules,
) -> Iterator[Finding]:
    kernels = [Kernel(node, library, rules.cores) for node in graph.nodes]
    found = [*faults_of_views(graph, library, kernels), *faults_of_order(graph, kernels, schedule, rules.recompute)]
    yield from found
    variables = {t.index for t in graph.tensors if t.is_variable}
    outside = with_caller(graph) if rules.external_io else set()
    kept = {*graph.outputs, *(graph.inputs if rules.keep_inputs else ())}
    kept |= variables & places.keys() if library.keeps_variables else variables
    outside |= variables if library.keeps_variables else set()
    used = {t for op in graph.ops for t in (*op.inputs, *op.outputs) if t >= 0} | {
        *graph.inputs,
        *kept,
        *graph.families,
    }

    checker = Checker(graph, arena_bytes, rules)
    held = held_bytes(kernels, graph, schedule)
    placed = checker.check(places, scratch, held, used, outside)
    staged = staged_bytes(kernels, schedule, rules)
    checker.check_staged(staged)
    checker.check_pieces(schedule)
    yield from placed.findings
    if not found:
        run = ReplayedRun(graph, kernels, schedule, placed, held, staged)
        found = [*run.faults_of_parts()]
        found += run.walk(used, kept) if not found else []
        yield from found
        if not found:
            yield from Losses(run).find()
            if rules.multicore is not None:
                from diagmem.validation.phases import faults_of_multicore

                yield from faults_of_multicore(graph, library, schedule, placed, rules.multicore)


class Losses:
    """The values of a run that destroy each other."""

    def __init__(self, run: ReplayedRun) -> None:
        self.run, self.memory, self.tensors = run, run.memory, run.graph.tensors

    def find(self) -> Iterator[Finding]:
        """Each pair of values of which one destroys a byte of the other that is still to be read."""
        values = sorted(self.run.values, key=lambda value: value.made)
        low, high, made = (
            np.array([getattr(v, name) for v in values], dtype=np.int64) for name in ("low", "high", "made")
        )
        last = np.array([v.reads[-1].step if v.reads else v.made - 1 for v in values], dtype=np.int64)
        begin, end = np.searchsorted(made, made), np.searchsorted(made, last, side="right")
        for number, value in enumerate(values):
            if value.reads:
                span = slice(begin[number], end[number])
                meets = (low[span] < value.high) & (high[span] > value.low)
                for other in np.flatnonzero(meets) + begin[number]:
                    finding = self._loss(value, values[other]) if other != number else None
                    if finding is not None:
                        yield finding

    def _loss(self, value: Value, writer: Value) -> Finding | None:
        """The first read of `value` that finds a byte of `writer`."""
        own, other = self._layout(value), self._layout(writer)
        if not shared_bytes(own, other):
            return None
        written = self._written(writer, other)
        for read in value.reads:
            if read.step < writer.made:
                continue
            in_step = read.step == writer.made != value.made
            byte = clash(own, self._read(value, read), written, in_step)
            if byte is not None:
                run, step = self.run.when(read.step)
                return Finding(
                    Fault.RESULT_LOST if read.op is None else Fault.OVERWRITTEN,
                    *(step, read.op, value.label, byte, writer.label, self.run.when(writer.made)[1]),
                    row=value.row,
                    writer_row=writer.row,
                    number=None if read.op is None else self.run.graph.ops[read.op].number,
                    run=run,
                )
        return None

    def _layout(self, value: Value) -> Layout:
        if value.part is None:
            return Layout.block(value.low, value.high - value.low, 1)
        return self.memory.layout(self.tensors[value.part.tensor], value.part.turn, value.unit)

    def _read(self, value: Value, read: Read) -> Touched:
        """The last kernel step that reads each element; an op of unknown order reads all to the very end."""
        if read.tensor is None:
            return Touched(self._layout(value), Touches.whole(value.high - value.low, _TO_THE_END))
        tensor = self.tensors[read.tensor]
        layout = self.memory.layout(tensor, None, read.unit)
        runs = None if read.op is None else self.run.kernels[read.op].reads(tensor.index, read.turn)
        if runs is None:
            return Touched(layout, Touches.whole(layout.elems, _TO_THE_END))
        return Touched(layout, self._touches(runs, tensor, None, read.unit, latest=True))

    def _written(self, value: Value, layout: Layout) -> Touched:
        """The first kernel step that writes each element; what is written in unknown order is written at once."""
        runs = None
        if value.op is not None and value.output is not None:
            runs = self.run.kernels[value.op].writes(value.output, value.turn)
        if runs is None or value.part is None:
            return Touched(layout, Touches.whole(layout.elems, _AT_ONCE))
        tensor = self.tensors[value.part.tensor]
        return Touched(layout, self._touches([runs], tensor, value.part.turn, value.unit, latest=False))

    def _touches(self, runs: list[Runs], tensor: Tensor, turn: int | None, unit: int, latest: bool) -> Touches:
        first, elems = 0, tensor.elems
        if tensor.view is None and self.memory.units[tensor.index] > 1:
            runs, first, elems = _around(runs, self.memory.unit_elems(tensor), unit)
        touches = Touches.of(runs, elems, latest)
        return self.memory.picked(touches, first, tensor, turn, unit)


def _around(runs: list[Runs], unit_elems: int, unit: int) -> tuple[list[Runs], int, int]:
    """Runs counted from the first unit on that they or `unit` reach to, that unit's first element, and how many there
    are up to the last."""
    reached = [unit * unit_elems, (unit + 1) * unit_elems - 1]
    for r in runs:
        if len(r.start):
            ends = r.start, r.start + (r.length - 1) * r.pitch
            reached += [int(e.min()) for e in ends] + [int(e.max()) for e in ends]
    first = min(reached) // unit_elems * unit_elems
    moved = [Runs(r.start - first, r.length, r.pitch, r.step, r.stride, r.hold) for r in runs]
    return moved, first, (max(reached) // unit_elems + 1) * unit_elems - first
