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
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain, islice, pairwise

import numpy as np

from diagmem.kernels import Library
from diagmem.model.graph import Graph, IntArray, Node, Tensor
from diagmem.model.schedule import PUSH, Along, How, Multicore, Schedule, Split, Step
from diagmem.ops import Order, kind_of
from diagmem.ops.accesses import Runs
from diagmem.ops.orders import PIXEL_BY_PIXEL
from diagmem.ops.state import changed_variables
from diagmem.validation.findings import Checker, Fault, Finding, Placed, Rules, copied_bytes, held_bytes, with_caller
from diagmem.validation.kernel import (
    FAR,
    Kernel,
    Layout,
    Touched,
    Touches,
    TurnedRuns,
    clash,
    cut_to_turns,
    shared_bytes,
)
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
        # How often each variable has been changed. An op must find it as often changed as in the model's order.
        self.changed_by = [changed_variables(node) for node in graph.nodes] if graph.variables else []
        self.changes: Counter[int] = Counter()
        self.last_change: dict[int, int] = {}
        self.wanted: list[dict[int, int]] = []
        count: Counter[int] = Counter()
        for node, changed in zip(graph.nodes, self.changed_by, strict=False):
            touched = {v for t in (*node.op.inputs, *node.op.outputs) for v in graph.variables_in(t)}
            self.wanted.append({v: count[v] for v in sorted(touched)})
            count.update(changed)
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
        early = self._early(op)
        if early is None and not self.graph.nodes[op].outputs:
            early = self.last_effect if op < self.last_effect else None
            self.last_effect = max(op, self.last_effect)
        if early is not None:
            yield self._finding(Fault.EFFECT_TOO_EARLY, at, early)

    def _early(self, op: int) -> int | None:
        """Notes that an op runs. Which op has run too early by then: the one that last changed what it touches, or it
        itself; None if all is in order."""
        if not self.wanted:
            return None
        found = None
        for variable, wanted in self.wanted[op].items():
            if self.changes[variable] != wanted:
                found = self.last_change[variable] if self.changes[variable] > wanted else op
        for variable in self.changed_by[op]:
            self.changes[variable] += 1
            self.last_change[variable] = op
        return found

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


MOST_TOUCHES = 1 << 21
"""That are looked at together."""


def faults_of_multicore(
    graph: Graph, library: Library, schedule: Schedule, placed: Placed, multicore: Multicore
) -> Iterator[Finding]:
    """What is wrong with how cores share steps: whether every byte is there until it is read, in whatever order they
    run. One finding for each op or turn of it.

    Time is counted in barriers: between two of them anything may happen at any moment. A byte that is written must have
    been read by all that read it before the barrier behind which that may happen; but for a unit that reads what it
    overwrites itself, and for units that one core does alone, in the kernel's own order, which is replayed.
    """
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
        if node.output.base in placed.rows:
            work = SharedWork.of(node, placed, split)
            for step in steps:
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
class SharedWork:
    """What cores share of an op: `made` elements at once, each of them at the kernel step of its number. `reads`: for
    each input its touches, by turn where there are turns; `places`: tensor -> where each element lies. For each unit:
    between which barriers its inputs are `read` and it is `written`, and `by` whom: units of one number are done by one
    core in order."""

    node: Node
    split: Split
    made: int
    reads: Sequence[tuple[Tensor, Runs | TurnedRuns]]
    places: Mapping[int, IntArray]
    read: IntArray
    written: IntArray
    by: IntArray

    @classmethod
    def of(cls, node: Node, placed: Placed, split: Split) -> SharedWork:
        kind, made, units = kind_of(node.op.kind), _made_elems(node, split), split.cut.units
        assert kind is not None
        tensors = (node.output, *(t for _, t in node.activations()))
        places = {t.index: _addresses(t, placed.rows[t.base]) for t in tensors if t.base in placed.rows}
        ends = None if split.turns is None else np.arange(1, node.output.rows + 1, dtype=np.int64) * made
        accesses = kind.cut_accesses(node)
        given = ((t, accesses.reads[position]) for position, t in node.activations() if t.index in places)
        reads = [(t, runs if ends is None else cut_to_turns(runs, ends)) for t, runs in given if runs is not None]
        read, written, by = np.zeros(units, dtype=np.int64), np.zeros(units, dtype=np.int64), np.arange(units)
        for barriers, phase in enumerate(split.each_phase()):
            span = slice(phase.first, phase.end)
            read[span], written[span] = barriers, barriers + (phase.how is How.HELD)
            if phase.how is How.ALONE:
                by[span] = units + barriers
        return cls(node, split, made, reads, places, read, written, by)

    def races(self, turn: int | None, step: int) -> Iterator[Finding]:
        """The first byte of an input that may be overwritten too early, for each input."""
        out, first = self.node.output, (turn or 0) * self.made
        written = self.places[out.index][first : first + self.made]
        low, high = int(written.min(initial=0)), int(written.max(initial=0)) + out.dtype.size_bytes
        # The unit that writes each byte; below 0: none does.
        writer = np.full(high - low, -1, dtype=np.int64)
        made = self._units(np.arange(self.made, dtype=np.int64))
        for byte in range(out.dtype.size_bytes):
            writer[written - low + byte] = made
        for tensor, reads in self.reads:
            runs = reads if isinstance(reads, Runs) else reads.of_turn(turn or 0)
            at = self._first_race(tensor, runs, first, writer, low)
            if at is not None:
                yield Finding(Fault.RACE, step, self.split.op, tensor.label, at, number=self.node.op.number)

    def _first_race(self, tensor: Tensor, runs: Runs, made_from: int, writer: IntArray, low: int) -> int | None:
        """The first byte of an input that may be gone when it is read. `made_from`: the first element that is made;
        `writer`: which unit writes each byte from the address `low` on."""
        for some in _in_parts(runs):
            element, first, last = some.touches()
            for byte in range(tensor.dtype.size_bytes):
                at = self.places[tensor.index][element] + (byte - low)
                inside = np.flatnonzero((at >= 0) & (at < len(writer)))
                inside = inside[writer[at[inside]] >= 0]
                lost = self._clash(first[inside] - made_from, last[inside] - made_from, writer[at[inside]])
                if lost.any():
                    return low + int(at[inside][np.flatnonzero(lost)].min())
        return None

    def _clash(self, first: IntArray, last: IntArray, writer: IntArray) -> IntArray:
        """Which of some touches, at the kernel steps from `first` to `last`, find a byte that its writer may have
        written by then. Units read at the steps that make their elements."""
        begin, end = (self._units(np.minimum(at, self.made - 1)) for at in (first, last))
        is_channel = self.split.cut.along is Along.CHANNELS
        late = np.maximum(self.read[begin], self.read[end])
        late = np.full_like(late, self.read.max()) if is_channel and (first != last).any() else late
        is_own = (self.by[begin] == self.by[writer]) & (self.by[end] == self.by[writer])
        is_own &= (first == last) | (not is_channel)
        found: IntArray = (late > self.written[writer]) | ((late == self.written[writer]) & ~is_own)
        return found

    def _units(self, elements: IntArray) -> IntArray:
        """The units that elements of the output belong to, counted from the first that is made at once with them."""
        units = self.split.cut.units
        return elements % units if self.split.cut.along is Along.CHANNELS else elements // (self.made // units)


