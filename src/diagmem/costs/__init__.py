"""What a plan costs on a core: the only source for RAM, flash, work and time, in total and per layer.

For our own kernels these are those of the emitted C: weights as they are stored, after removal, for these kernels. For
TensorFlow Lite Micro the whole file lies in flash, and the runtime keeps something of its own in RAM.

Code and stack of the C are estimated from what each kernel was measured to take. It was compiled alone with -O2 by GCC
(`tools/measure-kernels`), so a firmware, in which kernels share functions, takes somewhat less as a rule. On a
Cortex-M4 the code of ten models was estimated a fifth too low to two thirds too high; elsewhere
up to twice as large as it is, or two fifths too low where soft-float routines come on top.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, NamedTuple

from diagmem.backends.c.program import Program
from diagmem.backends.c.steps import sequence_bytes
from diagmem.backends.c.tables import Tables
from diagmem.backends.json import to_json
from diagmem.costs.cycles import Clock, Run, Spent, estimated, runs_of
from diagmem.kernels.work import float_text, kernel_shares, macs_as_run
from diagmem.model.graph import DType, Graph
from diagmem.model.schedule import PUSH
from diagmem.ops.c_call import MAX_ROWS, MAX_TAPS
from diagmem.ops.numerics.quantised import rounds_to_even
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.plan import Plan
from diagmem.planning.planner import Planned
from diagmem.targets import RESERVE_BYTES, Chip, Core, core_named

CALL_BYTES = 24
"""Instructions that load the arguments of a kernel and call it, or copy a table and say where it lies."""

STACK_BYTES = 32
"""What the call of a run itself takes of the stack: its registers, and what aligns them."""

ROWS_BYTES = 900
"""Instructions that go through the steps of a run row by row."""

ROWS_STACK_BYTES = 64
"""What the function that runs a step row by row takes of the stack."""

MEASURED_AS = {"": "cortex-m4", "cortex-m7": "cortex-m4", "cortex-m33": "cortex-m4"}
"""Cores that no code was compiled for -> the nearest one for which it was; `cortex-m4-soft-float` for those of Thumb-2
without an FPU."""


class Code(NamedTuple):
    """`code_bytes`: kernels as measured; functions that several of them use count once. `stack_bytes`: at most, if the
    compiler inlines all kernels into the function that calls them, below which one of the C library's runs."""

    code_bytes: int
    stack_bytes: int


def code_of(programs: Sequence[Program], core: Core) -> Code:
    """What programs take on a core that share their kernels and run one at a time."""
    compiled_for = MEASURED_AS.get(core.cpu, core.cpu)
    if core.cpu in ("cortex-m3", "cortex-m4") and not core.has_fpu:
        compiled_for = "cortex-m4-soft-float"
    sizes = {source: cores[compiled_for] for source, cores in code_sizes()["kernels"].items()}
    # A kernel that was not measured counts as the largest that was.
    largest = max(sizes.values(), key=lambda size: size["code_bytes"])
    calls = [call for program in programs for call in program.calls.values() if call is not None]
    rounded_once = any(rounds_to_even(t) for program in programs for t in program.graph.tensors)
    sources = {call.source for call in calls}
    kernels = [sizes.get(f"{source}/once" if rounded_once else "", sizes.get(source, largest)) for source in sources]
    shared = {function for kernel in kernels for function in kernel["uses"]}
    code = sum(kernel["code_bytes"] for kernel in kernels)
    code += sum(code_sizes()["shared"][compiled_for][function] for function in shared)
    code += sum(sizes.get(call.source, largest)["call_bytes"] + CALL_BYTES for call in calls)
    code += CALL_BYTES * sum(len(weights.parts) for program in programs for weights in program.copied_weights.values())
    code += ROWS_BYTES * sum(bool(program.visits) for program in programs)
    stack = STACK_BYTES + sum(kernel["stack_bytes"] for kernel in kernels)
    stack += max((kernel["library_stack_bytes"] for kernel in kernels), default=0)
    # Arrays that have a place for each row, or pixel, of the largest window of all.
    rows, taps = (max((call.limits.get(limit, 0) for call in calls), default=0) for limit in (MAX_ROWS, MAX_TAPS))
    stack += 4 * rows + taps * max((code_sizes()["tap_bytes"].get(call.source, 0) for call in calls), default=0)
    stack += ROWS_STACK_BYTES * any(program.visits for program in programs)
    return Code(code, stack)


