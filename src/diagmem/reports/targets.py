"""Micro-controllers: core, SRAM, flash, and where the figures come from.

SRAM is given as contiguous regions of data memory, for an arena that is not split; and as memories, fastest first, for
one that is (`pools`). KB is 1024 bytes.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from diagmem.model.errors import PlanError, one_line
from diagmem.planning.pools import Pool

KB = 1024

RESERVE_BYTES = 1 * KB
"""What any firmware needs beside its arena, at the very least: stack, vectors in RAM, the C library's data."""


@dataclass(frozen=True, slots=True)
class Target:
    """`regions`: name and bytes of each contiguous piece of SRAM for data. `flash_bytes`: 0 where flash is external.
    `memories`: name, bytes and cost of each memory, fastest first. What the core reaches at its own speed costs 1, what
    lies a bus further one more: that is an order, taken from where `order_source` says, not a measurement.
    `flash_cost`: the core's cycles for a load from flash that no cache or buffer serves, at its highest clock, one and
    the wait states of `flash_source`; 0 where these are not known."""

    name: str
    core: str
    regions: tuple[tuple[str, int], ...]
    flash_bytes: int
    source: str
    memories: tuple[tuple[str, int, int], ...]
    order_source: str = ""
    flash_cost: int = 0
    flash_source: str = ""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Its memories, the largest without what firmware needs beside its arena."""
        largest = max(size for _, size, _ in self.memories)
        reserved = next(n for n, (_, size, _) in enumerate(self.memories) if size == largest)
        return tuple(
            Pool(_identifier(name), size - (RESERVE_BYTES if n == reserved else 0), float(cost))
            for n, (name, size, cost) in enumerate(self.memories)
        )

    @property
    def refusal(self) -> str | None:
        """Why models cannot run there, if they cannot."""
        return _REFUSALS.get(self.core)

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


_REFUSALS = {
    "AVR": "int has 16 bits there and constants take RAM; kernels need 32 bits, and weights in flash",
}
"""Core -> why no kernels run on it."""


def _identifier(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def _target(
    name: str,
    core: str,
    regions: dict[str, int],
    flash_kb: int,
    source: str,
    memories: dict[str, tuple[int, int]] | None = None,
) -> Target:
    """`memories`: KB and cost of each, where they are not the regions, all alike."""
    found = memories or {region: (kb, 1) for region, kb in regions.items()}
    by_speed = tuple((memory, kb * KB, cost) for memory, (kb, cost) in found.items())
    sizes = tuple((region, kb * KB) for region, kb in regions.items())
    cost, read_in = _FLASH.get(name, (0, ""))
    return Target(name, core, sizes, flash_kb * KB, source, by_speed, _ORDERS.get(name, ""), cost, read_in)


_F7 = "DTCM at the core's clock without wait states, SRAM1 and 2 behind the bus matrix: ST AN4667"

_ORDERS = {
    "STM32F746ZG": _F7,
    "STM32F767ZI": _F7,
    "STM32H743ZI": "DTCM at the core's clock; AXI SRAM at half of it; SRAM1 to 3 in domain D2, SRAM4 in D3, each a "
    "bridge further: ST RM0433, memory and bus architecture",
    "STM32U575ZI": "SRAM4 is in the SmartRun domain, a bridge further: ST RM0456, memory and bus architecture",
    "Apollo3 Blue": "TCM is coupled to the core, SRAM lies on its bus: Ambiq Apollo3 Blue datasheet, memory subsystem",
    "Apollo4": "TCM is coupled to the core, SSRAM is shared with others: Ambiq Apollo4 datasheet, memory subsystem",
    "MIMXRT1062": "FlexRAM, as TCM, at the core's clock; OCRAM on the system's AXI bus: NXP AN12077",
}
"""Chip -> where it is told which of its memories is how far from the core, where they differ."""

_FLASH = {
    "STM32F030R8": (2, "1 at 48 MHz: ST RM0360, FLASH_ACR"),
    "STM32F103xF": (3, "2 at 72 MHz: ST RM0008, FLASH_ACR"),
    "STM32F103xG": (3, "2 at 72 MHz: ST RM0008, FLASH_ACR"),
    "STM32F401RE": (3, "2 at 84 MHz: ST RM0368, flash wait states"),
    "STM32F407VG": (6, "5 at 168 MHz: ST RM0090, flash wait states"),
    "STM32F411RE": (4, "3 at 100 MHz: ST RM0383, flash wait states"),
    "STM32F429ZI": (6, "5 at 180 MHz: ST RM0090, flash wait states"),
    "STM32F446RE": (6, "5 at 180 MHz: ST RM0390, flash wait states"),
    "STM32F746ZG": (8, "7 at 216 MHz: ST RM0385, flash wait states"),
    "STM32F767ZI": (8, "7 at 216 MHz: ST RM0410, flash wait states"),
    "STM32G071RB": (3, "2 at 64 MHz: ST RM0444, flash wait states"),
    "STM32H743ZI": (10, "4 at 240 MHz, half of the core's clock: ST RM0433, flash wait states"),
    "STM32L476RG": (5, "4 at 80 MHz: ST RM0351, flash wait states"),
    "STM32L4R5ZI": (6, "5 at 120 MHz: ST RM0432, flash wait states"),
    "STM32U575ZI": (5, "4 at 160 MHz: ST RM0456, flash wait states"),
    "STM32WB55RG": (4, "3 at 64 MHz: ST RM0434, flash wait states"),
}
"""Chip -> the core's cycles for a load from flash that no cache or buffer serves, and its wait states."""


