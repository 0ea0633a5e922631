"""Code and stack of the C that is emitted, from what each kernel was measured to take.

Each kernel was compiled alone with -O2 by GCC (`tools/measure-kernels`), so a firmware, in which kernels share
functions, takes somewhat less as a rule: of ten models the estimate was a sixth too low to three fifths too high.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from diagmem.backends.c.program import Program
from diagmem.targets import Core

CALL_BYTES = 24
"""Instructions that load the arguments of a kernel and call it, or copy a table and say where it lies."""

STACK_BYTES = 32
"""What the call of a run itself takes of the stack: its registers, and what aligns them."""

ROWS_BYTES = 900
"""Instructions that go through the steps of a run row by row."""

MEASURED_AS = {"": "cortex-m4", "cortex-m3": "cortex-m4", "cortex-m7": "cortex-m4", "cortex-m33": "cortex-m4"}
"""Cores that no code was compiled for -> the nearest one for which it was."""


class Code(NamedTuple):
    """`code_bytes`: kernels as measured; functions that several of them use count once. `stack_bytes`: at most, if the
    compiler inlines all kernels into the function that calls them."""

    code_bytes: int
    stack_bytes: int


def code_of(programs: Sequence[Program], core: Core) -> Code:
    """What programs take on a core that share their kernels and run one at a time."""
    compiled_for = MEASURED_AS.get(core.cpu, core.cpu)
    sizes = {source: cores[compiled_for] for source, cores in code_sizes()["kernels"].items()}
    # A kernel that was not measured counts as the largest that was.
    largest = max(sizes.values(), key=lambda size: size["code_bytes"])
    calls = [call for program in programs for call in program.calls.values() if call is not None]
    kernels = [sizes.get(source, largest) for source in {call.source for call in calls}]
    shared = {function for kernel in kernels for function in kernel["uses"]}
    code = sum(kernel["code_bytes"] for kernel in kernels)
    code += sum(code_sizes()["shared"][compiled_for][function] for function in shared)
    code += sum(sizes.get(call.source, largest)["call_bytes"] + CALL_BYTES for call in calls)
    code += CALL_BYTES * sum(len(weights.parts) for program in programs for weights in program.copied_weights.values())
    code += ROWS_BYTES * sum(bool(program.visits) for program in programs)
    return Code(code, STACK_BYTES + sum(kernel["stack_bytes"] for kernel in kernels))


@cache
def code_sizes() -> dict[str, Any]:
    """`kernels`: source -> core -> bytes, and the functions it uses; `shared`: core -> such a function -> bytes."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("code_sizes.json").read_text(encoding="utf-8"))
    return found
