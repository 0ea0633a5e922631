"""What C code is made from: a graph, the order in which it runs, where its tensors lie, and a call for each op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from diagmem.errors import ModelError, PlanError
from diagmem.graph import Graph, Node, Tensor
from diagmem.kernels import LIBRARIES, Library, library
from diagmem.ops import CCall, CScratch, Unsupported, kind_of
from diagmem.plans import Plan
from diagmem.removal import without_again


@dataclass(frozen=True, slots=True)
class Written:
    """What a step of a program has written: a tensor at an offset, or one row of it. Steps count from 0."""

    step: int
    node: Node
    tensor: Tensor
    offset: int
    row: int | None = None

    @property
    def size_bytes(self) -> int:
        """From its first element to its last."""
        return self.tensor.span_bytes if self.row is None else self.tensor.row_bytes


@dataclass(frozen=True)
class Program:
    """`offsets`: tensor -> its place in the arena. `lower_bound_bytes`: None where nobody has proven one. `source`: the
    model's own graph, where ops were removed from it. `kernels`: the name of the library that runs it. `scratch`: op ->
    where its kernel's scratch lies."""

    graph: Graph
    order: tuple[int, ...]
    offsets: Mapping[int, int]
    arena_bytes: int
    lower_bound_bytes: int | None
    source: Graph | None = None
    kernels: str = "diagmem"
    scratch: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> Program:
        _require_own(plan.options.kernels)
        if plan.options.external_io:
            raise PlanError("C code keeps graph inputs and outputs in the arena: plan again without --external-io")
        if plan.runs_by_rows:
            from diagmem.backends.c.row_program import RowProgram

            return RowProgram.of_rows(plan)
        places = plan.offsets, plan.arena_bytes, plan.lower_bound_bytes
        return cls(plan.graph, plan.schedule.ops, *places, plan.source, plan.options.kernels, plan.scratch_offsets)

    @classmethod
    def from_json(cls, graph: Graph, plan: Mapping[str, Any]) -> Program:
        """From what `diagmem plan --json` writes. Sizes are checked, safety is not: that is what running it is for."""
        try:
            _require_own(str(plan["kernels"]))
            removed = [(row["transform"], tuple(map(int, row["ops"]))) for row in plan.get("removed", [])]
            program = cls._placed(without_again(graph, removed), graph, plan)
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError("the plan is damaged; write one with `diagmem plan --json`") from error
        program.check()
        return program

    @classmethod
    def _placed(cls, graph: Graph, source: Graph, plan: Mapping[str, Any]) -> Program:
        """`graph`: that of `source` without what the plan removes."""
        if "rows" in plan:
            from diagmem.backends.c.row_program import RowProgram

            return RowProgram.rows_from_json(graph, source, plan)
        offsets = {int(row["index"]): int(row["offset"]) for row in plan["tensors"]}
        index_of = {op.number: op.index for op in graph.ops}
        order = tuple(index_of[int(op)] for op in plan["schedule"])
        scratch = {index_of[int(row["op"])]: int(row["offset"]) for row in plan.get("scratch", [])}
        places = offsets, int(plan["arena_bytes"]), plan.get("lower_bound_bytes")
        return cls(graph, order, *places, source, str(plan["kernels"]), scratch)

    def check(self) -> None:
        """Raises PlanError unless every op runs once and every tensor lies inside the arena, aligned."""
        if sorted(self.order) != list(range(len(self.graph.ops))):
            raise PlanError("the plan does not run each op of the model once; is it another model's?")
        for tensor in self.tensors:
            offset = self.offsets.get(tensor.index)
            if offset is None:
                raise PlanError(f"the plan has no place for tensor {tensor.index} '{tensor.label}'")
            if offset < 0 or offset + tensor.span_bytes > self.arena_bytes or offset % tensor.dtype.size_bytes:
                raise PlanError(f"tensor {tensor.index} '{tensor.label}' does not fit at offset {offset} of the arena")
        self.check_scratch(self.scratch)

    def check_scratch(self, scratch: Mapping[int, int]) -> None:
        """Raises PlanError unless the scratch of every kernel that needs any lies inside the arena, aligned."""
        for node in self.nodes:
            size, offset = self.library.scratch_bytes(node), scratch.get(node.op.index, -1)
            if size and (offset < 0 or offset + size > self.arena_bytes or offset % self.library.scratch_align_bytes):
                raise PlanError(f"{node.label}: its kernel needs {size} bytes of scratch, and the plan has no place")

    @property
    def model(self) -> Graph:
        """The graph as the file has it."""
        return self.graph if self.source is None else self.source

    @property
    def library(self) -> Library:
        return library(self.kernels)

    @property
    def input_rows(self) -> bool:
        """Whether the caller hands the input over a row at a time."""
        return False

    def written(self) -> Iterator[Written]:
        """What the steps write, in their order."""
        for step, node in enumerate(self.nodes):
            yield from (Written(step, node, tensor, self.offsets[tensor.index]) for tensor in node.outputs)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The operations in the order in which they run."""
        return tuple(self.graph.nodes[op] for op in self.order)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that must lie in the arena."""
        used = {*self.graph.inputs, *self.graph.outputs}
        used |= {t.index for node in self.nodes for t in (*node.inputs, *node.outputs) if t is not None}
        return tuple(t for t in self.graph.tensors if t.index in used and not t.is_constant)

    @property
    def align_bytes(self) -> int:
        """What the arena's start must be a multiple of."""
        sizes = [t.dtype.size_bytes for t in self.tensors]
        return max([1, *sizes, *([self.library.scratch_align_bytes] if self.has_scratch else [])])

    @cached_property
    def has_scratch(self) -> bool:
        """Whether a kernel takes scratch from the arena."""
        return any(isinstance(a, CScratch) for call in self.calls.values() if call for a in call.arguments)

    @cached_property
    def calls(self) -> Mapping[int, CCall | None]:
        """Op -> its call, None where nothing moves. Raises ModelError that lists every op that cannot be called."""
        found = {node.op.index: self._call_or_reason(node) for node in self.nodes}
        refused = [*self._refused_tensors(), *(reason for reason in found.values() if isinstance(reason, str))]
        if refused:
            raise ModelError(
                f"the C backend cannot run {len(refused)} of {len(self.nodes)} ops: {'; '.join(refused)}. Change these "
                "layers, or plan the model for TensorFlow Lite Micro: `diagmem emit tflm`"
            )
        return {op: call for op, call in found.items() if not isinstance(call, str)}

    def _call_or_reason(self, node: Node) -> CCall | str | None:
        try:
            return None if self._stays(node) else self._call(node)
        except Unsupported as reason:
            return f"{node.label}: {reason}"

    def _refused_tensors(self) -> Sequence[str]:
        variables = [f"tensor {t.index} '{t.label}' is a variable" for t in self.tensors if t.is_variable]
        outputs = (self.graph.tensors[t] for t in self.graph.outputs)
        return [*variables, *(f"the graph output '{t.label}' is a constant" for t in outputs if t.is_constant)]

    def _stays(self, node: Node) -> bool:
        """Whether the op's output is its input, where it lies already."""
        kind = kind_of(node.op.kind)
        if kind is None or not kind.is_alias or node.input(0).is_constant:
            return False
        return self.offsets[node.input(0).index] == self.offsets[node.output.index]

    def _call(self, node: Node) -> CCall:
        return self.library.call(node)


def _require_own(kernels: str) -> None:
    own = [name for name, known in LIBRARIES.items() if known.is_own]
    if not library(kernels).is_own:
        raise PlanError(
            f"the plan is made for the kernels '{kernels}', C code needs one for our own: plan again with --kernels "
            f"{' or '.join(own)}"
        )
