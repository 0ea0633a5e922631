"""What can be wrong with a plan, and what it was made to keep to; and the places that it gives, checked and made ready
to be looked up: whole numbers, inside the arena, aligned."""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from diagmem.model.graph import Graph, IntArray, Node, Tensor
from diagmem.model.schedule import PUSH, Multicore, PushState, Schedule
from diagmem.ops import kind_of
from diagmem.validation.kernel import Kernel


class Fault(enum.Enum):
    """What can be wrong with a plan."""

    OP_UNKNOWN = "the schedule names an op that the graph does not have"
    OP_MISSING = "the schedule omits an op, or a turn of one"
    OP_REPEATED = "the schedule runs an op, or a turn of it, twice"
    OP_TOO_EARLY = "an op runs before its input is made"
    TURN_UNKNOWN = "the schedule names a turn that the op does not have"
    TURN_TOO_EARLY = "a turn comes before the one that it follows"
    TURNS_MIXED = "an op runs both whole and by turns"
    NO_TURNS = "an op runs by turns, but its kernel can only run whole"
    TOO_MUCH_WORK = "rows are recomputed beyond the work that is allowed"
    EFFECT_TOO_EARLY = "an op with side effects runs out of the model's order"
    NOT_WRITTEN = "an op reads a part of a tensor that no op writes"
    WRITTEN_TWICE = "two ops write the same part of a tensor"
    UNADDRESSABLE = "a kernel cannot address a tensor that is a strided part of another one"
    NO_PLACE = "a tensor has no place in the arena"
    PLACE_UNKNOWN = "the plan places something that the graph does not have"
    PLACE_AMISS = "an offset is missing, or is not a whole number, for some row"
    NOT_IN_ONE_PIECE = "a tensor that must lie in one piece does not"
    VIEW_ASTRAY = "a view does not lie where the tensor that it is part of has it"
    OUTSIDE = "a tensor lies partly outside the arena"
    ACROSS_POOLS = "a tensor does not lie in one pool"
    POOL_OVERRUN = "a pool is used beyond its capacity"
    MISALIGNED = "a tensor's offset is not a multiple of its alignment"
    OVERWRITTEN = "an op reads a byte that something else has overwritten"
    SHARED_UNKNOWN = "the plan splits an op that it does not run, or in a way that its kernel does not support"
    PHASES_AMISS = "the phases of a split op do not cover each unit once, in order"
    HELD_AMISS = "the plan defers writes, but the kernel can only write in place"
    ALONE_AMID = "a part of an op runs on one core, but its kernel cannot start or stop there"
    RACE = "a core may write a byte before another one has read it"
    RESULT_LOST = "a graph output, or another value that must survive the run, is overwritten"


@dataclass(frozen=True, slots=True)
class Pool:
    """A memory that a plan uses from address `begin` to `end`, and what there is of it."""

    name: str
    begin: int
    end: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What a plan was made to keep to.

    `align_bytes`: every offset is a multiple of it. `keep_inputs`: graph inputs survive the run. `external_io`: graph
    inputs and outputs may lie with the caller. `recompute`: the most multiply-accumulates, as a multiple of those of a
    run that computes everything once. `pools`: the memories, where there are several; what lies in one of them is
    reached by the address of its start, so nothing may lie in two. `input_align_bytes`: where graph inputs may start.
    `multicore`: how several cores share it, if they do. `weight_copies`: op -> the address to which its weights are
    copied before its first step, or if they are `copied_ahead` during the step before that; its kernel then reads them
    there.
    """

    align_bytes: int = 1
    keep_inputs: bool = False
    external_io: bool = False
    recompute: float = 1.0
    pools: tuple[Pool, ...] = ()
    input_align_bytes: int = 1
    multicore: Multicore | None = None
    weight_copies: Mapping[int, int] = field(default_factory=dict)
    copied_ahead: bool = False

    @property
    def cores(self) -> int:
        return 1 if self.multicore is None else self.multicore.cores


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `byte` is an address in the arena; `writer` overwrote it at step `writer_step`.

    `op` is its index in the graph, `number` that in the model's file. `row`, `writer_row`: which row of the tensor and
    of the writer it is about, where these are held row by row. `run`: in which run it shows, of a model that has state.
    """

    fault: Fault
    step: int | None = None
    op: int | None = None
    tensor: str | None = None
    byte: int | None = None
    writer: str | None = None
    writer_step: int | None = None
    row: int | None = None
    writer_row: int | None = None
    number: int | None = None
    run: int = 0

    def __str__(self) -> str:
        parts = [f"{'in the next run, ' if self.run else ''}{self._where}{self.fault.value}"]
        parts += [_named(self.tensor, self.row)] if self.tensor is not None else []
        parts += [f"byte {self.byte}"] if self.byte is not None else []
        if self.writer is not None:
            when = "before the run" if (self.writer_step or 0) < 0 else f"at step {self.writer_step}"
            parts.append(f"overwritten by {_named(self.writer, self.writer_row)} {when}")
        return "; ".join(parts)

    @property
    def _where(self) -> str:
        if self.op is None:
            return "" if self.step is None else "after the run: "
        number = self.op if self.number is None else self.number
        who = "the caller's row" if self.op == PUSH else f"op {number}"
        return f"{who}: " if self.step is None else f"step {self.step}, {who}: "


