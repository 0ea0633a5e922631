"""Cycles of what an emulator ran: how often it ran each block, times what the block's instructions take on a core.

Blocks are disassembled once by the compiler's objdump. Within a block, instructions begin one after the other, as soon
as what they read is there and what they keep busy is free (targets/timing.toml). What lies between two blocks is the
jump. What the core waits on flash was counted as it ran, by a model of the chip's caches (`targets.FlashCache`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from diagmem.costs.cycles import Clock, Spent
from diagmem.targets import Timing
from diagmem.verification import tools

BLOCKS = "blocks.bin"
RECORD = np.dtype([(name, "<u4") for name in ("part", "at", "bytes", "ran", "entered", "left", "code", "data", "more")])
"""As count_instructions.c writes it."""

LINE = re.compile(r"^\s*([0-9a-f]+):\s+((?:[0-9a-f]{4,8} ?)+)\s+([^;@#<\n]*(?:#-?\w+[^;@<\n]*)*)", re.MULTILINE)
"""An instruction in a disassembly."""
TARGET = re.compile(r"(?:^|[\s,])(?:0x)?([0-9a-f]+)$")
REGISTER = re.compile(r"\b(?:r\d+|s\d+|d\d+|q\d+|a\d|t\d|ra|sp|lr|ip|fp|sl|pc|p0)\b")
RANGE = re.compile(r"([rsd])(\d+)-[rsd](\d+)")
WIDTHS = {"d": 2, "q": 4}
"""Registers of 32 bits that one has."""
READ_ONLY = ("store", "compare", "branch", "call", "table_branch", "jump")
READS_ITS_RESULT = ("float_mac", "vector_mac", "long_multiply")
WRITES_TWO = ("load_pair", "long_multiply")


def registers(text: str) -> list[str]:
    """Those that a part of an instruction names, the wide ones by their halves and quarters."""
    found = []
    for name in REGISTER.findall(RANGE.sub(_listed, text)):
        width = WIDTHS.get(name[0], 1) if name[1:].isdigit() else 1
        found += [name] if width == 1 else [f"s{int(name[1:]) * width + n}" for n in range(width)]
    return found


def _listed(match: re.Match[str]) -> str:
    return ", ".join(f"{match[1]}{n}" for n in range(int(match[2]), int(match[3]) + 1))


@dataclass(frozen=True, slots=True)
class Instruction:
    """`count`: registers of its list."""

    at: int
    size_bytes: int
    kind: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    count: int = 0
    target: int | None = None

    @classmethod
    def parsed(cls, at: int, size_bytes: int, text: str, timing: Timing) -> Instruction:
        kind = timing.kind(text)
        _, _, operands = text.partition(" ")
        first, _, others = operands.partition(",")
        if "{" in operands:
            listed = registers(operands[operands.index("{") :])
            rest = registers(operands[: operands.index("{")])
            reads, writes = ([*rest, *listed], []) if "store" in kind else (rest, listed)
            return cls(at, size_bytes, kind, tuple(reads), tuple(writes), len(listed))
        if any(kind.endswith(one) for one in READ_ONLY) or "store" in kind:
            found = TARGET.search(operands.strip())
            target = int(found[1], 16) if found and "store" not in kind else None
            return cls(at, size_bytes, kind, tuple(registers(operands)), target=target)
        writes, reads = registers(first), registers(others)
        if kind in WRITES_TWO:
            second, _, others = others.partition(",")
            writes, reads = [*writes, *registers(second)], registers(others)
        reads += writes if kind in READS_ITS_RESULT else []
        return cls(at, size_bytes, kind, tuple(reads), tuple(writes))


class _Schedule:
    """When instructions begin."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.begun, self.next = -1.0, 0.0
        self.has_joined = True
        self.kind = ""
        self.ready: dict[str, float] = defaultdict(float)
        self.made_by: dict[str, str] = {}
        self.free: dict[str, float] = defaultdict(float)

    def run(self, one: Instruction) -> None:
        entry = self.timing.entry(one.kind)
        # A load whose address the load before it brings has to wait.
        is_free = not any(self.ready[name] >= self.next for name in one.reads)
        is_behind = entry.behind is not None and is_free and ("load" in self.kind or "store" in self.kind)
        cycles = entry.behind if is_behind and entry.behind is not None else entry.cycles + entry.each * one.count
        can_begin = max(self.free[entry.unit] if entry.unit else 0, 0, *(self._ready(name, one) for name in one.reads))
        joins = self.timing.width > 1 and entry.pairs and not self.has_joined and can_begin <= self.begun
        begin = self.begun if joins else max(self.next, can_begin)
        self.has_joined = joins
        self.begun, self.next, self.kind = begin, max(self.next, begin + cycles), one.kind
        if entry.unit:
            self.free[entry.unit] = begin + max(entry.busy, cycles)
        for name in one.writes:
            self.ready[name] = begin + max(entry.latency, cycles)
            self.made_by[name] = one.kind

    def _ready(self, name: str, reader: Instruction) -> float:
        """When a register can be read; by an addition to it, perhaps sooner."""
        entry = self.timing.entry(reader.kind)
        if entry.accumulator is not None and name in reader.writes and self.made_by.get(name) == reader.kind:
            return self.ready[name] - entry.latency + entry.accumulator
        return self.ready[name]


