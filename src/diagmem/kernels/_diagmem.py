"""The project's own kernels: each goes in the order that its kind says."""

from __future__ import annotations

from dataclasses import replace

from diagmem.kernels._library import ChannelBlock, Library
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