def _in_parts(runs: Runs) -> Iterator[Runs]:
    """Runs of a bounded number of touches each, but for a single one that has more."""
    touched = np.cumsum(runs.length)
    begin = 0
    while begin < len(touched):
        before = int(touched[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(touched, before + MOST_TOUCHES)))
        yield runs.picked(slice(begin, end))
        begin = end


def _addresses(tensor: Tensor, rows: IntArray) -> IntArray:
    """Where each element lies."""
    size = tensor.dtype.size_bytes
    layout = Layout(rows, tensor.elems // len(rows), size)
    if tensor.view is not None:
        layout = Layout.of(tensor, int(rows[0]) + tensor.offset_bytes)
    found: IntArray = (layout.at[:, None] + np.arange(layout.piece_elems, dtype=np.int64) * size).reshape(-1)
    return found


LAST_ASKED = 4
"""Touches that are kept: of what one value is made by, and read by."""

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
    kernels = [Kernel(node, library, rules.cores) for node in graph.nodes]
    found = [*faults_of_views(graph, library, kernels), *faults_of_order(graph, kernels, schedule, rules.recompute)]
    variables = {t.index for t in graph.tensors if t.is_variable}
    outside = with_caller(graph) if rules.external_io else set()
    kept = {*graph.outputs, *(graph.inputs if rules.keep_inputs else ())}
    kept |= variables & places.keys() if library.keeps_variables else variables
    outside |= variables if library.keeps_variables else set()
    touched = {t for op in graph.ops for t in (*op.inputs, *op.outputs) if t >= 0}
    used = touched | {*graph.inputs, *kept, *graph.families}

    checker = Checker(graph, arena_bytes, rules)
    held = held_bytes(kernels, graph, schedule)
    placed = checker.check(places, scratch, held, used, outside)
    copies = copied_bytes(kernels, schedule, rules)
    checker.check_weight_copies(copies)
    checker.check_pieces(schedule)
    if found:
        return [*found, *placed.findings][:MOST_FINDINGS]
    run = ReplayedRun(graph, kernels, schedule, placed, held, copies)
    found = [*run.faults_of_parts()] or [*run.walk(used, kept)]
    if not found:
        races = (
            () if rules.multicore is None else faults_of_multicore(graph, library, schedule, placed, rules.multicore)
        )
        found = [*islice(chain(Losses(run).find(), races), MOST_FINDINGS)]
    return [*placed.findings, *found][:MOST_FINDINGS]


class Losses:
    """The values of a run that destroy each other."""

    def __init__(self, run: ReplayedRun) -> None:
        self.run, self.memory, self.tensors = run, run.memory, run.graph.tensors
        # Of an op that runs whole the same is asked for each row that it meets.
        self._touches_of = lru_cache(LAST_ASKED)(Touches.of)

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
        return Touched(layout, self._touches(runs, tensor, (read.turn, None), read.unit, latest=True))

    def _written(self, value: Value, layout: Layout) -> Touched:
        """The first kernel step that writes each element; what is written in unknown order is written at once."""
        runs = None
        if value.op is not None and value.output is not None:
            runs = self.run.kernels[value.op].writes(value.output, value.turn)
        if runs is None or value.part is None:
            return Touched(layout, Touches.whole(layout.elems, _AT_ONCE))
        tensor = self.tensors[value.part.tensor]
        turns = value.turn, value.part.turn
        return Touched(layout, self._touches([runs], tensor, turns, value.unit, latest=False))

    def _touches(
        self, runs: list[Runs], tensor: Tensor, turns: tuple[int | None, int | None], unit: int, latest: bool
    ) -> Touches:
        """`turns`: the op's, and that of the part of the tensor."""
        first, elems = 0, tensor.elems
        if tensor.view is None and self.memory.units[tensor.index] > 1 and turns[0] is not None:
            runs, first, elems = _around(runs, self.memory.unit_elems(tensor), unit)
        return self.memory.picked(self._touches_of(tuple(runs), elems, latest), first, tensor, turns[1], unit)


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
