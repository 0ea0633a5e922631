"""Replays a plan on shadow memory: each read must find the bytes that its tensor last wrote.

It takes the graph, the order, the addresses, and what each kernel touches at which of its own steps; what must be where
when follows from those. It knows nothing of how the plan was made. Running an op whole, and running it a row at a time,
are one thing to it; what has state is run twice. It is exact: a finding is a byte that is lost, and a plan without
findings loses none. The only plans judged more strictly are those in which these share a byte: two results of one step;
what is held between turns, or used as scratch, and anything that lives meanwhile; an op of unknown order, a reshape
that is a copy, or an op that sums up rows, and what it reads. Also, what is beyond tensors, and each variable, must be
touched in the model's order, and a plan whose order or places make no sense is not looked at for lost bytes: whether a
schedule runs every op and turn, in an order that an op can be run in, and not too often, is checked first.

Only values that share addresses and time can harm each other, so bytes are looked at pair by pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice

import numpy as np

from diagmem.kernels import Library
from diagmem.model.graph import Graph, Tensor
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.ops.accesses import Runs
from diagmem.ops.state import changed_variables
from diagmem.validation.findings import Fault, Finding, Rules
from diagmem.validation.kernel import Kernel
from diagmem.validation.places import Checker, copied_bytes, held_bytes, with_caller
from diagmem.validation.shadow import FAR, Layout, Touched, Touches, clash, shared_bytes
from diagmem.validation.values import Read, ReplayedRun, Value

_ROUNDING = Fraction(1, 20_000)
"""Plans state how much is computed again to four decimals."""


def faults_of_order(graph: Graph, kernels: Sequence[Kernel], schedule: Schedule, recompute: float) -> Iterator[Finding]:
    """All that can be said without looking at what is read and written."""
    order = _Order(graph, kernels)
    for at, step in enumerate(schedule.steps):
        yield from order.step(at, step)
    yield from order.end()
    once = sum(kernel.macs for kernel in kernels)
    if order.work() > once * (Fraction(recompute) + _ROUNDING) + 1:
        yield Finding(Fault.TOO_MUCH_WORK)


class _Order:
    def __init__(self, graph: Graph, kernels: Sequence[Kernel]) -> None:
        self.graph, self.kernels = graph, kernels
        self.done: Counter[int] = Counter()
        self.whole: set[int] = set()
        self.last_effect = -1
        self.versions = _Versions(graph)
        self.turned: Counter[int] = Counter()

    def step(self, at: int, step: Step) -> Iterator[Finding]:
        op, turn = step.op, step.turn
        if not PUSH <= op < len(self.graph.ops) or (op == PUSH and not self.graph.inputs):
            yield Finding(Fault.OP_UNKNOWN, at, op)
            return
        fault = self._fault_of(op, turn)
        if fault is not None:
            yield self._finding(fault, at, op)
            return
        if turn is None:
            self.whole.add(op)
        else:
            self.done[op] = max(self.done[op], turn + 1)
            self.turned[op] += 1
        if op != PUSH:
            yield from self._effects(at, op)

    def _fault_of(self, op: int, turn: int | None) -> Fault | None:
        if turn is None and op != PUSH:
            return Fault.OP_REPEATED if op in self.whole else Fault.TURNS_MIXED if self.done[op] else None
        if op in self.whole:
            return Fault.TURNS_MIXED
        turns = self._turns(op)
        if not turns:
            return Fault.NO_TURNS
        if turn is None or not 0 <= turn < turns:
            return Fault.TURN_UNKNOWN
        if turn > self.done[op]:
            return Fault.TURN_TOO_EARLY
        if turn < self.done[op] and (op == PUSH or self.kernels[op].sums_bytes):
            return Fault.OP_REPEATED
        return None

    def _effects(self, at: int, op: int) -> Iterator[Finding]:
        early = self.versions.early(op)
        if early is None and not self.graph.nodes[op].outputs:
            early = self.last_effect if op < self.last_effect else None
            self.last_effect = max(op, self.last_effect)
        if early is not None:
            yield self._finding(Fault.EFFECT_TOO_EARLY, at, early)

    def work(self) -> Fraction:
        """Multiply-accumulates of the whole run; each turn of an op does as many."""
        whole = sum(self.kernels[op].macs for op in self.whole)
        turned = (
            Fraction(self.kernels[op].macs * count, self._turns(op)) for op, count in self.turned.items() if op != PUSH
        )
        return sum(turned, Fraction(whole))

    def end(self) -> Iterator[Finding]:
        """After the last step."""
        for op in range(len(self.graph.ops)):
            if op not in self.whole and not 0 < self._turns(op) == self.done[op]:
                yield self._finding(Fault.OP_MISSING, None, op)
        if self.done[PUSH] and self.done[PUSH] != self._turns(PUSH):
            yield self._finding(Fault.OP_MISSING, None, PUSH)

    def _turns(self, op: int) -> int:
        return self.graph.tensors[self.graph.inputs[0]].rows if op == PUSH else self.kernels[op].turns

    def _finding(self, fault: Fault, at: int | None, op: int) -> Finding:
        return Finding(fault, at, op, number=None if op == PUSH else self.graph.ops[op].number)


class _Versions:
    """How often each variable has been changed. An op must find it as often changed as in the model's order."""

    def __init__(self, graph: Graph) -> None:
        self.changed_by = [changed_variables(node) for node in graph.nodes] if graph.variables else []
        self.now: Counter[int] = Counter()
        self.last_change: dict[int, int] = {}
        self.wanted: list[dict[int, int]] = []
        count: Counter[int] = Counter()
        for node, changed in zip(graph.nodes, self.changed_by, strict=False):
            touched = {v for t in (*node.op.inputs, *node.op.outputs) for v in graph.variables_in(t)}
            self.wanted.append({v: count[v] for v in sorted(touched)})
            count.update(changed)

    def early(self, op: int) -> int | None:
        """Notes that an op runs. Which op has run too early by then: the one that last changed what it touches, or it
        itself; None if all is in order."""
        if not self.wanted:
            return None
        found = None
        for variable, wanted in self.wanted[op].items():
            if self.now[variable] != wanted:
                found = self.last_change[variable] if self.now[variable] > wanted else op
        for variable in self.changed_by[op]:
            self.now[variable] += 1
            self.last_change[variable] = op
        return found


def faults_of_views(graph: Graph, library: Library, kernels: Sequence[Kernel]) -> Iterator[Finding]:
    """Views that reach out of what they are part of, and kernels that cannot address them."""
    for tensor in graph.tensors:
        if tensor.offset_bytes + tensor.span_bytes > graph.tensors[tensor.base].size_bytes or tensor.offset_bytes < 0:
            yield Finding(Fault.VIEW_ASTRAY, tensor=tensor.label)
    for kernel in kernels:
        node = kernel.node
        if all(t.is_in_one_piece for t in (*(t for _, t in node.activations()), *node.outputs)):
            continue
        if kernel.kind is None or not library.addresses_views or not kernel.kind.can_address(node):
            yield Finding(Fault.UNADDRESSABLE, op=node.op.index, number=node.op.number)


NO_MORE = Rules()
"""Nothing is aligned, kept, elsewhere or recomputed beyond what must be."""

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
    copies = copied_bytes(kernels, schedule, rules)
    checker.check_weight_copies(copies)
    checker.check_pieces(schedule)
    yield from placed.findings
    if not found:
        run = ReplayedRun(graph, kernels, schedule, placed, held, copies)
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
