"""The plan: in what order a graph runs, and where every tensor lies; and what it saves beside other plans.

No plan leaves the planner, or is used, unless the validator has replayed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from diagmem.model.errors import UnsafePlanError
from diagmem.model.graph import Graph, Tensor
from diagmem.model.pools import NO_POOLS, PoolLayout, WeightsTraffic
from diagmem.model.schedule import Multicore, Schedule
from diagmem.planning.bounds import tensor_buffers
from diagmem.planning.needs.problem import Buffer, Gap, Problem
from diagmem.planning.options import BEST, Options
from diagmem.transforms import Removal
from diagmem.transforms.asked import next_frame_name
from diagmem.validation import Finding, Pool, Rules, replay

Form = Literal["linear", "ring", "table"]


@dataclass(frozen=True)
class Storage:
    """Row r lies at `table[r]` or, where there is no table, at `base + r % period * pitch`, in bytes."""

    height: int
    base: int
    period: int
    pitch: int
    table: tuple[int, ...] | None = None

    @classmethod
    def linear(cls, base: int, height: int, row_bytes: int) -> Storage:
        """All rows in one piece."""
        return cls(height, base, height, row_bytes if height > 1 else 0)

    @classmethod
    def of(cls, offsets: Sequence[int]) -> Storage:
        """The form that needs least: no table where a rule says where all rows lie."""
        for period in range(1, len(offsets) + 1):
            pitch = offsets[1] - offsets[0] if period > 1 else 0
            if all(offset == offsets[0] + row % period * pitch for row, offset in enumerate(offsets)):
                return cls(len(offsets), offsets[0], period, pitch)
        return cls(len(offsets), 0, 1, 0, tuple(offsets))

    def moved(self, offset: int) -> Storage:
        """All rows so many bytes further on."""
        if not offset:
            return self
        if self.table is not None:
            return replace(self, table=tuple(at + offset for at in self.table))
        return replace(self, base=self.base + offset)

    @property
    def form(self) -> Form:
        if self.table is not None:
            return "table"
        return "linear" if self.period == self.height else "ring"

    def is_in_one_piece(self, row_bytes: int) -> bool:
        """Whether rows of so many bytes follow each other without a gap. A rule may as well leave gaps, or go down."""
        return self.form == "linear" and (self.height == 1 or self.pitch == row_bytes)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The offset of each row."""
        if self.table is not None:
            return self.table
        return tuple(self.base + row % self.period * self.pitch for row in range(self.height))


@dataclass(frozen=True, slots=True)
class UsedOverlap:
    """An input and an output of an op that share `size_bytes` addresses."""

    op: int
    input: int
    output: int
    size_bytes: int


