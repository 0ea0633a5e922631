"""The loop orders of kernels: which of their reads come before which of their writes."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from diagmem.model.graph import Node
from diagmem.ops.c_call import CCall


class Order(enum.Enum):
    """A kind lists the orders that it can describe; a kernel library says which of them its kernel has. What an order
    means for one operation in particular stands in the file of its kind."""

    REFERENCE = "reference"
    """The kernel goes through the output from its first element to its last, and reads for each what it is made of."""

    MEMCPY = "memcpy"
    """The kernel copies whole chunks with memcpy; of reads and writes within a chunk nothing is known."""

    ALIAS = "alias"
    """The output lies where the input lies, and nothing moves."""

    TENSOR_MAJOR = "tensor_major"
    """The kernel finishes one of several tensors before it begins the next."""

    INPUT_MAJOR = "input_major"
    """The kernel goes through the input from its first element to its last."""

    BLOCKS = "blocks"
    """The kernel computes a few output channels together: it reads all inputs, then writes those channels."""

    IM2COL = "im2col"
    """The kernel copies a pixel's window to a buffer before it writes anything of the pixel."""

    QUADS = "quads"
    """The kernel computes four pixels of a row together, channel by channel. A pointwise convolution knows no rows: all
    its pixels stand in one."""

    PAIRS = "pairs"
    """The kernel reads all inputs of two pixels of a row, then writes both; of an odd row the last one is alone. A
    pointwise convolution of tensors in one piece knows no rows: all its pixels stand in one."""

    ROW_PAIRS = "row_pairs"
    """The same row by row, whatever the convolution."""

    FOURS = "fours"
    """The kernel reads what four channels of a pixel are made of, then writes them; channels that remain follow one by
    one."""

    EIGHTS = "eights"
    """The kernel reads what eight channels of a pixel are made of, then writes them; the last ones may be fewer."""

    SIXTEENS = "sixteens"
    """The same with sixteen."""

    ROWS = "rows"
    """The kernel computes a whole row together, channel by channel."""

    CHANNEL_BLOCKS = "channel_blocks"
    """The kernel does some of the input channels for the whole image, then the next ones."""

    ACCUMULATE = "accumulate"
    """The kernel copies a window's first pixel to the output and merges the others into it there."""

    ZERO_FIRST = "zero_first"
    """The kernel sets the whole output to its neutral value before it reads anything."""

    BUFFERED = "buffered"
    """The kernel sums up the whole output in a buffer, and writes it when all of the input is read."""


PIXEL_BY_PIXEL = frozenset((Order.REFERENCE, Order.BLOCKS, Order.IM2COL, Order.FOURS, Order.EIGHTS, Order.SIXTEENS))
"""Orders in which a kernel has written a pixel of the output before it reads anything for the next, so that it may
begin and end at any."""


class InstructionSet(enum.Enum):
    """What a core offers beyond plain C."""

    DSP = "dsp"
    """Pairs of 16-bit numbers in a word, and a floating-point unit where there is one: Cortex-M4, M7, M33, M35P."""

    MVE = "mve"
    """Vectors of 16 bytes (Helium), and all that DSP says: Cortex-M55, M85."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel for an operation. `order`: that of a run of the whole operation; `row_order`: that of a run row by row.
    `row_call`: the call for whole tensors from which the kind makes that of a row; None: it is `call`.
    `scratch_bytes`: what it takes from the arena while it runs. `block`: its calls can be narrowed to whole blocks of
    so many channels; 0: they cannot. All of that follows from shapes and types alone, so that a plan need not know any
    weights; the calls may choose among kernels of this order."""

    order: Order
    row_order: Order
    call: Callable[[Node], CCall]
    row_call: Callable[[Node], CCall] | None = None
    scratch_bytes: int = 0
    block: int = 0
