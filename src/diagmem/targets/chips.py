"""Micro-controllers and the boards that carry them: core, clock, memories, flash, and where the figures come from.

They are read from chips.toml, or from a file of one's own (`--target ./my_board.toml`), which describes one chip with
the same keys.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from diagmem.model.errors import PlanError, content_of, one_line
from diagmem.model.tables import parsed_toml, table
from diagmem.targets.cores import Core, core_named
from diagmem.targets.names import did_you_mean, plain

KB = 1024

RESERVE_BYTES = 1 * KB
"""What any firmware needs beside its arena, at the very least: stack, vectors in RAM, the C library's data."""


class Memory(NamedTuple):
    """`cost`: of an access, relative to the fastest memory."""

    name: str
    size_bytes: int
    cost: int


class Lines(NamedTuple):
    """Of a cache, least recently used first out: `ways` lines in each set."""

    lines: int
    ways: int
    line_bytes: int


@dataclass(frozen=True, slots=True)
class FlashCache:
    """What lies between a core and flash: a cache for code, one for data; no lines: a read past all caches brings as
    much as one would have. `is_shared`: data is read through the one for code. `miss_cycles`: of a line that it does
    not have; None: flash's wait states. `hidden`: what prefetch saves of them where code runs on."""

    code: Lines
    data: Lines
    is_shared: bool = False
    miss_cycles: int | None = None
    hidden: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Chip:
    """A micro-controller. `mhz`: its highest clock. `memories`: all RAM for data, fastest first. `regions`: name and
    bytes of each contiguous stretch of it, for an arena that is not split. `flash_bytes`: 0 where flash is external.
    `wait_states`: of flash at the highest clock, None where they are not known; flash runs at the core's clock divided
    by `flash_divider`. `flash_cache`: None where it is not known. `milliwatts`: of core, flash and RAM at that clock.
    `calibrated`: measured cycles over predicted ones on a board, and how many percent ops are still off; None where no
    board was measured. `source`: of all figures but those that have a source of their own."""

    name: str
    core: Core
    regions: tuple[tuple[str, int], ...]
    memories: tuple[Memory, ...]
    flash_bytes: int
    mhz: float | None = None
    vendor: str = ""
    aliases: tuple[str, ...] = ()
    source: str = ""
    order_source: str = ""
    wait_states: int | None = None
    flash_divider: int = 1
    wait_source: str = ""
    flash_cache: FlashCache | None = None
    milliwatts: float | None = None
    power_source: str = ""
    calibrated: tuple[float, float] | None = None

    def at(self, mhz: float | None) -> Chip:
        """The chip at another clock: its flash waits less at a lower one."""
        if mhz is None or self.mhz is None or mhz == self.mhz:
            return self
        waits = self.wait_states and max(0, math.ceil((self.wait_states + 1) * mhz / self.mhz) - 1)
        return replace(self, mhz=mhz, wait_states=waits, milliwatts=None, calibrated=None)

    @property
    def calibration(self) -> str:
        """CHIP:FACTOR:PERCENT."""
        return "" if self.calibrated is None else f"{self.name}:{self.calibrated[0]:.4f}:{self.calibrated[1]:.1f}"

    @property
    def flash_miss_cycles(self) -> int:
        """The core's cycles that it waits on what no cache has."""
        if self.flash_cache is not None and self.flash_cache.miss_cycles is not None:
            return self.flash_cache.miss_cycles
        return max(0, self.flash_cost - 1)

    @property
    def pools(self) -> tuple[str, ...]:
        """Its memories as `--pool` takes them, the largest without what firmware needs beside its arena."""
        largest = max(memory.size_bytes for memory in self.memories)
        reserved = next(n for n, memory in enumerate(self.memories) if memory.size_bytes == largest)
        return tuple(
            f"{_identifier(memory.name)}:{memory.size_bytes - RESERVE_BYTES * (n == reserved)}:{memory.cost}"
            for n, memory in enumerate(self.memories)
        )

    @property
    def flash_cost(self) -> int:
        """The core's cycles for a load from flash that no cache or buffer serves; 0 where they are not known."""
        return 0 if self.wait_states is None else (self.wait_states + 1) * self.flash_divider

    @property
    def read_cost(self) -> float:
        """The core's cycles for a word of constants that are read one behind the other from flash, and are in no cache:
        a line serves as many words as it has. 0 where they are not known."""
        if self.flash_cache is None:
            return self.flash_cost
        line = self.flash_cache.code if self.flash_cache.is_shared else self.flash_cache.data
        return 1 + self.flash_miss_cycles * 4 / line.line_bytes

    @property
    def flash_source(self) -> str:
        """Of `flash_cost`: wait states, clock and document."""
        if self.wait_states is None or self.mhz is None:
            return ""
        half = ", half of the core's clock" if self.flash_divider == 2 else ""
        return f"{self.wait_states} at {self.mhz / self.flash_divider:g} MHz{half}: {self.wait_source}"

    @property
    def sram_bytes(self) -> int:
        return sum(size for _, size in self.regions)

    @property
    def largest_region(self) -> tuple[str, int]:
        """Name and bytes of the region that an arena would go into."""
        return max(self.regions, key=lambda region: region[1])

    def region_for(self, size_bytes: int) -> tuple[str, int]:
        """Name and bytes of the region for so many bytes: of memories that differ in speed the fastest that holds
        them, else the largest."""
        faster = (memory for memory in self.memories if memory.cost < self.memories[-1].cost)
        return next(((m.name, m.size_bytes) for m in faster if size_bytes <= m.size_bytes), self.largest_region)

    @property
    def arena_limit_bytes(self) -> int:
        """The largest arena that leaves room for a stack and some data in the same region."""
        return max(0, self.largest_region[1] - RESERVE_BYTES)