TARGETS = (
    _target("STM32F030R8", "Cortex-M0", {"SRAM": 8}, 64, "ST datasheet STM32F030x4/x6/x8/xC"),
    _target("STM32F103xF", "Cortex-M3", {"SRAM": 96}, 768, "ST datasheet STM32F103xF/xG"),
    _target("STM32F103xG", "Cortex-M3", {"SRAM": 96}, 1024, "ST datasheet STM32F103xF/xG"),
    _target("STM32F401RE", "Cortex-M4F", {"SRAM": 96}, 512, "ST datasheet STM32F401xD/xE"),
    _target("STM32F407VG", "Cortex-M4F", {"SRAM": 128, "CCM": 64}, 1024, "ST datasheet STM32F405xx/407xx"),
    _target("STM32F411RE", "Cortex-M4F", {"SRAM": 128}, 512, "ST datasheet STM32F411xC/xE"),
    _target("STM32F429ZI", "Cortex-M4F", {"SRAM": 192, "CCM": 64}, 2048, "ST datasheet STM32F427xx/429xx"),
    _target("STM32F446RE", "Cortex-M4F", {"SRAM": 128}, 512, "ST datasheet STM32F446xC/xE"),
    _target(
        "STM32F746ZG",
        "Cortex-M7",
        {"DTCM+SRAM1+SRAM2": 320},
        1024,
        "ST datasheet STM32F745xx/746xx",
        {"DTCM": (64, 1), "SRAM1+2": (256, 2)},
    ),
    _target(
        "STM32F767ZI",
        "Cortex-M7",
        {"DTCM+SRAM1+SRAM2": 512},
        2048,
        "ST datasheet STM32F765xx/767xx",
        {"DTCM": (128, 1), "SRAM1+2": (384, 2)},
    ),
    _target("STM32G071RB", "Cortex-M0+", {"SRAM": 36}, 128, "ST datasheet STM32G071x8/xB"),
    _target(
        "STM32H743ZI",
        "Cortex-M7",
        {"DTCM": 128, "AXI SRAM": 512, "SRAM1+2+3": 288, "SRAM4": 64},
        2048,
        "ST datasheet STM32H742xI/G, STM32H743xI/G",
        {"DTCM": (128, 1), "AXI SRAM": (512, 2), "SRAM1+2+3": (288, 3), "SRAM4": (64, 4)},
    ),
    _target("STM32L476RG", "Cortex-M4F", {"SRAM1": 96, "SRAM2": 32}, 1024, "ST datasheet STM32L476xx"),
    _target("STM32L4R5ZI", "Cortex-M4F", {"SRAM1+2+3": 640}, 2048, "ST datasheet STM32L4R5xx/R7xx/R9xx"),
    _target(
        "STM32U575ZI",
        "Cortex-M33",
        {"SRAM1+2+3": 768, "SRAM4": 16},
        2048,
        "ST datasheet STM32U575xx",
        {"SRAM1+2+3": (768, 1), "SRAM4": (16, 2)},
    ),
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
    _target(
        "Apollo3 Blue",
        "Cortex-M4F",
        {"TCM+SRAM": 384},
        1024,
        "Ambiq Apollo3 Blue datasheet",
        {"TCM": (64, 1), "SRAM": (320, 2)},
    ),
    _target(
        "Apollo4",
        "Cortex-M4F",
        {"TCM": 384, "SSRAM": 1024},
        2048,
        "Ambiq Apollo4 datasheet",
        {"TCM": (384, 1), "SSRAM": (1024, 2)},
    ),
    _target("MK64FN1M0", "Cortex-M4F", {"SRAM": 256}, 1024, "NXP K64 sub-family data sheet"),
    _target("LPC55S69", "Cortex-M33", {"SRAM0-4": 272, "SRAMX": 32}, 640, "NXP LPC55S6x data sheet"),
    _target(
        "MIMXRT1062",
        "Cortex-M7",
        {"FlexRAM": 512, "OCRAM": 512},
        0,
        "NXP i.MX RT1060 data sheet",
        {"FlexRAM": (512, 1), "OCRAM": (512, 2)},
    ),
    _target("MAX78000", "Cortex-M4F", {"SRAM": 128}, 512, "Analog Devices MAX78000 data sheet"),
    _target("GD32VF103CB", "RISC-V", {"SRAM": 32}, 128, "GigaDevice GD32VF103 datasheet"),
)


