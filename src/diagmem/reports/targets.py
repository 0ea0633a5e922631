"""Micro-controllers: core, SRAM, flash, and where the figures come from.

SRAM is given as contiguous regions of data memory, since an arena cannot be split. KB is 1024 bytes.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from diagmem.errors import PlanError

KB = 1024

RESERVE_BYTES = 1 * KB
"""What any firmware needs beside its arena, at the very least: stack, vectors in RAM, the C library's data."""


@dataclass(frozen=True, slots=True)
class Target:
    """`regions`: name and bytes of each contiguous piece of SRAM for data. `flash_bytes`: 0 where flash is external."""

    name: str
    core: str
    regions: tuple[tuple[str, int], ...]
    flash_bytes: int
    source: str

    @property
    def sram_bytes(self) -> int:
        return sum(size for _, size in self.regions)

    @property
    def largest_region(self) -> tuple[str, int]:
        """Name and bytes of the region that an arena would go into."""
        return max(self.regions, key=lambda region: region[1])

    @property
    def largest_region_bytes(self) -> int:
        return self.largest_region[1]

    @property
    def arena_limit_bytes(self) -> int:
        """The largest arena that leaves room for a stack and some data in the same region."""
        return max(0, self.largest_region[1] - RESERVE_BYTES)


def _target(name: str, core: str, regions: dict[str, int], flash_kb: int, source: str) -> Target:
    return Target(name, core, tuple((r, kb * KB) for r, kb in regions.items()), flash_kb * KB, source)