class Board(NamedTuple):
    """What people know by its own name, and the chip on it."""

    name: str
    chip: Chip


def chip_named(name: str, calibration: str = "") -> Chip:
    """The chip of that name, or that of the board of that name, or the one that a file NAME.toml describes. One that
    runs no kernels is refused with a reason. `calibration`: a file, or CHIP:FACTOR:PERCENT."""
    found = chip_in_file(name) if name.lower().endswith(".toml") else find_chip(name)
    if found is None:
        known = (*(chip.name for chip in chips()), *(board.name for board in boards()))
        hint = did_you_mean(name, known, "`diagmem targets` lists those known")
        raise PlanError(f"target '{one_line(name)}' is not known; {hint} (or give the bytes with --budget)")
    if found.core.refusal is not None:
        raise PlanError(f"target {found.name} ({found.core.name}): no kernels run there: {found.core.refusal}")
    return found if not calibration else replace(found, calibrated=_calibrated(found.name, calibration))


def find_chip(name: str) -> Chip | None:
    """The chip or board of that name. Packages do not matter: letters may be missing at the end where only one chip is
    meant, and of ST's names the one for the number of pins may differ."""
    asked = plain(name)
    found = _by_plain_name().get(asked)
    if found is not None or not asked:
        return found
    longer = [
        chip
        for chip in chips()
        if 0 < len(plain(chip.name)) - len(asked) <= 2 and plain(chip.name)[: len(asked)] == asked
    ]
    return longer[0] if len(longer) == 1 else _same_but_for_pins(asked)


def _same_but_for_pins(asked: str) -> Chip | None:
    """STM32, line, letter for the pins, letter or digit for the flash, and then package and temperature."""
    part = re.compile(r"(stm32(?:wba|wb|wl|[a-z]\w)\w\w)[a-z](\w)(?:[a-z]\d.*)?")
    wanted = part.fullmatch(asked)
    same = (
        chip
        for chip in chips()
        if wanted and (own := part.fullmatch(plain(chip.name))) and own.groups() == wanted.groups()
    )
    return next(same, None)


_table = partial(table, __package__, "chips")


@cache
def chips() -> tuple[Chip, ...]:
    """All that are known."""
    return tuple(_chip(entry, f"chips.toml: {entry.get('name')}") for entry in _table()["chip"])


@cache
def boards() -> tuple[Board, ...]:
    """All that are known."""
    by_name = {chip.name: chip for chip in chips()}
    return tuple(Board(name, by_name[chip]) for name, chip in _table()["boards"].items())


@cache
def _by_plain_name() -> Mapping[str, Chip]:
    named = {plain(board.name): board.chip for board in boards()}
    return named | {plain(name): chip for chip in chips() for name in (*chip.aliases, chip.name)}


MOST_FILE_BYTES = 1_000_000


def chip_in_file(path: str) -> Chip:
    """The chip that a TOML file describes."""
    where = one_line(path)
    try:
        content = content_of(path, MOST_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PlanError(f"target '{where}': cannot be read: {reason}") from error
    try:
        entry = parsed_toml(content.decode())
    except ValueError as error:
        raise PlanError(f"target '{where}': is not TOML: {one_line(str(error))}") from error
    return _chip({"name": Path(path).stem, "source": where, **entry}, f"target '{where}'")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= 300


def _is_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


_TEXT = (_is_text, "is not a text of one line")
_MEMORIES = (lambda value: isinstance(value, list) and 1 <= len(value) <= 8, "is not a list of one to eight memories")

_KEYS = {
    "name": _TEXT,
    "also": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "is not a list of names"),
    "vendor": _TEXT,
    "core": _TEXT,
    "mhz": (lambda value: isinstance(value, float) or _is_number(value, 1, 10_000), "is not a number of MHz"),
    "ram": _MEMORIES,
    "ram_source": _TEXT,
    "regions": _MEMORIES,
    "flash_kb": (lambda value: _is_number(value, 0, 2**22), "is not a number of KB (0: flash is external)"),
    "flash_wait_states": (lambda value: _is_number(value, 0, 1000), "is not a number of wait states"),
    "flash_clock_divider": (lambda value: _is_number(value, 1, 16), "is not a number from 1 to 16"),
    "flash_source": _TEXT,
    "flash_cache": (lambda value: _is_text(value) and value in _table()["flash_cache"], "is none that chips.toml has"),
    "flash_miss_cycles": (lambda value: _is_number(value, 0, 10_000), "is not a number of cycles"),
    "flash_miss_source": _TEXT,
    "milliwatts": (lambda value: isinstance(value, float) or _is_number(value, 1, 100_000), "is not a number of mW"),
    "power_source": _TEXT,
    "source": _TEXT,
}
"""Key of a chip -> what it must be, and what is said if it is not."""


