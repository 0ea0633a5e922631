"""How much flash a model takes as C: what is known exactly, and the code, of which kernels were measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from diagmem.backends.c.program import Program
from diagmem.backends.c.steps import sequence_bytes
from diagmem.backends.c.tables import Tables

CALL_BYTES = 24
"""Instructions that load the arguments of a kernel and call it, or copy a table and say where it lies."""

SMALL_CORES = ("Cortex-M0", "Cortex-M0+", "Cortex-M23")
"""Those that have no Thumb-2."""


@dataclass(frozen=True, slots=True)
class Flash:
    """`weights_bytes`: constants as they are stored, `sequence_bytes`: steps and tables of a run row by row.
    `code_bytes`: kernels as they were measured one by one, so rather too much where they share code."""

    weights_bytes: int
    sequence_bytes: int
    code_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.sequence_bytes + self.code_bytes


def flash_of(program: Program, core: str) -> Flash:
    """What a program takes on a core, such as Cortex-M4F, compiled with -O2 by GCC for Arm."""
    compiled_for = "cortex-m0" if core in SMALL_CORES else "cortex-m4"
    sizes = {source: cores[compiled_for] for source, cores in code_sizes().items()}
    # A kernel that was not measured counts as the largest that was.
    largest = max(sizes.values(), key=lambda size: size["code_bytes"])
    calls = [call for call in program.calls.values() if call is not None]
    kernels = sum(sizes.get(source, largest)["code_bytes"] for source in {call.source for call in calls})
    arguments = sum(sizes.get(call.source, largest)["call_bytes"] + CALL_BYTES for call in calls)
    arguments += CALL_BYTES * sum(len(weights.parts) for weights in program.copied_weights.values())
    sequence = sequence_bytes(program) if program.visits else 0
    return Flash(Tables(program, "model").size_bytes, sequence, kernels + arguments)


@cache
def code_sizes() -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """Source of a kernel -> core -> bytes; `tools/measure-kernels` writes them."""
    text = files(__package__).joinpath("code_sizes.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)["kernels"]
    return found
