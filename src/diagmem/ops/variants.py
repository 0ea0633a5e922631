"""Kernels of ours for cores that can do more than plain C says: which there are for an operation, and how they go."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from diagmem.model.graph import Node
from diagmem.ops.c_call import CCall
from diagmem.ops.orders import Order


class InstructionSet(enum.Enum):
    """What a core offers beyond plain C."""

    DSP = "dsp"
    """Pairs of 16-bit numbers in a word, and a floating-point unit where there is one: Cortex-M4, M7, M33, M35P."""

    MVE = "mve"
    """Vectors of 16 bytes (Helium), and all that DSP says: Cortex-M55, M85."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel for an operation. `order`: that of a run of the whole operation; `row_order`: that of a run row by row.
    `scratch_bytes`: what it takes from the arena while it runs. `block`: its calls can be narrowed to whole blocks of
    so many channels; 0: they cannot. All of that follows from shapes and types alone, so that a plan need not know any
    weights; the calls may choose among kernels of this order."""

    order: Order
    row_order: Order
    call: Callable[[Node], CCall]
    row_call: Callable[[Node], CCall]
    scratch_bytes: int = 0
    block: int = 0
