"""Cycles: of instructions one after the other, of blocks that ran, and of flash that is waited on."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from diagmem import pipeline
from diagmem.costs.cycles import Clock, Spent
from diagmem.model.errors import PlanError
from diagmem.targets import CORES, chip_named, chips, timing_of
from diagmem.verification.cycles import RECORD, Code, Counted, plugin_arguments
from tests.backends.c.models import tiny

needs_emulator = pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs an emulated core"
)


def disassembly(*lines: str) -> str:
    """As objdump writes it, each instruction with its width: `4 ldr.w r0, [r1]`."""
    shown, at = [], 0
    for line in lines:
        size, _, text = line.partition(" ")
        name, _, operands = text.partition(" ")
        shown.append(f"{at:8x}:\t{'0' * 2 * int(size)} \t{name}\t{operands}")
        at += int(size)
    return "\n".join(shown) + "\n"


def cycles_of(core: str, *lines: str) -> tuple[float, float, float]:
    """Of a block, of leaving it by a jump, and of entering it by one."""
    timing = timing_of(core)
    assert timing is not None
    code = Code.of(disassembly(*lines), timing)
    assert len(code.instructions) == len(lines)
    return code.block_cycles(0, sum(int(line.split()[0]) for line in lines))


@pytest.mark.parametrize(
    ("cycles", "lines"),
    [
        (3, ["2 adds r0, r1, r2", "2 muls r0, r3", "4 smlad r0, r1, r2, r0"]),
        (2, ["2 ldr r0, [r1, #0]"]),
        (4, ["2 ldr r0, [r1, #0]", "2 ldrb r2, [r3, #1]", "4 ldrsh.w r4, [r5, #2]"]),
        (4, ["2 ldr r0, [r1, #0]", "2 ldr r2, [r0, #0]"]),
        (2, ["2 str r0, [r1, #0]", "2 str r2, [r1, #4]"]),
        (3, ["4 ldrd r0, r1, [r2, #8]"]),
        (5, ["4 stmdb sp!, {r4, r5, r6, lr}"]),
        (5, ["2 pop {r4, r5, r6, pc}"]),
        (17, ["4 vpush {d8-d15}"]),
        (3, ["4 vmla.f32 s0, s1, s2"]),
        (14, ["4 vdiv.f32 s0, s1, s2"]),
        (2, ["2 it eq", "2 moveq r0, r1"]),
        (1, ["2 bne.n 40 <far+0x40>"]),
    ],
)
def test_cortex_m4_instructions(cycles: float, lines: list[str]) -> None:
    """As Arm's manual of the core counts them."""
    assert cycles_of("cortex-m4f", *lines)[0] == cycles


@pytest.mark.parametrize(
    ("core", "cycles", "lines"),
    [
        ("cortex-m0", (8, 3), ["2 ldr r0, [r1, #0]", "2 str r0, [r1, #4]", "2 muls r0, r1", "2 pop {r4, pc}"]),
        ("cortex-m0+", (8, 2), ["2 ldr r0, [r1, #0]", "2 str r0, [r1, #4]", "2 muls r0, r1", "2 pop {r4, pc}"]),
        ("cortex-m0+", (2, 1), ["4 bl 100 <far>"]),
        ("cortex-m3", (5, 2), ["2 ldr r0, [r1, #0]", "2 ldr r2, [r1, #4]", "2 bx lr"]),
        ("cortex-m3", (7, 2), ["4 mla r0, r1, r2, r3", "4 umull r4, r5, r6, r7"]),
        # Two independent additions in one cycle; the second waits for the first; two shifts share a shifter.
        ("cortex-m7", (1, 1), ["2 adds r0, r1, r2", "2 adds r3, r4, r5"]),
        ("cortex-m7", (2, 1), ["2 adds r0, r1, r2", "2 adds r3, r0, r5"]),
        ("cortex-m7", (2, 1), ["2 lsls r0, r1, #2", "2 lsls r3, r4, #2"]),
        # What is loaded can be used a cycle later; a sum of products needs no wait.
        ("cortex-m7", (3, 1), ["2 ldr r0, [r1, #0]", "2 adds r0, r0, r5"]),
        ("cortex-m7", (2, 1), ["4 smlad r0, r1, r2, r0", "4 smlad r0, r3, r4, r0"]),
        # A vector load and a vector product overlap, two of the same do not.
        ("cortex-m55", (2, 2), ["4 vldrb.8 q0, [r0]", "4 vmladav.s8 r1, q2, q3"]),
        ("cortex-m55", (3, 2), ["4 vldrb.8 q0, [r0]", "4 vldrb.8 q1, [r1]"]),
        ("ri5cy", (2, 1), ["2 lw a0,0(a1)", "2 addi a2,a2,1"]),
        ("ri5cy", (3, 1), ["2 lw a0,0(a1)", "2 addi a2,a0,1"]),
        ("ri5cy", (6, 2), ["4 mulh a0,a1,a2", "4 bne a3,a4,40 <far>"]),
    ],
)
def test_other_cores(core: str, cycles: tuple[float, float], lines: list[str]) -> None:
    """Of a block, and of leaving it by a jump: dual issue, latencies, units that are busy, jumps of several kinds."""
    assert cycles_of(core, *lines)[:2] == cycles