def straight_cycles(block: Sequence[Instruction], timing: Timing) -> float:
    """Of instructions that run one after the other, once. What jumps back to its own begin is taken to do so."""

    def ends(times: int) -> float:
        schedule = _Schedule(timing)
        for one in [*block] * times:
            schedule.run(one)
        return schedule.next

    return ends(2) - ends(1) if block and block[-1].target == block[0].at else ends(1)


@dataclass(frozen=True)
class Code:
    """A program, disassembled for a core."""

    timing: Timing
    instructions: Mapping[int, Instruction] = field(repr=False)

    @classmethod
    def of(cls, disassembly: str, timing: Timing) -> Code:
        found = {}
        for at, raw, text in LINE.findall(disassembly):
            place, size = int(at, 16), len(raw.replace(" ", "")) // 2
            found[place] = Instruction.parsed(place, size, " ".join(text.split()), timing)
        return cls(timing, found)

    def block(self, at: int, size_bytes: int) -> list[Instruction]:
        found, end = [], at + size_bytes
        while at < end:
            one = self.instructions.get(at)
            if one is None:
                raise tools.ToolError(f"the code at 0x{at:x} is not in the disassembly")
            found.append(one)
            at += one.size_bytes
        return found

    def block_cycles(self, at: int, size_bytes: int) -> tuple[float, float, float]:
        """Each time that it runs; more each time that it is left by a jump, and that it is entered by one."""
        block = self.block(at, size_bytes)
        straddles = at % 4 == 2 and block[0].size_bytes == 4
        left = self.timing.taken_cycles(block[-1].kind)
        return straight_cycles(block, self.timing), left, self.timing.straddled * straddles


@dataclass(frozen=True)
class Counted:
    """What an emulator counted, part by part."""

    records: np.ndarray = field(repr=False)
    code: Code

    @classmethod
    def read(cls, directory: Path, objdump: str, timing: Timing) -> Counted:
        shown = tools.call([objdump, "-d", "-w", "firmware.elf"], directory).stdout.decode(errors="replace")
        return cls(np.fromfile(directory / BLOCKS, dtype=RECORD), Code.of(shown, timing))

    @cached_property
    def by_part(self) -> Mapping[int, Spent]:
        """Part -> what was spent between two marks."""
        found: dict[int, Spent] = defaultdict(Spent)
        costs: dict[tuple[int, int], tuple[float, float, float]] = {}
        for part, at, size, *times, code, data, more in self.records.tolist():
            cost = costs.get((at, size))
            if cost is None:
                cost = costs[at, size] = self.code.block_cycles(at, size)
            cycles = cost[0] * times[0] + cost[2] * times[1] + cost[1] * times[2]
            cycles += more * self.code.timing.misaligned
            found[part] += Spent(cycles + code + data, code, data)
        return found

    @property
    def total(self) -> Spent:
        return sum(self.by_part.values(), Spent())


def plugin_arguments(clock: Clock, flash_at: int, flash_bytes: int) -> Iterator[str]:
    """What count_instructions.c is told."""
    yield f"blocks={BLOCKS}"
    if clock.chip is None or (cache := clock.flash) is None:
        return
    miss = clock.chip.flash_miss_cycles
    yield from (f"flash={flash_at}", f"size={flash_bytes}", f"miss={miss}")
    yield from (f"hidden={min(cache.hidden, miss)}", f"shared={int(cache.is_shared)}")
    for name, lines in (("code", cache.code), ("data", cache.data)):
        yield f"{name}={':'.join(map(str, lines))}"