def _chip(entry: Mapping[str, Any], where: str) -> Chip:
    """A chip as chips.toml or a file of one's own describes it."""
    for key, value in entry.items():
        if key not in _KEYS:
            raise PlanError(f"{where}: key '{one_line(key)}' is not known; known: {', '.join(_KEYS)}")
        is_right, complaint = _KEYS[key]
        if not is_right(value):
            raise PlanError(f"{where}: {key} = {one_line(repr(value), 60)} {complaint}")
    missing = next((key for key in ("core", "ram") if key not in entry), None)
    if missing is not None:
        raise PlanError(f"{where}: key '{missing}' is missing; it needs at least core and ram")
    if "flash_wait_states" in entry and "mhz" not in entry:
        raise PlanError(f"{where}: flash_wait_states are those at a clock: give mhz too")
    try:
        core = core_named(entry["core"])
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from error
    memories = tuple(_memories(entry["ram"], f"{where}: ram"))
    regions = tuple(_memories(entry.get("regions", entry["ram"]), f"{where}: regions"))
    if sum(m.size_bytes for m in memories) != sum(m.size_bytes for m in regions):
        raise PlanError(
            f"{where}: regions have not the same size as ram: they are the same bytes, as contiguous stretches"
        )
    return Chip(
        name=entry["name"],
        core=core,
        regions=tuple((region.name, region.size_bytes) for region in regions),
        memories=memories,
        flash_bytes=entry.get("flash_kb", 0) * KB,
        mhz=entry.get("mhz"),
        vendor=entry.get("vendor", ""),
        aliases=tuple(entry.get("also", ())),
        source=entry.get("source", ""),
        order_source=entry.get("ram_source", ""),
        wait_states=entry.get("flash_wait_states"),
        flash_divider=entry.get("flash_clock_divider", 1),
        wait_source=entry.get("flash_source", ""),
        flash_cache=_flash_cache(entry),
        milliwatts=entry.get("milliwatts"),
        power_source=entry.get("power_source", ""),
    )


def _flash_cache(entry: Mapping[str, Any]) -> FlashCache | None:
    """That of a chip, if it has said which."""
    if "flash_cache" not in entry:
        return None
    found = {"data": (0, 1, 8), **_table()["flash_cache"][entry["flash_cache"]]}
    if "flash_miss_cycles" in entry:
        found["miss_cycles"], found["source"] = entry["flash_miss_cycles"], entry.get("flash_miss_source", "")
    return FlashCache(**{**found, "code": Lines(*found["code"]), "data": Lines(*found["data"])})


def _memories(entries: list[Any], where: str) -> Iterator[Memory]:
    """Each with a name that a pool can have, fastest first."""
    names, fastest = set[str](), 1
    for entry in entries:
        if not isinstance(entry, dict) or not {"name", "kb"} <= set(entry) <= {"name", "kb", "cost"}:
            raise PlanError(f'{where}: {one_line(repr(entry), 60)} is not {{ name = "SRAM", kb = 64, cost = 1 }}')
        name, kb, cost = entry["name"], entry["kb"], entry.get("cost", 1)
        if not _is_text(name) or not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", _identifier(name)):
            raise PlanError(f"{where}: {one_line(repr(name), 60)} is not a name: a letter first, 31 at most")
        if not _is_number(kb, 1, 2**22) or not _is_number(cost, 1, 1000):
            raise PlanError(f"{where}: '{one_line(name)}' has kb = {kb!r} and cost = {cost!r}: at least 1 each")
        if _identifier(name) in names or cost < fastest:
            raise PlanError(f"{where}: '{one_line(name)}' must be listed once, and the fastest memory first")
        names.add(_identifier(name))
        fastest = cost
        yield Memory(name, kb * KB, cost)


def _identifier(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


SHORT = re.compile(r"[^:/\\]{1,80}:\d{1,6}\.\d{1,9}:\d{1,6}\.\d{1,9}")


def _calibrated(chip: str, told: str) -> tuple[float, float]:
    short = told
    if not SHORT.fullmatch(told):
        try:
            found = json.loads(content_of(told, 2**20))
            short = f"{found['chip']}:{found['factor']:.4f}:{found['error_percent']:.1f}"
        except (ValueError, TypeError, KeyError, RecursionError):
            short = ""
        if not SHORT.fullmatch(short):
            raise PlanError(f"{one_line(told, 400)}: it is no calibration, which `diagmem verify --board` writes")
    name, factor, percent = short.split(":")
    if name != chip:
        raise PlanError(f"the calibration is for {one_line(name)}, and the target is {chip}")
    return float(factor), float(percent)