def test_jumps_cost_more_into_the_middle_of_a_word() -> None:
    """A jump refills the pipeline, and once more where a wide instruction lies across two words."""
    timing = timing_of("cortex-m4")
    assert timing is not None
    code = Code.of(disassembly("2 nop", "4 add.w r0, r1, r2", "2 bx lr"), timing)
    assert code.block_cycles(2, 6) == (2, 2, 1)
    assert code.block_cycles(0, 8) == (3, 2, 0)


def test_what_ran_is_summed_up() -> None:
    """Two parts: a loop that runs four times and is entered by three jumps of its own, waits, and takes
    two accesses more."""
    timing = timing_of("cortex-m4")
    assert timing is not None
    code = Code.of(disassembly("2 subs r0, #1", "2 bne.n 0 <loop>"), timing)
    records = np.array([(0, 0, 4, 4, 3, 3, 7, 9, 2), (2, 0, 4, 1, 0, 0, 0, 0, 0)], dtype=RECORD)
    counted = Counted(records, code)
    assert counted.by_part == {0: Spent(4 * 2 + 3 * 2 + 7 + 9 + 2, 7, 9), 2: Spent(2, 0, 0)}
    assert counted.total == Spent(34, 7, 9)


TRACE = """
#include <stdio.h>
static void data(uint32_t at) { fetch_data(at, 4); }
static void code(uint32_t at, uint32_t bytes) {
    struct block block = {0};
    block.at = at;
    block.bytes = bytes;
    running->code_wait += fetch_code(&block);
}
int main(int count, char **arguments) {
    static struct block all;
    running = &all;
    for (int i = 1; i < count; ++i) {
        unsigned at, bytes;
        if (sscanf(arguments[i], "data:%u", &at) == 1) data(at);
        else if (sscanf(arguments[i], "run:%u:%u", &at, &bytes) == 2) code(at, bytes);
        else read_argument(arguments[i]);
    }
    printf("%u %u", all.code_wait, all.data_wait);
    return 0;
}
"""
"""Reads and fetches from the command line, instead of an emulator's."""


@pytest.fixture(scope="module")
def flash_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("flash")
    plugin = (files("diagmem.verification") / "firmware" / "count_instructions.c").read_text()
    (place / "trace.c").write_text(plugin + TRACE)
    unused = ["-Wl,--unresolved-symbols=ignore-all", "-ffunction-sections"]
    subprocess.run(["gcc", "-O1", "-no-pie", *unused, "trace.c", "-o", "trace"], cwd=place, check=True)
    return place / "trace"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler")