BOARDS = {
    "Ambiq Apollo3 Blue EVB": "Apollo3 Blue",
    "Arduino Mega 2560": "ATmega2560",
    "Arduino MKR WiFi 1010": "SAMD21G18A",
    "Arduino Nano": "ATmega328P",
    "Arduino Nano 33 BLE": "nRF52840",
    "Arduino Nano 33 BLE Sense": "nRF52840",
    "Arduino Nano 33 IoT": "SAMD21G18A",
    "Arduino Nano ESP32": "ESP32-S3",
    "Arduino Nano RP2040 Connect": "RP2040",
    "Arduino Uno": "ATmega328P",
    "Arduino Uno R3": "ATmega328P",
    "Arduino Zero": "SAMD21G18A",
    "BBC micro:bit v2": "nRF52833",
    "ESP32-C3-DevKitM-1": "ESP32-C3",
    "ESP32-DevKitC": "ESP32",
    "ESP32-S3-DevKitC": "ESP32-S3",
    "ESP32-S3-DevKitC-1": "ESP32-S3",
    "ESP32-S3-EYE": "ESP32-S3",
    "FRDM-K64F": "MK64FN1M0",
    "LPCXpresso55S69": "LPC55S69",
    "MAX78000FTHR": "MAX78000",
    "NUCLEO-F030R8": "STM32F030R8",
    "NUCLEO-F401RE": "STM32F401RE",
    "NUCLEO-F411RE": "STM32F411RE",
    "NUCLEO-F429ZI": "STM32F429ZI",
    "NUCLEO-F446RE": "STM32F446RE",
    "NUCLEO-F746ZG": "STM32F746ZG",
    "NUCLEO-F767ZI": "STM32F767ZI",
    "NUCLEO-G071RB": "STM32G071RB",
    "NUCLEO-H743ZI": "STM32H743ZI",
    "NUCLEO-L476RG": "STM32L476RG",
    "NUCLEO-L4R5ZI": "STM32L4R5ZI",
    "NUCLEO-U575ZI-Q": "STM32U575ZI",
    "NUCLEO-WB55RG": "STM32WB55RG",
    "nRF52-DK": "nRF52832",
    "nRF52840-DK": "nRF52840",
    "nRF5340-DK": "nRF5340",
    "Raspberry Pi Pico": "RP2040",
    "Raspberry Pi Pico 2": "RP2350",
    "Raspberry Pi Pico W": "RP2040",
    "Seeed XIAO nRF52840 Sense": "nRF52840",
    "Sipeed Longan Nano": "GD32VF103CB",
    "SparkFun Edge": "Apollo3 Blue",
    "STM32F4DISCOVERY": "STM32F407VG",
    "Teensy 4.0": "MIMXRT1062",
    "Teensy 4.1": "MIMXRT1062",
}
"""Boards that people know by their own names -> what is on them."""

MOST_SUGGESTIONS = 3


def target(name: str) -> Target:
    """The micro-controller of that name, or that of the board of that name; case, blanks and dashes do not matter. One
    on which nothing runs is refused with a reason."""
    named = {_plain(known.name): known for known in TARGETS}
    boards = {_plain(board): named[_plain(chip)] for board, chip in BOARDS.items()}
    found = named.get(_plain(name)) or boards.get(_plain(name)) or _but_for_package(name)
    if found is None:
        near = _suggestions(name)
        hint = f"did you mean {' or '.join(near)}?" if near else "`diagmem targets` lists those known"
        raise PlanError(f"target '{one_line(name)}' is not known; {hint} (or give the bytes with --budget)")
    if found.refusal is not None:
        raise PlanError(f"target {found.name} ({found.core}): no kernels run there: {found.refusal}")
    return found


def _but_for_package(name: str) -> Target | None:
    """The only chip whose name goes on for a letter or two, which say in what package it is."""
    asked = _plain(name)
    found = [t for t in TARGETS if _plain(t.name).startswith(asked) and len(_plain(t.name)) - len(asked) <= 2]
    return found[0] if asked and len(found) == 1 else None


def _suggestions(name: str) -> list[str]:
    """Known names that begin alike, the nearest first; else those that are spelled alike."""
    known = {_plain(one): one for one in (*(t.name for t in TARGETS), *BOARDS)}
    asked = _plain(name)
    alike = sorted(known, key=lambda one: (-difflib.SequenceMatcher(None, asked, one).ratio(), one))
    family = [one for one in alike if asked and (one.startswith(asked) or asked.startswith(one) or asked in one)]
    found = family or difflib.get_close_matches(asked, known, n=MOST_SUGGESTIONS, cutoff=0.6)
    return [known[one] for one in found[:MOST_SUGGESTIONS]]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == "+")