@cache
def code_sizes() -> dict[str, Any]:
    """`kernels`: source -> core -> bytes, and the functions it uses (`/once`: with code for outputs that are rounded
    once); `shared`: core -> such a function -> bytes;
    `tap_bytes`: source -> what it has on the stack for each pixel of the largest window."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("code_sizes.json").read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True, slots=True)
class Ram:
    """`stack_bytes`: at most. `static_bytes`: variables beside the arena, or what a runtime keeps for itself."""

    arena_bytes: int
    stack_bytes: int | None = None
    static_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """Of what is known."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """What there is, by name."""
        found = {"arena": self.arena_bytes, "stack up to": self.stack_bytes, "static": self.static_bytes}
        return {name: size for name, size in found.items() if size}


@dataclass(frozen=True, slots=True)
class Flash:
    """`weights_bytes`: constants as they are stored; None where the model came without its weights. `tables_bytes`:
    steps and places of rows, for a run row by row."""

    weights_bytes: int | None
    tables_bytes: int | None = None
    code_bytes: int | None = None

    @property
    def total_bytes(self) -> int | None:
        """None where the weights are not known."""
        return None if self.weights_bytes is None else sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """What there is, by name."""
        found = {"weights": self.weights_bytes, "tables": self.tables_bytes, "code": self.code_bytes}
        return {name: size for name, size in found.items() if size}


@dataclass(frozen=True, slots=True)
class Cost:
    """What is not known is None. `shares`: of the work, by what does it (`dsp`, `mve`, `plain C`), most first. `macs`:
    multiply-accumulates as run, those of recomputed rows included. `notes`: what is not counted. `float32`: what of a
    quantised network runs in float32."""

    target: str | None
    core: str | None
    shares: Mapping[str, float]
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
    float32: str = ""

    @property
    def time_text(self) -> str:
        """`53.4 ms ± 4.6 %`, with the error that was found on that core; cycles where the clock is not known."""
        error = "(not validated)" if self.error_percent is None else f"± {self.error_percent:g} %"
        return f"{f'{self.cycles or 0:,} cycles' if self.ms is None else f'{ms_text(self.ms)} ms'} {error}"

    @property
    def cycles_text(self) -> str:
        """`6,407,566 cycles, 26 % waiting on flash`."""
        cycles = self.cycles or 0
        if self.flash_wait_cycles is not None:
            return f"{cycles:,} cycles, {100 * self.flash_wait_cycles / max(1, cycles):.0f} % waiting on flash"
        return f"{cycles:,} cycles{'' if self.target is None else ', without waits on flash'}"

    def to_json(self) -> dict[str, Any]:
        """As it stands under `cost` in every JSON."""
        told = asdict(self)
        for part in ("ram", "flash"):
            told[part]["total_bytes"] = getattr(self, part).total_bytes
        return {key: value for key, value in told.items() if key not in ("shares", "notes", "float32")}


def ms_text(ms: float) -> str:
    """With three digits that count."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