@pytest.mark.parametrize(
    ("waits", "trace"),
    [
        # Without a cache, each new word of eight bytes waits; the same one does not.
        ((0, 15), "miss=5 data:0 data:4 data:8 data:0"),
        # Two lines of eight bytes: the third pushes out the one that was used least recently.
        ((0, 20), "miss=5 data=2:2:8 data:0 data:8 data:0 data:16 data:0 data:8"),
        # One way: lines of the same set push each other out, the other set is left alone.
        ((0, 20), "miss=5 data=2:1:8 data:0 data:16 data:0 data:8 data:8"),
        # A word that lies in two lines waits for both.
        ((0, 10), "miss=5 data=4:4:8 data:6 data:0 data:8"),
        # Code that runs on into the next line has it from the prefetch, but for a part; back in the cache, it has all.
        ((5 + 2 * 2, 0), "miss=5 hidden=3 code=4:4:8 run:0:24 run:0:24"),
        ((5 + 5, 0), "miss=5 hidden=3 code=4:4:8 run:0:8 run:64:8 run:0:8"),
        # What code has brought, data finds, if they share.
        ((5, 0), "miss=5 shared=1 code=4:4:8 run:0:8 data:4"),
        ((5, 5), "miss=5 shared=0 code=4:4:8 data=4:4:8 run:0:8 data:4"),
    ],
)
def test_flash_on_traces(flash_model: Path, waits: tuple[int, int], trace: str) -> None:
    """Waits for code and for data, worked out by hand."""
    done = subprocess.run([str(flash_model), *trace.split()], capture_output=True, text=True, check=True)
    assert done.stdout == "{} {}".format(*waits)


def test_every_table_is_whole() -> None:
    """Each core that chips have either has a table with a source for each entry, or none at all; the chips' caches have
    sources, too."""
    known = [timing for core in CORES if (timing := timing_of(core.key)) is not None]
    assert len(known) >= 2
    for timing in known:
        assert all(entry.source and entry.cycles >= 0 for entry in timing.entries.values()), timing.core
        assert timing.entries.keys() <= timing.patterns.keys()
        assert (timing.error_percent is None) == (not timing.judged_by)
        assert timing.kind("whatever r0") in timing.patterns
    assert all(chip.flash_cache.source for chip in chips() if chip.flash_cache)
    assert all(bool(chip.power_source) == (chip.milliwatts is not None) for chip in chips())


def test_flash_waits_less_at_a_lower_clock() -> None:
    chip = chip_named("NUCLEO-L4R5ZI")
    assert chip.flash_miss_cycles == 5
    assert chip.at(24).flash_miss_cycles == 1
    assert chip.at(20).flash_miss_cycles == 0
    assert chip.at(None) is chip


@needs_emulator
def test_a_profile_tells_cycles() -> None:
    """More than instructions; those of the ops and of the call make up the run; what waits is part of them; the time is
    that of the target's clock."""
    found = pipeline.profile(tiny(), target="NUCLEO-L4R5ZI")
    cost = found.cost
    assert cost.cycles is not None
    assert cost.flash_wait_cycles is not None
    assert cost.cycles - cost.flash_wait_cycles > found.instructions
    assert 0 < cost.flash_wait_cycles < cost.cycles
    ops = sum(op.cycles or 0 for op in found.ops)
    assert 0.9 * cost.cycles < ops <= cost.cycles + len(found.ops)
    assert cost.ms == pytest.approx(cost.cycles / 120_000, rel=1e-3)
    told = found.to_json()
    assert told["cost"]["cycles"] == cost.cycles
    assert told["cost"]["error_percent"] == cost.error_percent
    assert told["ops"][0]["cycles"] == found.ops[0].cycles
    slower = pipeline.profile(tiny(), target="NUCLEO-L4R5ZI", mhz=20)
    assert slower.cost.flash_wait_cycles == 0
    assert slower.cost.cycles == cost.cycles - cost.flash_wait_cycles
    assert slower.cost.ms == pytest.approx(slower.cost.cycles / 20_000, rel=1e-3)


@needs_emulator
def test_without_a_target_nothing_is_known_of_time() -> None:
    cost = pipeline.profile(tiny(), on="cortex-m4").cost
    assert cost.cycles
    assert (cost.ms, cost.uj, cost.flash_wait_cycles) == (None, None, None)


def test_a_cache_that_is_not_known(tmp_path: Path) -> None:
    board = tmp_path / "board.toml"
    board.write_text('core = "cortex-m4"\nmhz = 100\nram = [{ name = "SRAM", kb = 64 }]\nflash_cache = "magic"\n')
    with pytest.raises(PlanError, match="magic"):
        chip_named(str(board))


def test_what_the_plugin_is_told() -> None:
    timing, chip = timing_of("cortex-m4f"), chip_named("NUCLEO-L4R5ZI")
    assert timing is not None
    told = list(plugin_arguments(Clock(timing, chip), 0, 4096))
    assert told[1:] == ["flash=0", "size=4096", "miss=5", "hidden=4", "shared=0", "code=128:128:8", "data=32:32:8"]