def _named(label: str, row: int | None) -> str:
    return f"'{label}'" if row is None else f"'{label}'[{row}]"


_HIGHEST = 1 << 48
"""No arena reaches so far; addresses below it are computed with safely."""

Places = Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that belong to no tensor: scratch and sums of an op, or (op PUSH) the state of a run that waits; or a copy
    of an op's weights, made at a `step`."""

    op: int
    name: str
    size_bytes: int
    align_bytes: int
    step: int = 0


@dataclass
class Placed:
    """What lies where, as far as that makes sense. `rows`: tensor that is no view -> the address of each row. `held`:
    op -> address of what it holds; `weight_copies`: op -> that of the copy of its weights. `findings`: all that is
    wrong."""

    rows: dict[int, IntArray] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    weight_copies: dict[int, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def held_bytes(kernels: Sequence[Kernel], graph: Graph, schedule: Schedule) -> list[Held]:
    """What the steps of a schedule need besides tensors."""
    by_turns = {step.op for step in schedule.steps if step.turn is not None}
    found = []
    for op, kernel in enumerate(kernels):
        if op in by_turns and kernel.sums_bytes:
            found.append(
                Held(
                    op, f"sums of {kernel.node.label}", kernel.sums_bytes, kernel.sums_bytes // kernel.node.output.elems
                )
            )
        elif kernel.scratch_bytes:
            found.append(Held(op, f"scratch of {kernel.node.label}", kernel.scratch_bytes, kernel.scratch_align_bytes))
    if PUSH in by_turns:
        state = PushState.of(graph, schedule.ops)
        found.append(Held(PUSH, "state", state.size_bytes, state.at_bytes))
    return found


def copied_bytes(kernels: Sequence[Kernel], schedule: Schedule, rules: Rules) -> list[Held]:
    """The copies of weights that a plan has; it need not have any. One that is made ahead is so during the last step of
    an op before its own first one."""
    ops = [step.op for step in schedule.steps]
    by_turns = {step.op for step in schedule.steps if step.turn is not None}
    found = []
    for op in (op for op in rules.weight_copies if isinstance(op, int) and 0 <= op < len(kernels)):
        weights = kernels[op].weights(op in by_turns)
        if weights is not None and op in ops:
            at = ops.index(op)
            if rules.copied_ahead:
                at = next((before for before in range(at - 1, -1, -1) if ops[before] != PUSH), at)
            name = f"weights of {kernels[op].node.label}"
            found.append(Held(op, name, weights.size_bytes, weights.align_bytes, at))
    return found


def with_caller(graph: Graph) -> set[int]:
    """Graph inputs and outputs, what reshapes tie to them, and views of all these."""
    found = {*graph.inputs, *graph.outputs}
    ties = [(node.op.inputs[0], node.op.outputs[0]) for node in graph.nodes if is_reshape(node)]
    for source, target in [*ties, *reversed(ties)]:
        if source in found or target in found:
            found |= {source, target}
    return found | {t.index for t in graph.tensors if t.base in found}


def is_reshape(node: Node) -> bool:
    """Whether its output may be its input's bytes under another shape. Those of constants and variables are copied, and
    those of views, which do not lie in one piece as a rule."""
    kind = kind_of(node.op.kind)
    if kind is None or not kind.is_alias or len(node.outputs) != 1 or not node.inputs or node.inputs[0] is None:
        return False
    source, target = node.inputs[0], node.outputs[0]
    if source.is_constant or any(t.is_variable or t.view is not None for t in (source, target)):
        return False
    return source.size_bytes == target.size_bytes and source.dtype.size_bytes == target.dtype.size_bytes


class Checker:
    """Looks at the places alone, not at what lies there when."""

    def __init__(self, graph: Graph, arena_bytes: int, rules: Rules) -> None:
        self.graph, self.rules = graph, rules
        self.arena_bytes = min(arena_bytes, _HIGHEST)
        self.placed = Placed()

    def check(
        self, places: Places, scratch: Mapping[int, int], held: Sequence[Held], needed: Iterable[int], outside: set[int]
    ) -> Placed:
        """`needed`: tensors that must have a place, unless they are among those `outside`."""
        tensors = self.graph.tensors
        for pool in self.rules.pools:
            if pool.end - pool.begin > pool.capacity_bytes:
                self._found(Fault.POOL_OVERRUN, pool.name, pool.end - pool.begin)
        for index in places:
            if not isinstance(index, int) or not 0 <= index < len(tensors):
                self._found(Fault.PLACE_UNKNOWN, f"tensor {index}")
        for tensor in sorted((tensors[t] for t in needed), key=lambda t: (t.view is not None, t.index)):
            index = tensor.index
            if tensor.is_constant or not tensor.elems:
                continue
            rows = _whole_numbers(places.get(index, ()))
            if rows is None:
                self._found(Fault.PLACE_AMISS, tensor.label)
            elif rows:
                self._rows(tensor, rows)
            elif tensor.view is None and index not in outside:
                self._found(Fault.NO_PLACE, tensor.label)
            if tensor.view is not None:
                self._view_alignment(tensor)
        for op in scratch:
            if not isinstance(op, int) or not PUSH <= op < len(self.graph.ops):
                self._found(Fault.PLACE_UNKNOWN, f"op {op}")
        for item in held:
            self._held(item, scratch.get(item.op), self.placed.held)
        return self.placed

    def check_weight_copies(self, copies: Sequence[Held]) -> None:
        """The copies of weights. One of what has no weights is one of nothing."""
        for op in self.rules.weight_copies.keys() - {item.op for item in copies}:
            self._found(Fault.PLACE_UNKNOWN, f"weights of op {op}")
        for item in copies:
            self._held(item, self.rules.weight_copies[item.op], self.placed.weight_copies)

    def _found(self, fault: Fault, label: str, byte: int | None = None, row: int | None = None) -> None:
        self.placed.findings.append(Finding(fault, tensor=label, byte=byte, row=row))

    def _rows(self, tensor: Tensor, rows: list[int]) -> None:
        counts = {tensor.rows, 1} if tensor.view is not None else {tensor.rows}
        if len(rows) not in counts:
            self._found(Fault.PLACE_AMISS, tensor.label)
            return
        if tensor.view is not None:
            self._view(tensor, rows)
            return
        size, align = tensor.row_bytes, math.lcm(self.rules.align_bytes, tensor.dtype.size_bytes)
        align = math.lcm(align, self.rules.input_align_bytes) if tensor.index in self.graph.inputs else align
        if min(rows) < 0 or max(rows) + size > self.arena_bytes:
            for row, at in enumerate(rows):
                if at < 0 or at + size > self.arena_bytes:
                    self._found(Fault.OUTSIDE, tensor.label, at, _named_row(tensor, row))
            return
        if not self._is_in_one_pool(min(rows), max(rows) + size):
            self._found(Fault.ACROSS_POOLS, tensor.label, min(rows))
            return
        self.placed.rows[tensor.index] = found = np.array(rows, dtype=np.int64)
        # A tensor in one piece has one offset; rows here and there have one each.
        is_straight = bool((np.diff(found) == size).all())
        for row in np.flatnonzero(found[: 1 if is_straight else None] % align).tolist():
            self._found(Fault.MISALIGNED, tensor.label, rows[row], None if is_straight else _named_row(tensor, row))

    def _is_in_one_pool(self, low: int, high: int) -> bool:
        pools = self.rules.pools
        return not pools or any(pool.begin <= low and high <= pool.end for pool in pools)

    def _view(self, view: Tensor, rows: Sequence[int]) -> None:
        base = self.placed.rows.get(view.base)
        if base is None:
            self._found(Fault.VIEW_ASTRAY, view.label, rows[0])
            return
        size, row_bytes = view.dtype.size_bytes, self.graph.tensors[view.base].row_bytes
        pitch = view.strides[1] * size if len(rows) > 1 else 0
        for row, at in enumerate(rows):
            inside = view.offset_bytes + row * pitch
            if inside >= row_bytes * len(base) or at != int(base[inside // row_bytes]) + inside % row_bytes:
                self._found(Fault.VIEW_ASTRAY, view.label, at, row if len(rows) > 1 else None)
                return

    def _view_alignment(self, view: Tensor) -> None:
        base, row_bytes = self.placed.rows.get(view.base), self.graph.tensors[view.base].row_bytes
        if base is not None and 0 <= view.offset_bytes < row_bytes * len(base):
            at = int(base[view.offset_bytes // row_bytes]) + view.offset_bytes % row_bytes
            if at % math.lcm(self.rules.align_bytes, view.dtype.size_bytes):
                self._found(Fault.MISALIGNED, view.label, at)

    def _held(self, item: Held, given: int | None, placed: dict[int, int]) -> None:
        at = None if given is None else _whole_numbers([given])
        if given is None:
            self._found(Fault.NO_PLACE, item.name)
        elif at is None:
            self._found(Fault.PLACE_AMISS, item.name)
        elif at[0] < 0 or at[0] + item.size_bytes > self.arena_bytes:
            self._found(Fault.OUTSIDE, item.name, at[0])
        elif not self._is_in_one_pool(at[0], at[0] + item.size_bytes):
            self._found(Fault.ACROSS_POOLS, item.name, at[0])
        else:
            placed[item.op] = at[0]
            if at[0] % math.lcm(item.align_bytes, self.rules.align_bytes):
                self._found(Fault.MISALIGNED, item.name, at[0])

    def check_pieces(self, schedule: Schedule) -> None:
        """What a kernel or the caller reaches by one address must lie in one piece: tensors that are handed on whole,
        and of a view each row that a turn touches."""
        is_streamed = any(step.op == PUSH for step in schedule.steps)
        whole = {*(() if is_streamed else self.graph.inputs[:1]), *self.graph.inputs[1:], *self.graph.outputs}
        by_row: set[int] = set()
        for op, is_whole in {(step.op, step.turn is None) for step in schedule.steps}:
            if 0 <= op < len(self.graph.ops):
                node = self.graph.nodes[op]
                touched = {t.index for t in (*(t for _, t in node.activations()), *node.outputs)}
                (whole if is_whole else by_row).update(touched)
        for index in sorted(whole | by_row):
            tensor = self.graph.tensors[index]
            if not self._is_reached(tensor, by_row=index not in whole):
                self._found(Fault.NOT_IN_ONE_PIECE, tensor.label)

    def _is_reached(self, tensor: Tensor, by_row: bool) -> bool:
        base = self.placed.rows.get(tensor.base)
        if base is None or (by_row and tensor.view is None) or not tensor.elems:
            return True
        row_bytes, extent, pitch, rows = self.graph.tensors[tensor.base].row_bytes, tensor.span_bytes, 0, 1
        if by_row and tensor.rows > 1:
            extent, pitch = tensor.row_span_bytes, tensor.strides[1] * tensor.dtype.size_bytes
            rows = tensor.rows
        begin = tensor.offset_bytes + np.arange(rows, dtype=np.int64) * pitch
        first, last = (np.clip(at // row_bytes, 0, len(base) - 1) for at in (begin, begin + extent - 1))
        # How many rows of the base up to each one do not follow the row before.
        breaks = np.append(0, np.cumsum(np.diff(base) != row_bytes))
        return bool((breaks[first] == breaks[last]).all())


def _whole_numbers(given: Sequence[int]) -> list[int] | None:
    """None if they are none."""
    try:
        return [operator.index(at) for at in given]
    except TypeError:
        return None


def _named_row(tensor: Tensor, row: int) -> int | None:
    return row if tensor.rows > 1 else None