TARGETS = (
    _target("STM32F030R8", "Cortex-M0", {"SRAM": 8}, 64, "ST datasheet STM32F030x4/x6/x8/xC"),
    _target("STM32F103xF", "Cortex-M3", {"SRAM": 96}, 768, "ST datasheet STM32F103xF/xG"),
    _target("STM32F103xG", "Cortex-M3", {"SRAM": 96}, 1024, "ST datasheet STM32F103xF/xG"),
    _target("STM32F401RE", "Cortex-M4F", {"SRAM": 96}, 512, "ST datasheet STM32F401xD/xE"),
    _target("STM32F407VG", "Cortex-M4F", {"SRAM": 128, "CCM": 64}, 1024, "ST datasheet STM32F405xx/407xx"),
    _target("STM32F411RE", "Cortex-M4F", {"SRAM": 128}, 512, "ST datasheet STM32F411xC/xE"),
    _target("STM32F429ZI", "Cortex-M4F", {"SRAM": 192, "CCM": 64}, 2048, "ST datasheet STM32F427xx/429xx"),
    _target("STM32F446RE", "Cortex-M4F", {"SRAM": 128}, 512, "ST datasheet STM32F446xC/xE"),
    _target("STM32F746ZG", "Cortex-M7", {"DTCM+SRAM1+SRAM2": 320}, 1024, "ST datasheet STM32F745xx/746xx"),
    _target("STM32F767ZI", "Cortex-M7", {"DTCM+SRAM1+SRAM2": 512}, 2048, "ST datasheet STM32F765xx/767xx"),
    _target("STM32G071RB", "Cortex-M0+", {"SRAM": 36}, 128, "ST datasheet STM32G071x8/xB"),
    _target(
        "STM32H743ZI",
        "Cortex-M7",
        {"DTCM": 128, "AXI SRAM": 512, "SRAM1+2+3": 288, "SRAM4": 64},
        2048,
        "ST datasheet STM32H742xI/G, STM32H743xI/G",
    ),
    _target("STM32L476RG", "Cortex-M4F", {"SRAM1": 96, "SRAM2": 32}, 1024, "ST datasheet STM32L476xx"),
    _target("STM32L4R5ZI", "Cortex-M4F", {"SRAM1+2+3": 640}, 2048, "ST datasheet STM32L4R5xx/R7xx/R9xx"),
    _target("STM32U575ZI", "Cortex-M33", {"SRAM1+2+3": 768, "SRAM4": 16}, 2048, "ST datasheet STM32U575xx"),
    _target("STM32WB55RG", "Cortex-M4F", {"SRAM1": 192, "SRAM2": 64}, 1024, "ST datasheet STM32WB55xx"),
    _target("AT32UC3C0512C", "AVR32", {"SRAM": 64, "HSB RAM": 4}, 512, "Atmel datasheet AT32UC3C series"),
    _target("ATmega328P", "AVR", {"SRAM": 2}, 32, "Microchip datasheet ATmega48A-328P"),
    _target("ATmega2560", "AVR", {"SRAM": 8}, 256, "Microchip datasheet ATmega640-2561"),
    _target("SAMD21G18A", "Cortex-M0+", {"SRAM": 32}, 256, "Microchip datasheet SAM D21/DA1"),
    _target("SAMD51J20A", "Cortex-M4F", {"SRAM": 256}, 1024, "Microchip datasheet SAM D5x/E5x"),
    _target("SAME70Q21B", "Cortex-M7", {"SRAM": 384}, 2048, "Microchip datasheet SAM E70/S70/V70/V71"),
    _target("nRF52832", "Cortex-M4F", {"RAM": 64}, 512, "Nordic nRF52832 product specification"),
    _target("nRF52833", "Cortex-M4F", {"RAM": 128}, 512, "Nordic nRF52833 product specification"),
    _target("nRF52840", "Cortex-M4F", {"RAM": 256}, 1024, "Nordic nRF52840 product specification"),
    _target("nRF5340", "Cortex-M33", {"application RAM": 512}, 1024, "Nordic nRF5340 product specification"),
    _target("RP2040", "Cortex-M0+", {"SRAM0-5": 264}, 0, "Raspberry Pi RP2040 datasheet"),
    _target("RP2350", "Cortex-M33", {"SRAM0-9": 520}, 0, "Raspberry Pi RP2350 datasheet"),
    _target("ESP32", "Xtensa LX6", {"SRAM1+SRAM2": 328}, 0, "Espressif ESP32 technical reference manual"),
    _target("ESP32-S3", "Xtensa LX7", {"SRAM1": 416, "SRAM2": 64}, 0, "Espressif ESP32-S3 technical reference manual"),
    _target("ESP32-C3", "RISC-V", {"SRAM1": 384}, 0, "Espressif ESP32-C3 technical reference manual"),
    _target("Apollo3 Blue", "Cortex-M4F", {"TCM+SRAM": 384}, 1024, "Ambiq Apollo3 Blue datasheet"),
    _target("Apollo4", "Cortex-M4F", {"TCM": 384, "SSRAM": 1024}, 2048, "Ambiq Apollo4 datasheet"),
    _target("MK64FN1M0", "Cortex-M4F", {"SRAM": 256}, 1024, "NXP K64 sub-family data sheet"),
    _target("LPC55S69", "Cortex-M33", {"SRAM0-4": 272, "SRAMX": 32}, 640, "NXP LPC55S6x data sheet"),
    _target("MIMXRT1062", "Cortex-M7", {"FlexRAM": 512, "OCRAM": 512}, 0, "NXP i.MX RT1060 data sheet"),
    _target("MAX78000", "Cortex-M4F", {"SRAM": 128}, 512, "Analog Devices MAX78000 data sheet"),
    _target("GD32VF103CB", "RISC-V", {"SRAM": 32}, 128, "GigaDevice GD32VF103 datasheet"),
)


def target(name: str) -> Target:
    """The micro-controller by name; case, blanks and dashes do not matter."""
    for known in TARGETS:
        if _plain(known.name) == _plain(name):
            return known
    close = difflib.get_close_matches(_plain(name), [_plain(t.name) for t in TARGETS], n=3, cutoff=0.5)
    near = ", ".join(t.name for t in TARGETS if _plain(t.name) in close)
    hint = f"did you mean {near}?" if near else "`diagmem targets` lists those known"
    raise PlanError(f"target '{name}' is not known; {hint} (or give the bytes with --budget)")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
