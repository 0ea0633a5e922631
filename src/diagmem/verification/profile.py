"""Where a model's time goes: the instructions and cycles of each operation, counted in an emulated core."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from diagmem.costs import Cost, Costs
from diagmem.costs.cycles import Clock, Spent
from diagmem.kernels import CPUS, kernels_on
from diagmem.model.errors import PlanError
from diagmem.model.graph import Node
from diagmem.model.notebook import ShownAsTable
from diagmem.model.schedule import PUSH
from diagmem.planning.plan import Plan
from diagmem.verification.cortex_m import CORES, count_marks
from diagmem.verification.reference import sample_inputs
from diagmem.verification.tools import ToolError

SAMPLE = 5
"""The input of a run whose instructions are counted: the first that is not an edge case."""


@dataclass(frozen=True, slots=True)
class OpProfile:
    """`cycles`, `flash_wait_cycles`: None where they are not known. `read_bytes`, `written_bytes`: of the arena, each
    load and each store counted. `live_bytes`: the most that must be held while it runs."""

    node: Node
    instructions: int
    cycles: int | None
    flash_wait_cycles: int | None
    macs: int
    read_bytes: int
    written_bytes: int
    live_bytes: int

    @property
    def instructions_per_mac(self) -> float | None:
        return self.instructions / self.macs if self.macs else None


@dataclass(frozen=True, slots=True)
class Profile(ShownAsTable):
    """`instructions`: of one whole run, from the call to the return. Those that belong to no operation are the
    difference. `peak_op`: which sets the arena's size. `cost`: what the plan costs on this core, its cycles among it.
    `mhz`: its clock, where that is known."""

    model: str
    on: str
    mhz: float | None
    arena_bytes: int
    instructions: int
    ops: tuple[OpProfile, ...] = field(repr=False)
    peak_op: int | None
    cost: Cost = field(repr=False)

    def share(self, op: OpProfile) -> float:
        return op.instructions / max(1, self.instructions)

    def milliseconds(self, op: OpProfile) -> float | None:
        return None if op.cycles is None or self.mhz is None else op.cycles / (1000 * self.mhz)

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "on": self.on,
            "mhz": self.mhz,
            "arena_bytes": self.arena_bytes,
            "instructions": self.instructions,
            "peak_op": self.peak_op,
            "cost": self.cost.to_json(),
            "ops": [
                {
                    "index": op.node.op.number,
                    "kind": op.node.op.kind,
                    "name": op.node.outputs[0].name if op.node.outputs else "",
                    "instructions": op.instructions,
                    "cycles": op.cycles,
                    "flash_wait_cycles": op.flash_wait_cycles,
                    "ms": self.milliseconds(op),
                    "share": round(self.share(op), 6),
                    "macs": op.macs,
                    "instructions_per_mac": op.instructions_per_mac,
                    "read_bytes": op.read_bytes,
                    "written_bytes": op.written_bytes,
                    "live_bytes": op.live_bytes,
                }
                for op in self.ops
            ],
        }


def check_runs_on(plan: Plan, core: str) -> None:
    """Raises PlanError where a plan's kernels use instructions that a core does not have."""
    kernels_on(core, core if core in CPUS else "", plan.options.kernels)


def profiled(costs: Costs, core: str, seed: int = 0, mhz: float | None = None) -> Profile:
    """Runs the plan's C once on an emulated core, and counts. `mhz`: its clock, if not the chip's highest."""
    if core not in CORES:
        raise PlanError(f"core '{core}' is not known; known: {', '.join(CORES)}")
    program, plan = costs.firmware, costs.plan
    check_runs_on(plan, core)
    clock = Clock.of(*costs.place(core), mhz) if CORES[core].cores == 1 else None
    inputs = sample_inputs(program.graph, SAMPLE + 1, seed)[SAMPLE:]
    found = count_marks(program.in_one_arena, inputs, CORES[core], clock)
    own_steps = [step for step in program.steps if step.op != PUSH]
    if len(found.marks) != len(own_steps):
        raise ToolError(f"{len(own_steps)} steps were expected, but {len(found.marks)} were counted")
    done = {op: np.zeros(3, dtype=np.int64) for op in program.order}
    spent = dict.fromkeys(program.order, Spent())
    before = np.zeros(3, dtype=np.int64)
    for part, (step, mark) in enumerate(zip(own_steps, found.marks, strict=True)):
        now = np.array([mark.instructions, mark.read_bytes, mark.written_bytes])
        done[step.op] += now - before
        before = now
        spent[step.op] += found.counted.by_part.get(part, Spent()) if found.counted else Spent()
    ops = []
    for node in program.nodes:
        op = node.op.index
        instructions, read, written = done[op].tolist()
        cycles, waited = (clock.of_op(spent[op])[0], clock.waited(spent[op])) if clock else (None, None)
        ops.append(OpProfile(node, instructions, cycles, waited, costs.macs[op], read, written, costs.live[op]))
    peak = None if plan.peak_op is None else plan.graph.ops[plan.peak_op].number
    cost = costs.emulated_on(core, found.instructions)
    if found.counted is not None and clock is not None:
        cost = replace(cost, **clock.told(found.counted.total))
    ran_at = clock.mhz if clock else mhz
    return Profile(program.model.name, core, ran_at, program.arena_bytes, found.instructions, tuple(ops), peak, cost)