@dataclass(frozen=True, slots=True)
class Layer:
    """A line in a table of layers. `index`: the op's in the model's file. `macs`: as run. `weights_bytes`: as they are
    stored; of a table that several ops use, with the first of them. `live_bytes`: the most that must be held while it
    runs. `cycles`, `ms`: on what the plan was made for, None where they are not known. `share`: of all instructions, if
    these were counted, else of all cycles or, where these are not known, of all multiply-accumulates."""

    index: int
    kind: str
    name: str
    shape: tuple[int, ...]
    macs: int
    weights_bytes: int | None
    live_bytes: int
    instructions: int | None
    share: float
    cycles: int | None = None
    ms: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What TensorFlow Lite Micro takes beside the arena: the file in flash and, where it was measured, what it keeps in
    RAM. `notes`: what is not counted."""

    file_bytes: int
    kept_bytes: int | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of_tflm(cls, file_bytes: int, kept_bytes: int | None, why_not_measured: str = "") -> Runtime:
        unknown = [f"what TFLM keeps in RAM, which was not measured: {why_not_measured}"] if why_not_measured else []
        return cls(file_bytes, kept_bytes, ("TFLM's code, which depends on its build", *unknown))


@dataclass(frozen=True)
class Costs:
    """A plan whose costs are asked for, on one core or several: what they share is worked out once. `model`: the graph
    as its file has it. `runtime`: for kernels that are not ours. `emitted`: the plan as C, if it is there already."""

    plan: Plan
    model: Graph | None = None
    runtime: Runtime | None = None
    emitted: Program | None = None

    @classmethod
    def of(cls, made: Planned | Plan, runtime: Runtime | None = None) -> Costs:
        return cls(made.plan, made.model, runtime) if isinstance(made, Planned) else cls(made, None, runtime)

    def on(self, target: Chip | None = None, core: Core | None = None, instructions: int | None = None) -> Cost:
        """The sums, by default for what the plan was made for. Code and stack are known only for a core."""
        if target is None and core is None:
            target, core = self.plan.options.chip, self.plan.options.core
        return cost_together([self], self.plan.arena_bytes, target, core, instructions)

    def place(self, cpu: str) -> tuple[Chip | None, Core]:
        """The core that is called so: as the plan was made for it, if it was, else with an FPU if any has one."""
        asked, name = self.plan.options, cpu.removesuffix("x2")
        if asked.core is not None and asked.core.cpu == name:
            return asked.chip, asked.core
        return None, core_named(f"{name}f" if name == "cortex-m4" else name)

    @property
    def clock(self) -> Clock | None:
        """Of what the plan was made for."""
        return Clock.of(self.plan.options.chip, self.plan.options.core)

    def emulated_on(self, cpu: str, instructions: int | None = None) -> Cost:
        return self.on(*self.place(cpu), instructions)

    def spent(self, clock: Clock | None) -> Mapping[int, Spent] | None:
        """Op -> its cycles, estimated from tables; None where they are not known."""
        program = None if self.runtime is not None else self.program
        return None if program is None or clock is None else estimated(program, self._runs, clock)

    @cached_property
    def _runs(self) -> Sequence[Run]:
        return () if self.program is None else tuple(runs_of(self.program))

    @cached_property
    def program(self) -> Program | None:
        """The plan as C; None where there is none."""
        options = self.plan.options
        if self.emitted is not None:
            return self.emitted
        if not options.library.is_own or options.external_io:
            return None
        found = Program.running(replace(self.plan, pools=self.plan.pools.enlarged), self.model)
        return None if found.refused_ops or found.refused_tensors else found

    @property
    def firmware(self) -> Program:
        """The plan as C. Raises PlanError where there is none."""
        return self.emitted or Program.running(self.plan, self.model)

    @cached_property
    def tables(self) -> Tables:
        if self.program is None:
            raise ValueError("there is no C of this plan")
        return Tables(self.program, "model")

    @property
    def _file_weights_bytes(self) -> int | None:
        """Constants as the plan's graph has them; None where their values are missing."""
        constants = [tensor for tensor in self.plan.graph.tensors if tensor.is_constant]
        if any(tensor.data is None and tensor.elems for tensor in constants):
            return None
        return sum(tensor.size_bytes for tensor in constants)

    @cached_property
    def macs(self) -> Mapping[int, int]:
        """Op -> its multiply-accumulates; rows that are recomputed count each time."""
        return macs_as_run(self.plan.graph, self.plan.options.library, self.plan.schedule.steps)

    @cached_property
    def live(self) -> Mapping[int, int]:
        """Op -> the most that must be held while it runs."""
        plan = self.plan
        # A plan that was read from JSON has offsets, but no lower bound for each step.
        pressure = plan.pressure or build_problem(footprint(plan.graph, plan.options), plan.schedule).pressure
        return most_live(zip(plan.schedule.ops, pressure, strict=True))

    def plan_json(self, made: Planned, cost: Cost | None = None) -> dict[str, Any]:
        """The plan as JSON, with what it costs."""
        cost = cost or self.on()
        told = {"macs": cost.macs, "weights_bytes": cost.flash.weights_bytes, "cost": cost.to_json()}
        return {**to_json(made), **told}

    @property
    def work(self) -> tuple[Mapping[int, float], Mapping[int, Spent]]:
        """Op -> its cycles, or its multiply-accumulates where cycles are not known; and what is known of cycles."""
        spent = self.spent(self.clock) or {}
        return ({op: one.cycles for op, one in spent.items()} if spent else self.macs), spent

    def layers(self, instructions: Mapping[int, int] | None = None) -> tuple[Layer, ...]:
        """One for each op, in the order of their first steps. `instructions`: those of each op, by its index in the
        file."""
        counted, clock, weights = instructions or {}, self.clock, self._weights_by_op
        work, spent = self.work
        work = self.macs if counted else work
        whole = max(1, sum(counted.values()) or sum(work.values(), 0.0))
        found = []
        for op in self.live:
            node = self.plan.graph.nodes[op]
            ran = counted.get(node.op.number)
            share = (work[op] if not counted else ran or 0) / whole
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
                    ran,
                    share,
                    *(None, None) if clock is None or op not in spent else clock.of_op(spent[op]),
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


