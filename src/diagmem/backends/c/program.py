"""What C code is made from: a graph, the steps in which it runs, how its tensors lie, and a call for each op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from diagmem.backends.c.repeats import Piece, shorter_tables
from diagmem.kernels import LIBRARIES, Library, library
from diagmem.kernels.rows import RowGraph, row_graph, sums_of
from diagmem.model.errors import ModelError, PlanError
from diagmem.model.graph import DType, Graph, Node, Tensor
from diagmem.model.pools import NO_POOLS, PoolLayout
from diagmem.model.schedule import PUSH, Along, Multicore, PushState, Schedule, Step
from diagmem.ops.c_call import CCall, CPointers, CRow, CRows, Unsupported, WeightCopies, values_of, weight_copies
from diagmem.ops.options import facts_of_types
from diagmem.ops.state import changed_variables
from diagmem.planning.cores.split import stays
from diagmem.planning.plan import Plan, Storage, offsets_in_one_piece
from diagmem.planning.planner import Planned
from diagmem.transforms.asked import as_asked, next_frames

C_TYPES: Mapping[DType, str] = facts_of_types("c")
"""Of what a caller hands over and gets back."""

MOST_REASONS = 4
"""That a message lists."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a step of a program has written: a tensor at an offset, or one row of it. Steps count from 0, without those
    of the caller."""

    step: int
    node: Node
    tensor: Tensor
    offset: int
    row: int | None = None

    @property
    def size_bytes(self) -> int:
        """From its first element to its last."""
        return self.tensor.span_bytes if self.row is None else self.tensor.row_span_bytes


@dataclass(frozen=True)
class Program:
    """`scratch`: op -> where what it needs beside its tensors lies; PUSH -> where the state of a run lies that waits
    for the caller's next row. `lower_bound_bytes`: None where nobody has proven one. `source`: the model's own graph,
    where ops were removed from it. `kernels`: the name of the library that runs it. `offset_align_bytes`: every offset
    is a multiple of it, so the arena's start must be one too. `pools`: which addresses lie in which memory, where there
    are several: there is then an arena in each. `multicore`: how several cores share it. `next_frames`: for inputs that
    are double-buffered, the tensor that holds the next frame. `weight_copies`: op -> where its weights are copied
    to before it first runs, a step earlier if `copies_ahead`."""

    graph: Graph
    schedule: Schedule
    storage: Mapping[int, Storage]
    scratch: Mapping[int, int]
    arena_bytes: int
    lower_bound_bytes: int | None = None
    source: Graph | None = None
    kernels: str = "diagmem"
    offset_align_bytes: int = 1
    pools: PoolLayout = NO_POOLS
    multicore: Multicore | None = None
    next_frames: Mapping[int, int] = field(default_factory=dict)
    weight_copies: Mapping[int, int] = field(default_factory=dict)
    copies_ahead: bool = False

    @classmethod
    def of(cls, made: Planned) -> Program:
        return cls.running(made.plan, made.model)

    @classmethod
    def running(cls, plan: Plan, model: Graph | None = None) -> Program:
        """A plan as C. `model`: the graph as its file has it, if that is another one than the plan's."""
        if not plan.options.library.is_own:
            raise PlanError(
                f"the plan is made for the kernels '{plan.options.kernels}', C code needs one for our own: plan again "
                f"with kernels {' or '.join(name for name, known in LIBRARIES.items() if known.is_own)}"
            )
        if not plan.graph.outputs:
            raise ModelError("the model has no outputs, so that its C code would do nothing")
        if plan.options.external_io:
            raise PlanError("C code does not take external_io: plan again with --buffer NAME=external for each tensor")
        if plan.pools.missing_bytes:
            raise PlanError(f"the plan does not fit its pools: {plan.pools.missing_bytes} bytes are missing")
        options = plan.options
        if model is not None:
            model = as_asked(model, options.keep, options.double_buffer, options.apart)
        program = cls(
            graph=plan.graph,
            schedule=plan.schedule,
            storage=plan.storage,
            scratch=plan.scratch,
            arena_bytes=plan.arena_bytes,
            lower_bound_bytes=plan.lower_bound_bytes,
            source=None if model is plan.graph else model,
            kernels=options.kernels,
            offset_align_bytes=max(options.align_bytes, options.input_align or 1),
            pools=plan.pools.in_use,
            multicore=plan.multicore,
            next_frames=next_frames(plan.graph, options.double_buffer),
            weight_copies=plan.weight_copies,
            copies_ahead=plan.copies_ahead,
        )
        program.check_places()
        return program

    @property
    def in_one_arena(self) -> Program:
        """The same, its pools one behind the other in a single arena: for those who look at what it does, not where."""
        return replace(self, pools=NO_POOLS, arena_bytes=self.pools.end or self.arena_bytes)

    def check_places(self) -> None:
        """Raises PlanError where something that the code addresses has no place: whether places are safe is for the
        validator to say."""
        for tensor in self.tensors:
            if tensor.base not in self.storage:
                raise PlanError(f"the plan has no place for tensor {tensor.index} '{tensor.label}'")
        whole = {t for step in self.steps if step.turn is None for t in self.graph.ops[step.op].outputs}
        scattered = sorted(t for t in whole if self.graph.tensors[t].base not in self.offsets)
        if scattered:
            label = self.graph.tensors[scattered[0]].label
            raise PlanError(
                f"tensor {scattered[0]} '{label}' is made whole, but the plan does not have it in one piece"
            )
        sums = sums_of(self.graph, self.library) & self.visits.keys()
        buffered = {node.op.index for node in self.nodes if self.library.scratch_bytes(node)}
        for op in [*sorted(sums | buffered), *([PUSH] if self.input_rows else [])]:
            if op not in self.scratch:
                what = "state" if op == PUSH else f"{'sums' if op in sums else 'scratch'} of op {op}"
                raise PlanError(f"the plan has no place for the {what}")

    @property
    def model(self) -> Graph:
        """The graph as the file has it."""
        return self.graph if self.source is None else self.source

    @property
    def library(self) -> Library:
        return library(self.kernels)

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.schedule.steps

    @property
    def input_rows(self) -> bool:
        """Whether the caller hands the input over a row at a time."""
        return self.schedule.is_streamed

    @cached_property
    def offsets(self) -> Mapping[int, int]:
        """Tensor -> its place in the arena, for those in one piece."""
        return offsets_in_one_piece(self.graph, self.storage)

    @cached_property
    def rows(self) -> RowGraph:
        return row_graph(self.graph, self.library)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Each op once, in the order of their first steps."""
        return tuple(dict.fromkeys(step.op for step in self.steps if step.op != PUSH))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The operations in the order in which they first run."""
        return tuple(self.graph.nodes[op] for op in self.order)

    @cached_property
    def visits(self) -> Mapping[int, tuple[int, ...]]:
        """Op -> its turns in the order in which it has them, for those that run by turns. It may have some again, to
        recompute a row."""
        found: dict[int, list[int]] = {}
        for step in self.steps:
            if step.turn is not None:
                found.setdefault(step.op, []).append(step.turn)
        return {op: tuple(turns) for op, turns in found.items()}

    @property
    def states(self) -> tuple[Tensor, ...]:
        """The variables, which live from run to run."""
        return self.graph.variables

    @cached_property
    def state(self) -> PushState:
        return PushState.of(self.graph, self.schedule.ops)

    def written(self) -> Iterator[Written]:
        """What the steps write, in their order; of a variable that is changed several times, the last."""
        last_change = {v: node.op.index for node in self.graph.nodes for v in changed_variables(node)}
        own_steps = (step for step in self.steps if step.op != PUSH)
        for number, step in enumerate(own_steps):
            node = self.graph.nodes[step.op]
            if step.turn is None:
                made = dict.fromkeys((*node.op.outputs, *changed_variables(node)))
                tensors = (self.graph.tensors[t] for t in made if last_change.get(t, step.op) == step.op)
                yield from (Written(number, node, t, self.offsets[t.index]) for t in tensors)
                continue
            for row in self.rows.ops[step.op].makes_at(step.turn) or ():
                for t in node.outputs:
                    yield Written(number, node, t, self.how_rows_lie(t.index).offsets[row], row)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that must lie in the arena."""
        used = {*self.graph.inputs, *self.graph.outputs}
        used |= {t.index for node in self.nodes for t in (*node.inputs, *node.outputs) if t is not None}
        return tuple(t for t in self.graph.tensors if t.index in used and not t.is_constant)

    @property
    def align_bytes(self) -> int:
        """What the arena's start must be a multiple of."""
        held = [self.state.at_bytes if op == PUSH else self.library.scratch_align_bytes for op in self.scratch]
        held += [weights.align_bytes for weights in self.copied_weights.values()]
        by_rows = [self.graph.nodes[op] for op in self.scratch if op in self.visits and op != PUSH]
        held += [self.rows.ops[n.op.index].accumulator_bytes // n.output.elems for n in by_rows]
        return max([self.offset_align_bytes, *(t.dtype.size_bytes for t in self.tensors), *held])

    @cached_property
    def copied_weights(self) -> Mapping[int, WeightCopies]:
        """Op -> what is copied before it runs, and how the copy lies."""
        if not self.weight_copies:
            return {}
        calls = {op: self.calls.get(op) for op in self.weight_copies}
        found = {op: weight_copies(call) for op, call in calls.items() if call is not None}
        return {op: weights for op, weights in found.items() if weights is not None}

    @cached_property
    def copies(self) -> Mapping[int, Mapping[int, tuple[Node, ...]]]:
        """Op -> how often it has run before -> the ops whose weights are copied before it runs then."""
        found: dict[int, dict[int, tuple[Node, ...]]] = {}
        begins = self.schedule.begins(self.copies_ahead)
        for op in sorted(self.copied_weights, key=lambda op: begins[op]):
            at = begins[op]
            runs, visit = self.steps[at].op, sum(step.op == self.steps[at].op for step in self.steps[:at])
            due = found.setdefault(runs, {})
            due[visit] = (*due.get(visit, ()), self.graph.nodes[op])
        return found

    @cached_property
    def by_rows(self) -> Mapping[int, Storage]:
        """How the tensors lie of which rows are passed on."""
        pushed = self.graph.inputs if self.input_rows else ()
        passed = {t for call in self.calls.values() if call is not None for t in _passed_by_rows(call)}
        return {t: self.how_rows_lie(t) for t in sorted({*pushed, *passed})}

    def how_rows_lie(self, tensor: int) -> Storage:
        """Those of a view lie in the rows of its base."""
        found = self.graph.tensors[tensor]
        return self.storage[found.base].moved(found.offset_bytes)

    @property
    def offset_bytes(self) -> int:
        """Of a number in tables of rows."""
        largest = max((use.used_bytes for use in self.pools.uses), default=self.arena_bytes)
        return 2 if largest < 1 << 16 else 4

    @cached_property
    def in_pieces(self) -> Mapping[int, tuple[Piece, ...]]:
        """Tensor -> the pieces of its table, for those that they make shorter; none where all is short already."""
        tables = {t: storage.table for t, storage in self.by_rows.items() if self.visits and storage.table}
        return shorter_tables(tables, self.offset_bytes)

    @cached_property
    def calls(self) -> Mapping[int, CCall | None]:
        """Op -> its call, None where nothing moves. Raises ModelError that lists what cannot be called."""
        if self.refused_ops or self.refused_tensors:
            raise ModelError(
                f"the C backend cannot run {self.refusal}. Change these layers, or plan the model for TensorFlow Lite "
                "Micro: `diagmem emit tflm`"
            )
        return {op: call for op, call in self._calls_or_reasons.items() if not isinstance(call, str)}

    @property
    def refusal(self) -> str:
        """What cannot be run, in a line: `2 of 10 ops: …`."""
        ops, tensors = self.refused_ops, self.refused_tensors
        count = f"{len(ops)} of {len(self.nodes)} ops: " if ops else "the model: "
        reasons = [*ops.values(), *tensors]
        more = len(reasons) - MOST_REASONS
        return count + "; ".join(reasons[:MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")

    @cached_property
    def refused_ops(self) -> Mapping[int, str]:
        """Ops that no kernel runs, each with the reason."""
        return {op: reason for op, reason in self._calls_or_reasons.items() if isinstance(reason, str)}

    @cached_property
    def refused_tensors(self) -> Sequence[str]:
        """Reasons that lie in tensors."""
        graph = self.graph
        given, made = ([graph.tensors[t] for t in tensors] for tensors in (graph.inputs, graph.outputs))
        found = [f"the graph output '{t.label}' is a constant" for t in made if t.is_constant]
        odd = [t for t in (*given, *made) if t.dtype not in C_TYPES]
        return found + [f"'{t.label}' has {t.dtype.value} elements, for which C has no type" for t in odd]

    @cached_property
    def _calls_or_reasons(self) -> Mapping[int, CCall | str | None]:
        return {node.op.index: self._call_or_reason(node) for node in self.nodes}

    def _call_or_reason(self, node: Node) -> CCall | str | None:
        try:
            return None if stays(self.offsets, node) else self._call(node)
        except Unsupported as reason:
            return f"{node.label}: {reason}"

    @cached_property
    def _shared_by_rows(self) -> frozenset[int]:
        """Ops that run whole, but on several cores, which call the kernel for one row."""
        splits = () if self.multicore is None else self.multicore.splits
        return frozenset(split.op for split in splits if split.cut.along is Along.ROWS)

    def _call(self, node: Node) -> CCall:
        by_rows = node.op.index in self.visits or node.op.index in self._shared_by_rows
        call = self.library.row_call(node) if by_rows else self.library.call(node)
        for tensor in call.tensors:
            if tensor.is_constant:
                values_of(tensor)
        return call


def _passed_by_rows(call: CCall) -> Iterator[int]:
    """The tensors of which a call gets rows."""
    for argument in call.arguments:
        for one in argument.tensors if isinstance(argument, CPointers) else (argument,):
            if isinstance(one, CRow | CRows):
                yield one.tensor.index
