"""What a plan costs: RAM, flash and work, in sum and layer by layer.

For our own kernels these are those of the emitted C: weights as they are stored, after removal, for these kernels. For
TensorFlow Lite Micro the whole file lies in flash, and the runtime keeps something of its own in RAM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from diagmem.backends.c.program import Program
from diagmem.backends.c.steps import sequence_bytes
from diagmem.backends.c.tables import Tables
from diagmem.costs.code import code_of
from diagmem.kernels.rows import row_graph
from diagmem.model.graph import DType, Graph, Node
from diagmem.model.schedule import PUSH
from diagmem.ops import kind_of
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.plan import Plan
from diagmem.planning.planner import Planned
from diagmem.targets import Chip, Core

PLAIN_C = "plain C"
"""What runs an op for which a library has no kernel with special instructions."""


@dataclass(frozen=True, slots=True)
class Ram:
    """`stack_bytes`: at most. `static_bytes`: variables beside the arena, or what a runtime keeps for itself."""

    arena_bytes: int
    stack_bytes: int | None = None
    static_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """Of what is known."""
        return self.arena_bytes + (self.stack_bytes or 0) + (self.static_bytes or 0)


@dataclass(frozen=True, slots=True)
class Flash:
    """`weights_bytes`: constants as they are stored; None where the model came without its weights. `tables_bytes`:
    steps and places of rows, for a run row by row."""

    weights_bytes: int | None
    tables_bytes: int | None = None
    code_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """Of what is known."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """What there is, by name."""
        found = {"weights": self.weights_bytes, "tables": self.tables_bytes, "code": self.code_bytes}
        return {name: size for name, size in found.items() if size}


@dataclass(frozen=True, slots=True)
class Cost:
    """What is not known is None. `macs`: multiply-accumulates as run, those of recomputed rows included. `notes`: what
    is not counted."""

    target: str | None
    core: str | None
    kernels: str
    ram: Ram
    flash: Flash
    macs: int
    instructions: int | None = None
    cycles: int | None = None
    flash_wait_cycles: int | None = None
    ms: float | None = None
    uj: float | None = None
    error_percent: float | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As it stands under `cost` in every JSON."""
        told = asdict(self)
        for part in ("ram", "flash"):
            told[part]["total_bytes"] = getattr(self, part).total_bytes
        return {key: value for key, value in told.items() if key not in ("kernels", "notes")}


