"""Which of our own kernels a core runs fastest."""

from __future__ import annotations

from diagmem.kernels._diagmem import DIAGMEM, DIAGMEM_DSP, DIAGMEM_MVE
from diagmem.model.errors import PlanError

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
