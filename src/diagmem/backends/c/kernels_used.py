"""The kernels that programs call, in one text: each once, however many call it."""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.backends.c.kernel_sources import joined, with_attribute
from diagmem.backends.c.program import Program
from diagmem.backends.c.team import SPAN, needs_span
from diagmem.ops.numerics.quantised import TO_EVEN, rounds_to_even


def kernels_of(programs: Sequence[Program], attribute: str) -> str:
    """The kernels, and the limits that the programs set them. `attribute`: what stands before each function."""
    calls = [call for program in programs for call in program.calls.values() if call is not None]
    tensors = (tensor for program in programs for tensor in program.graph.tensors)
    limits: dict[str, int] = {TO_EVEN: 1} if any(rounds_to_even(t) for t in tensors) else {}
    for call in calls:
        for macro, value in call.limits.items():
            limits[macro] = max(value, limits.get(macro, 0))
    defines = "".join(f"#define {macro} {limits[macro]}\n" for macro in sorted(limits))
    sources = ["_compiler.h", *sorted({call.source for call in calls})]
    by_rows = [program for program in programs if program.by_rows]
    if by_rows:
        defines += f"#define DIAGMEM_OFFSET uint{8 * max(program.offset_bytes for program in by_rows)}_t\n"
        sources.insert(1, "_row_pieces.h" if any(program.in_pieces for program in by_rows) else "_rows.h")
    if any(needs_span(program) for program in programs):
        sources.append(SPAN)
    return with_attribute("\n".join(part for part in (defines, *joined(sources, limits.keys())) if part), attribute)
