"""What a model takes as C beside its arena: flash, of which weights are known exactly and code was measured, and stack.

The code of each kernel was compiled alone with -O2 by GCC (`tools/measure-kernels`), so a firmware, in which kernels
meet, takes somewhat less.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from diagmem.backends.c.program import Program
from diagmem.backends.c.steps import sequence_bytes
from diagmem.backends.c.tables import Tables
from diagmem.targets import core_named

CALL_BYTES = 24
"""Instructions that load the arguments of a kernel and call it, or copy a table and say where it lies."""

ROWS_BYTES = 900
"""Instructions that go through the steps of a run row by row."""

MEASURED_AS = {"": "cortex-m4", "cortex-m3": "cortex-m4", "cortex-m7": "cortex-m4", "cortex-m33": "cortex-m4"}
"""Cores that no code was compiled for -> the nearest one for which it was."""


@dataclass(frozen=True, slots=True)
class Flash:
    """`weights_bytes`: constants as they are stored, `sequence_bytes`: steps and tables of a run row by row.
    `code_bytes`: kernels as they were measured, with the functions that several of them use counted once.
    `stack_bytes`: of RAM, at most, were all kernels put into the function that calls them."""

    weights_bytes: int
    sequence_bytes: int
    code_bytes: int
    stack_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.sequence_bytes + self.code_bytes


def flash_of(program: Program, core: str) -> Flash:
    """What a program takes on a core, such as Cortex-M4F."""
    cpu = core_named(core).cpu
    compiled_for = MEASURED_AS.get(cpu, cpu)
    sizes = {source: cores[compiled_for] for source, cores in code_sizes()["kernels"].items()}
    # A kernel that was not measured counts as the largest that was.
    largest = max(sizes.values(), key=lambda size: size["code_bytes"])
    calls = [call for call in program.calls.values() if call is not None]
    kernels = [sizes.get(source, largest) for source in {call.source for call in calls}]
    shared = {function for kernel in kernels for function in kernel["uses"]}
    code = sum(kernel["code_bytes"] for kernel in kernels)
    code += sum(code_sizes()["shared"][compiled_for][function] for function in shared)
    code += sum(sizes.get(call.source, largest)["call_bytes"] + CALL_BYTES for call in calls)
    code += CALL_BYTES * sum(len(weights.parts) for weights in program.copied_weights.values())
    code += ROWS_BYTES if program.visits else 0
    sequence = sequence_bytes(program) if program.visits else 0
    stack = sum(kernel["stack_bytes"] for kernel in kernels)
    return Flash(Tables(program, "model").size_bytes, sequence, code, stack)


@cache
def code_sizes() -> dict[str, Any]:
    """`kernels`: source -> core -> bytes, and the functions it uses; `shared`: core -> such a function -> bytes."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("code_sizes.json").read_text(encoding="utf-8"))
    return found