def cost_together(
    costs: Sequence[Costs],
    arena_bytes: int,
    target: Chip | None = None,
    core: Core | None = None,
    instructions: int | None = None,
) -> Cost:
    """Of models that share an arena, of which one runs at a time, and their kernels; or of a single one."""
    core = target.core if target is not None else core
    ram, flash, runtime = Ram(arena_bytes), Flash(costs[0]._file_weights_bytes), costs[0].runtime
    notes = () if runtime is None else runtime.notes
    programs = [one.program for one in costs if one.program is not None]
    if runtime is not None:
        ram, flash = Ram(arena_bytes, None, runtime.kept_bytes), Flash(runtime.file_bytes)
    elif len(programs) < len(costs):
        notes = ("the code of kernels, which is not known",)
    else:
        code = None if core is None else code_of(programs, core)
        ram = Ram(arena_bytes, code and code.stack_bytes, 0)
        rows = sum(sequence_bytes(program) for program in programs if program.visits)
        flash = Flash(sum(one.tables.size_bytes for one in costs), rows, code and code.code_bytes)
        has_floats = any(t.dtype is DType.FLOAT32 for one in costs for op in one.plan.graph.nodes for t in op.outputs)
        if core is not None and not core.has_fpu and has_floats:
            notes = (f"the C library's soft-float routines ({core.name} has no FPU)",)
    work, shares = [sum(one.macs.values()) for one in costs], dict[str, float]()
    for one, macs in zip(costs, work, strict=True):
        part = macs / sum(work) if sum(work) else 1 / len(costs)
        for name, share in kernel_shares(one.plan.graph, one.plan.options.library, one.macs).items():
            shares[name] = shares.get(name, 0) + share * part
    names = None if target is None else target.name, None if core is None else core.key
    float32 = "; ".join(filter(None, (float_text(one.plan.graph) for one in costs)))
    clock = Clock.of(target, core)
    spent = [one.spent(clock) for one in costs]
    told = {} if clock is None or None in spent else clock.told(summed(found for found in spent if found is not None))
    return Cost(*names, shares, ram, flash, sum(work), instructions, **told, notes=notes, float32=float32)


def summed(spent: Iterable[Mapping[int, Spent]]) -> Spent:
    """Of all ops, of all models."""
    return sum((each for one in spent for each in one.values()), Spent())


def most_live(steps: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Op -> the most that must be held at one of its steps."""
    found: dict[int, int] = {}
    for op, held in steps:
        if op != PUSH:
            found[op] = max(found.get(op, 0), held)
    return found


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost against what a chip has. Part of its RAM must stay free for stack and data. `pools_missing`: bytes that
    its memories lack where the arena is split over several; None where it is in one."""

    chip: Chip
    cost: Cost
    pools_missing: int | None = None

    @property
    def ram_bytes(self) -> int:
        """The arena, with what a runtime keeps for itself as far as that is known."""
        return self.cost.ram.arena_bytes + (self.cost.ram.static_bytes or 0)

    @property
    def ram_kept_bytes(self) -> int:
        """What the region must have beside it: for the stack of a run, and at least what any firmware needs."""
        return min(max(RESERVE_BYTES, self.cost.ram.stack_bytes or 0), self.chip.largest_region[1])

    @property
    def region(self) -> tuple[str, int]:
        """Name and bytes of the memory that the arena goes into."""
        return self.chip.region_for(self.ram_bytes + self.ram_kept_bytes)

    @property
    def arena_limit_bytes(self) -> int:
        """What the arena may take of the region, with what a runtime keeps for itself."""
        return self.region[1] - self.ram_kept_bytes

    @property
    def ram_left_bytes(self) -> int:
        """Negative: so many are missing."""
        if self.pools_missing is not None:
            return -self.pools_missing
        return self.arena_limit_bytes - self.ram_bytes

    @property
    def ram_free_bytes(self) -> int:
        """What is left for the stack, data and the rest."""
        return self.ram_left_bytes + self.ram_kept_bytes

    @property
    def flash_left_bytes(self) -> int | None:
        """None where flash is external, so that its size is the board's, or where the weights are not known."""
        used = self.cost.flash.total_bytes
        return self.chip.flash_bytes - used if self.chip.flash_bytes and used is not None else None

    @property
    def fits(self) -> bool:
        return self.ram_left_bytes >= 0 and (self.flash_left_bytes is None or self.flash_left_bytes >= 0)

    def missing(self) -> Iterator[tuple[str, int]]:
        """What there is too little of, and by how many bytes."""
        for name, left in (("RAM", self.ram_left_bytes), ("flash", self.flash_left_bytes)):
            if left is not None and left < 0:
                yield name, -left