@dataclass(frozen=True)
class Plan:
    """How a graph runs with one kernel library, and in which bytes.

    `graph` is what runs: the model's own, or what transforms have made of it. `storage`: how each tensor lies in the
    arena; a view lies in its base. `scratch`: op -> what it needs beside its tensors, the kernel's scratch or the sums
    that it keeps between its turns; PUSH -> the state of a run that waits for the caller's next row. The arena's size
    is a multiple of the alignment, as is every offset.

    `lower_bound_bytes`: no plan of this graph with these options is smaller; over all orders of its ops if
    `is_over_all_orders` (schedules `best` and `search`), else over all placements for this order. `recompute`:
    multiply-accumulates, as a multiple of those of a run that computes everything once.

    `buffers` are what was placed, at `buffer_offsets`, with their lives; `pressure` is a lower bound for any placement
    at each step. Both are for people who look at a plan, and empty where nobody knows them.

    `pools`: which addresses lie in which memory, where there are several; the arena is then all of them together.
    `multicore`: how several cores share the run, where that was asked for. `weight_copies`: op -> where its weights are
    copied to before it first runs, a step earlier if `copies_ahead`; `weights`: what that saves, where somebody knows.
    """

    graph: Graph
    options: Options
    schedule: Schedule
    storage: Mapping[int, Storage]
    scratch: Mapping[int, int]
    arena_bytes: int
    lower_bound_bytes: int
    is_over_all_orders: bool = False
    recompute: float = 1.0
    buffers: tuple[Buffer, ...] = ()
    buffer_offsets: tuple[int, ...] = ()
    pressure: tuple[int, ...] = ()
    pools: PoolLayout = NO_POOLS
    multicore: Multicore | None = None
    weight_copies: Mapping[int, int] = field(default_factory=dict)
    weights: WeightsTraffic | None = None
    copies_ahead: bool = False

    @classmethod
    def of(
        cls, graph: Graph, options: Options, schedule: Schedule, problem: Problem, offsets: Sequence[int], **more: Any
    ) -> Plan:
        """The plan whose buffers, those of a problem, start at these offsets. `more`: other fields."""
        known = {"arena_bytes": problem.arena_bytes(offsets), "lower_bound_bytes": problem.lower_bound_bytes, **more}
        empty = cls(graph, options, schedule, {}, {}, pressure=problem.pressure, **known)
        return empty.with_buffers(problem.buffers, offsets)

    def with_buffers(self, buffers: Sequence[Buffer], offsets: Sequence[int], **more: Any) -> Plan:
        """The plan with these buffers at these offsets. `more`: other fields that change."""
        placed = list(zip(buffers, offsets, strict=True))
        return replace(
            self,
            storage=stored(self.graph, buffers, offsets),
            scratch={buffer.scratch_of: at for buffer, at in placed if buffer.scratch_of is not None},
            weight_copies={buffer.weights_of: at for buffer, at in placed if buffer.weights_of is not None},
            buffers=tuple(buffers),
            buffer_offsets=tuple(offsets),
            **more,
        )

    def __repr__(self) -> str:
        proof = "proven" if self.optimal else f"lower bound {self.lower_bound_bytes}"
        return f"<Plan of {self.graph.name}: {self.arena_bytes} bytes in {len(self.schedule.steps)} steps, {proof}>"

    @property
    def optimal(self) -> bool:
        """Proven: no plan of this graph (or, with a schedule that was asked for, of this order) is smaller. Several
        pools may take more than one would: then it is said of that one."""
        return self.gap.is_closed

    @property
    def gap(self) -> Gap:
        """How far it may be from the best."""
        return Gap(self.pools.single_bytes or self.arena_bytes, self.lower_bound_bytes)

    @property
    def proof_text(self) -> str:
        """How far it may be from the best, in words."""
        return f"{self.gap.words} {'over all orders' if self.is_over_all_orders else 'for this order'}"

    @property
    def end_bytes(self) -> int:
        """All addresses are below: the arena's, and those of tensors that the caller holds, which lie behind it."""
        return self.pools.end or self.arena_bytes

    @property
    def state_bytes(self) -> int:
        """Of the arena: what lives from run to run."""
        return sum(tensor.size_bytes for tensor in self.graph.variables if tensor.base in self.storage)

    @property
    def next_frames_bytes(self) -> int:
        """Of the arena: what holds the next frames of inputs, beside which nothing else may lie there."""
        names = {next_frame_name(name) for name in self.options.double_buffer}
        return sum(tensor.size_bytes for tensor in self.graph.tensors if tensor.name in names)

    @property
    def is_bounded(self) -> bool:
        """Whether the search ended because its effort was spent, and not with a proof."""
        return not self.optimal and self.options.allocator in (BEST, "optimal")

    @cached_property
    def offsets(self) -> Mapping[int, int]:
        """Tensor -> offset of its first element, for the tensors in the arena that lie in one piece, and their
        views."""
        return offsets_in_one_piece(self.graph, self.storage)

    @cached_property
    def row_offsets(self) -> Mapping[int, tuple[int, ...]]:
        """Tensor -> offset of each of its rows, for the tensors in the arena that are no views."""
        return {tensor: storage.offsets for tensor, storage in self.storage.items()}

    @property
    def runs_by_rows(self) -> bool:
        """Whether ops run a row at a time."""
        return self.schedule.has_turns

    @property
    def input_rows(self) -> bool:
        """Whether the caller hands the input over a row at a time."""
        return self.schedule.is_streamed

    @cached_property
    def places(self) -> tuple[tuple[Buffer, int], ...]:
        """Each tensor in the arena, or row of one, as a buffer of its own with its offset; by tensor and row."""
        steps, tensors = len(self.schedule.steps), self.graph.tensors
        if not self.runs_by_rows:
            kept = self.graph.inputs if self.options.keep_inputs else ()
            whole = tensor_buffers(self.graph, self.schedule.ops)
            whole.update({t: replace(whole[t], end_step=steps) for t in kept if t in whole})
            return tuple((whole[t], self.offsets[t]) for t in sorted(self.offsets) if t in whole)
        found = []
        for buffer, offset in zip(self.buffers, self.buffer_offsets, strict=True):
            for tensor in (tensors[index] for index in buffer.tensors):
                size = tensor.size_bytes if buffer.rows is None else tensor.row_bytes * len(buffer.rows)
                own = replace(buffer, size_bytes=size, first_step=max(0, buffer.first_step), tensors=(tensor.index,))
                found.append((own, offset + tensor.offset_bytes))
        return tuple(
            sorted(found, key=lambda placed: (placed[0].tensors, placed[0].rows.start if placed[0].rows else 0))
        )

    @cached_property
    def overlaps(self) -> tuple[UsedOverlap, ...]:
        """Every op whose input and output lie in one piece and share addresses, reshapes that stay in place
        included."""
        return tuple(self._overlaps())

    def _overlaps(self) -> Iterator[UsedOverlap]:
        for node in self.graph.nodes:
            inputs = {t.index: t for _, t in node.activations() if t.index in self.offsets}
            for output in node.outputs:
                for tensor in inputs.values():
                    shared = self._shared_bytes(tensor, output) if output.index in self.offsets else 0
                    if shared > 0:
                        yield UsedOverlap(node.op.index, tensor.index, output.index, shared)

    def _shared_bytes(self, a: Tensor, b: Tensor) -> int:
        """Of the stretches that they reach over; views of one tensor lie between each other."""
        if a.base == b.base:
            return 0
        start_a, start_b = self.offsets[a.index], self.offsets[b.index]
        return min(start_a + a.span_bytes, start_b + b.span_bytes) - max(start_a, start_b)

    @property
    def peak_step(self) -> int | None:
        """The step that sets the peak: the first that needs most, whatever the placement."""
        return self.pressure.index(max(self.pressure)) if self.pressure else None

    @property
    def peak_op(self) -> int | None:
        return None if self.peak_step is None else self.schedule.ops[self.peak_step]

    @property
    def peak_buffers(self) -> tuple[Buffer, ...]:
        """What lives at the peak, largest first."""
        return tuple(sorted((b for b in self.buffers if self.peak_step in b.steps), key=lambda b: -b.size_bytes))


