"""Kernel libraries: which loop order each of them uses for an operation.

Overlap depends on the kernel's loops, so a plan is made for one library on one kind of core. A library is a table; an
operation that is not in it may not overlap.
"""

from __future__ import annotations

from dataclasses import replace

from diagmem.kernels._library import LEAN, ONE_BY_ONE, ChannelBlock, Library, OrderRule, lean_name
from diagmem.kernels._tflm import CMSIS_NN, CMSIS_NN_MVE, TFLM, TFLM_REFERENCE
from diagmem.kernels._traced import PREFIX, signature, traced_library
from diagmem.model.errors import PlanError, one_line
from diagmem.ops.orders import InstructionSet

__all__ = ["ONE_BY_ONE", "ChannelBlock", "Library", "OrderRule", "signature"]

DIAGMEM = Library(
    "diagmem",
    "the C kernels that `diagmem emit c` writes",
    addresses_views=True,
    is_own=True,
    channel_block=ChannelBlock(8, least_rest=3, of_float32=False),
)

DIAGMEM_DSP = replace(
    DIAGMEM,
    name="diagmem-dsp",
    summary="the C kernels that `diagmem emit c --cpu …` writes for cores with the DSP extension",
    instructions=InstructionSet.DSP,
    scratch_align_bytes=8,
    channel_block=ChannelBlock(4),
)

DIAGMEM_MVE = replace(
    DIAGMEM,
    name="diagmem-mve",
    summary="the C kernels that `diagmem emit c --cpu cortex-m55` writes for cores with Helium",
    instructions=InstructionSet.MVE,
    scratch_align_bytes=8,
    channel_block=ChannelBlock(8),
)

_OWN = (DIAGMEM, DIAGMEM_DSP, DIAGMEM_MVE)

LIBRARIES = {library.name: library for library in (*_OWN, TFLM, TFLM_REFERENCE, CMSIS_NN, CMSIS_NN_MVE)}

GENERIC = "generic"

CPUS = {
    GENERIC: DIAGMEM.name,
    **dict.fromkeys(("cortex-m0", "cortex-m3", "riscv32"), DIAGMEM.name),
    **dict.fromkeys(("cortex-m4", "cortex-m7", "cortex-m33"), DIAGMEM_DSP.name),
    "cortex-m55": DIAGMEM_MVE.name,
}
"""A core -> the name of the library. What is emitted for a generic one runs on all of them."""


def kernels_for(cpu: str) -> str:
    """The name of the library of our own kernels for a core."""
    if cpu not in CPUS:
        raise PlanError(f"cpu '{cpu}' is not known; known: {', '.join(CPUS)}")
    return CPUS[cpu]


def library(name: str) -> Library:
    """The library of that name, `traced:FILE.json`, or `NAME/3,7`: ops 3 and 7 by kernels that take no scratch."""
    if name.startswith(PREFIX):
        return traced_library(name)
    base, mark, ops = name.partition(LEAN)
    try:
        found = LIBRARIES[base]
        if not mark:
            return found
        lean = None if ops == "all" else frozenset(map(int, ops.split(",")))
        if found.instructions is None or lean_name(base, lean) != name:
            raise ValueError
        return replace(found, name=name, lean=lean)
    except (KeyError, ValueError):
        known = ", ".join((*LIBRARIES, f"{PREFIX}FILE.json"))
        raise PlanError(f"kernel library '{one_line(name)}' is not known; known: {known}") from None


def kernels_on(core: str, cpu: str, name: str = "") -> str:
    """The kernels for a core, which is called `core` and is `cpu` for kernels: those of that name, if the core can run
    them, by default our own for it."""
    own = kernels_for(cpu or GENERIC)
    has, needed = library(own).instructions, library(name or own).instructions
    needs = "mve" if name == "cmsis-nn-mve" else needed.value if needed else ""
    if needs in ("", has and has.value) or (needs == "dsp" and has):
        return name or own
    what = {"dsp": "the DSP extension", "mve": "Helium (MVE)"}[needs]
    raise PlanError(f"kernels '{name}' need {what}, which {core} does not have; its own are '{own}'")
