"""The project's own kernels: each goes in the order that its kind says."""

from __future__ import annotations

from dataclasses import replace

from diagmem.kernels._library import ChannelBlock, Library
from diagmem.model.errors import PlanError
from diagmem.ops import InstructionSet

DIAGMEM = Library(
    "diagmem",
    "the C kernels that `diagmem emit c` writes",
    addresses_views=True,
    is_own=True,
    channel_block=ChannelBlock(8, least_rest=3, of_reals=False),
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
