"""Chips, boards and cores, as data: what `--target` names."""

from diagmem.targets.chips import RESERVE_BYTES, Chip, FlashCache, boards, chip_named, chips
from diagmem.targets.cores import CORES, Core, core_named
from diagmem.targets.timing import Timing, timing_of

__all__ = [
    "CORES",
    "RESERVE_BYTES",
    "Chip",
    "Core",
    "FlashCache",
    "Timing",
    "boards",
    "chip_named",
    "chips",
    "core_named",
    "timing_of",
]