def offsets_in_one_piece(graph: Graph, storage: Mapping[int, Storage]) -> dict[int, int]:
    """Tensor -> offset of its first element, for the tensors that lie in one piece, and those of their views that an
    op or the caller touches."""
    found = {t: how.base for t, how in storage.items() if how.is_in_one_piece(graph.tensors[t].row_bytes)}
    touched = {*graph.producer, *graph.consumers, *graph.inputs}
    for base, family in graph.families.items():
        views = (graph.tensors[t] for t in family if t != base and t in touched)
        found.update({t.index: found[base] + t.offset_bytes for t in views if base in found})
    return found


def stored(graph: Graph, buffers: Sequence[Buffer], offsets: Sequence[int]) -> dict[int, Storage]:
    """How tensors lie whose buffers are placed like this: in one piece, or row by row by a rule, or by a table."""
    found: dict[int, Storage] = {}
    tables: dict[int, dict[int, int]] = {}
    for buffer, offset in zip(buffers, offsets, strict=True):
        for index in buffer.tensors:
            tensor = graph.tensors[index]
            if buffer.rows is not None:
                tables.setdefault(index, {})[buffer.rows.start] = offset
            elif tensor.view is None:
                found[index] = Storage.linear(offset, tensor.rows, tensor.row_bytes)
    found.update({index: Storage.of([at for _, at in sorted(table.items())]) for index, table in tables.items()})
    return dict(sorted(found.items()))


class Rung(NamedTuple):
    """A step from whole tensors towards a plan, and what the arena takes with it and all before it."""

    step: str
    arena_bytes: int


@dataclass(frozen=True)
class Planned:
    """A plan, and how it compares with other plans of the same model.

    `baseline` is the best plan of the model without any overlap, in its file's order. `removals`: what made the plan's
    graph from the model's. `first_rungs` and `last_rungs` make the ladder; the first ones are worked out when they are
    asked for. `untried`: what the schedule `auto` left out, and the option that tries it. `not_streamed`: why the input
    is whole, though it was to be streamed.
    """

    plan: Plan
    baseline: Plan
    removals: tuple[Removal, ...] = ()
    first_rungs: Callable[[], tuple[Rung, ...]] = field(default=tuple, compare=False)
    last_rungs: tuple[Rung, ...] = ()
    untried: str = ""
    not_streamed: str = ""

    def __repr__(self) -> str:
        return f"{repr(self.plan)[:-1]}, {self.baseline_bytes} without overlap>"

    @cached_property
    def ladder(self) -> tuple[Rung, ...]:
        """The arena after each optimisation, from whole tensors to this plan."""
        return (*self.first_rungs(), *self.last_rungs)

    @property
    def model(self) -> Graph:
        """The graph as its file has it."""
        return self.baseline.graph

    @property
    def baseline_bytes(self) -> int:
        return self.baseline.arena_bytes

    @property
    def arena_bytes(self) -> int:
        return self.plan.arena_bytes

    @property
    def lower_bound_bytes(self) -> int:
        return self.plan.lower_bound_bytes

    @property
    def optimal(self) -> bool:
        """Proven: see Plan.optimal."""
        return self.plan.optimal

    @property
    def saved_bytes(self) -> int:
        return self.baseline_bytes - self.plan.arena_bytes


def findings_of(plan: Plan) -> list[Finding]:
    """What is wrong with a plan: nothing, if it is safe."""
    options = plan.options
    pools = tuple(Pool(u.pool.name, u.start, u.end, u.pool.capacity_bytes) for u in plan.pools.uses)
    rules = Rules(
        options.align_bytes,
        options.keep_inputs,
        options.external_io,
        plan.recompute,
        pools,
        options.input_align or 1,
        plan.multicore,
        plan.weight_copies,
        plan.copies_ahead,
    )
    places = plan.schedule, plan.row_offsets, plan.scratch, plan.end_bytes
    return replay(plan.graph, options.library, *places, rules)


def checked(plan: Plan, advice: str = "") -> Plan:
    """The plan, if it is safe; else UnsafePlanError."""
    findings = findings_of(plan)
    if findings:
        more = f" (and {len(findings) - 1} more: see `check`)" if len(findings) > 1 else ""
        raise UnsafePlanError(f"{plan.graph.name}: the plan is not safe: {findings[0]}{more}{advice}")
    return plan