@dataclass(frozen=True, slots=True)
class Layer:
    """A line in a table of layers. `index`: the op's in the model's file. `macs`: as run. `weights_bytes`: as they are
    stored; of a table that several ops use, with the first of them. `live_bytes`: the most that must be held while it
    runs. `share`: of all instructions or, where these were not counted, of all multiply-accumulates."""

    index: int
    kind: str
    name: str
    shape: tuple[int, ...]
    macs: int
    weights_bytes: int | None
    live_bytes: int
    instructions: int | None
    share: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What TensorFlow Lite Micro takes beside the arena: the file in flash and, where it was measured, what it keeps in
    RAM. `notes`: what is not counted."""

    file_bytes: int
    kept_bytes: int | None = None
    notes: tuple[str, ...] = ()


Subject = Planned | Plan


@dataclass(frozen=True)
class Costs:
    """A plan whose costs are asked for, on one core or several: what they share is worked out once. `model`: the graph
    as its file has it. `runtime`: for kernels that are not ours."""

    plan: Plan
    model: Graph | None = None
    runtime: Runtime | None = None

    @classmethod
    def of(cls, made: Subject, runtime: Runtime | None = None) -> Costs:
        return cls(made.plan, made.model, runtime) if isinstance(made, Planned) else cls(made, None, runtime)

    def on(
        self,
        target: Chip | None = None,
        core: Core | None = None,
        instructions: int | None = None,
    ) -> Cost:
        """The sums. Code and stack are known only for a core."""
        core = target.core if target is not None else core
        ram, flash = Ram(self.plan.arena_bytes), Flash(self._file_weights_bytes)
        notes: tuple[str, ...] = ()
        if self.runtime is not None:
            ram, flash = replace(ram, static_bytes=self.runtime.kept_bytes), Flash(self.runtime.file_bytes)
            notes = self.runtime.notes
        elif self.program is None:
            notes = ("the code of kernels, which is not known",)
        else:
            code = None if core is None else code_of(self.program, core)
            ram = Ram(self.plan.arena_bytes, code and code.stack_bytes, 0)
            flash = Flash(self.tables.size_bytes, self.tables_bytes, code and code.code_bytes)
            if core is not None and not core.has_fpu and self._has_reals:
                notes = (f"the C library's float32 routines, for {core.name} has no floating-point unit",)
        return Cost(
            None if target is None else target.name,
            None if core is None else core.key,
            self.plan.options.kernels,
            ram,
            flash,
            sum(self.macs.values()),
            instructions,
            notes=notes,
        )

    @cached_property
    def program(self) -> Program | None:
        """The plan as C; None where there is none."""
        options = self.plan.options
        if not options.library.is_own or options.external_io:
            return None
        found = Program.running(replace(self.plan, pools=self.plan.pools.enlarged), self.model)
        return None if found.refused_ops or found.refused_tensors else found

    @cached_property
    def tables(self) -> Tables:
        if self.program is None:
            raise ValueError("there is no C of this plan")
        return Tables(self.program, "model")

    @cached_property
    def tables_bytes(self) -> int:
        return sequence_bytes(self.program) if self.program is not None and self.program.visits else 0

    @property
    def _file_weights_bytes(self) -> int | None:
        """Constants as the plan's graph has them; None where their values are missing."""
        constants = [tensor for tensor in self.plan.graph.tensors if tensor.is_constant]
        if any(tensor.data is None for tensor in constants):
            return None
        return sum(tensor.size_bytes for tensor in constants)

    @property
    def _has_reals(self) -> bool:
        return any(tensor.dtype is DType.FLOAT32 for node in self.plan.graph.nodes for tensor in node.outputs)

    @cached_property
    def macs(self) -> Mapping[int, int]:
        """Op -> its multiply-accumulates; rows that are made again count each time."""
        graph, visits = self.plan.graph, Counter(s.op for s in self.plan.schedule.steps if s.turn is not None)
        rows = row_graph(graph, self.plan.options.library).ops if visits else ()
        whole = {node.op.index: _macs(node) for node in graph.nodes}
        return {op: macs * visits[op] // rows[op].turns if op in visits else macs for op, macs in whole.items()}

    @cached_property
    def live(self) -> Mapping[int, int]:
        """Op -> the most that must be held while it runs."""
        plan = self.plan
        # A plan that was read says where things lie, and not what no placement can do without.
        pressure = plan.pressure or build_problem(footprint(plan.graph, plan.options), plan.schedule).pressure
        found: dict[int, int] = {}
        for op, held in zip(plan.schedule.ops, pressure, strict=True):
            if op != PUSH:
                found[op] = max(found.get(op, 0), held)
        return found

    def layers(self, instructions: Mapping[int, int] | None = None) -> tuple[Layer, ...]:
        """One for each op, in the order of their first steps. `instructions`: those of each op, by its index in the
        file."""
        counted = instructions or {}
        weights = self._weights_by_op
        whole = max(1, sum(counted.values()) or sum(self.macs.values()))
        found = []
        for op in self.live:
            node = self.plan.graph.nodes[op]
            spent = counted.get(node.op.number)
            share = (self.macs[op] if not counted else spent or 0) / whole
            made = node.outputs[0] if node.outputs else None
            found.append(
                Layer(
                    node.op.number,
                    node.op.kind,
                    made.name if made else "",
                    tuple(made.shape) if made else (),
                    self.macs[op],
                    None if weights is None else weights.get(op, 0),
                    self.live[op],
                    spent,
                    share,
                )
            )
        return tuple(found)

    @property
    def _weights_by_op(self) -> Mapping[int, int] | None:
        """Op -> bytes of the constants that it is the first to use; None where their values are missing."""
        if self.runtime is None and self.program is not None:
            return self.tables.bytes_by_op
        if self._file_weights_bytes is None:
            return None
        seen, found = set[int](), dict[int, int]()
        for node in self.plan.graph.nodes:
            used = {t.index: t.size_bytes for t in node.inputs if t is not None and t.is_constant}
            found[node.op.index] = sum(size for index, size in used.items() if index not in seen)
            seen |= used.keys()
        return found

    @cached_property
    def kernel_shares(self) -> Mapping[str, float]:
        """Which kernels do which share of the multiply-accumulates (of the ops, where there are none), most first."""
        library, work = self.plan.options.library, Counter[str]()
        total = sum(self.macs.values())
        for node in self.plan.graph.nodes:
            name = library.name if not library.is_own else PLAIN_C
            if library.instructions is not None and library.variant(node) is not None:
                name = library.instructions.value
            work[name] += self.macs[node.op.index] if total else 1
        return {name: done / max(1, work.total()) for name, done in work.most_common() if done}


def cost_of(
    made: Subject, target: Chip | None = None, core: Core | None = None, instructions: int | None = None
) -> Cost:
    """What a plan costs on a chip, a bare core, or anywhere."""
    return Costs.of(made).on(target, core, instructions)


def layers(made: Subject, instructions: Mapping[int, int] | None = None) -> tuple[Layer, ...]:
    """A table of a plan's layers."""
    return Costs.of(made).layers(instructions)


def kernel_shares(made: Subject) -> Mapping[str, float]:
    """How much of a plan's work runs on which kernels: `dsp`, `mve` or `plain C`."""
    return Costs.of(made).kernel_shares


def _macs(node: Node) -> int:
    kind = kind_of(node.op.kind)
    return 0 if kind is None else kind.macs(node)
