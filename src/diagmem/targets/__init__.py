"""Chips, boards and cores, as data: what `--target` names."""

from diagmem.targets.chips import KB, RESERVE_BYTES, Board, Chip, Memory, boards, chip_named, chips
from diagmem.targets.cores import CORES, Core, core_named

__all__ = [
    "CORES",
    "KB",
    "RESERVE_BYTES",
    "Board",
    "Chip",
    "Core",
    "Memory",
    "boards",
    "chip_named",
    "chips",
    "core_named",
]
