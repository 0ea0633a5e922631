"""Chips and boards: every figure has a source, names are found as people type them, files of one's own are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from diagmem.model.errors import PlanError
from diagmem.model.pools import pools_of
from diagmem.targets import RESERVE_BYTES, boards, chip_named, chips
from tests.cli.calling import call

OWN = """
name = "my board"
core = "cortex-m4f"
mhz = 80
ram = [{ name = "fast", kb = 16, cost = 1 }, { name = "main", kb = 96, cost = 2 }]
flash_kb = 512
flash_wait_states = 4
"""


def written(folder: Path, text: str) -> str:
    """A file that `--target` takes."""
    path = folder / "board.toml"
    path.write_text(text)
    return str(path)


def test_there_are_many() -> None:
    """Of all families that people use, and no name means two things."""
    assert len(chips()) >= 120
    names = [name.lower() for chip in chips() for name in (chip.name, *chip.aliases)]
    names += [board.name.lower() for board in boards()]
    assert len(names) == len(set(names))


def test_figures_have_a_source() -> None:
    """Also those that not every chip has: the order of memories where they differ, and wait states of flash."""
    for chip in chips():
        assert chip.source, chip.name
        assert chip.vendor, chip.name
        assert chip.mhz, chip.name
        assert bool(chip.order_source) == (len({memory.cost for memory in chip.memories}) > 1), chip.name
        assert bool(chip.flash_cost) == bool(chip.wait_source) == (chip.wait_states is not None), chip.name
        assert chip.flash_bytes or not chip.flash_cost, chip.name


def test_memories_are_all_of_its_ram() -> None:
    """No more and no less than its regions, fastest first, but for what firmware keeps."""
    for chip in chips():
        pools = pools_of(chip.pools)
        assert [pool.cost for pool in pools] == [memory.cost for memory in chip.memories], chip.name
        assert sum(memory.size_bytes for memory in chip.memories) == chip.sram_bytes, chip.name
        assert sum(pool.capacity_bytes for pool in pools) == chip.sram_bytes - RESERVE_BYTES, chip.name


def test_flash_costs_its_wait_states_and_one() -> None:
    """In cycles of the core, also where flash runs at half its clock."""
    assert (chip_named("STM32F746ZG").flash_cost, chip_named("STM32H743ZI").flash_cost) == (8, 10)
    assert chip_named("STM32F746ZG").flash_source == "7 at 216 MHz: ST RM0385, flash wait states"
    assert chip_named("STM32H743ZI").flash_source.startswith("4 at 240 MHz, half of the core's clock: ST RM0433")
    assert (chip_named("RP2040").flash_cost, chip_named("RP2040").flash_source) == (0, "")


def test_words_that_are_read_one_behind_the_other_share_the_wait() -> None:
    """By the cache of the chip; where none is known, each waits for itself."""
    costs = {name: chip_named(name).read_cost for name in ("STM32L4R5ZI", "STM32H743ZI", "RP2040", "STM32F091RC")}
    assert costs == {"STM32L4R5ZI": 3.5, "STM32H743ZI": 2.125, "RP2040": 31.0, "STM32F091RC": 2}


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("stm32l4r5zi", "STM32L4R5ZI"),
        ("arduino nano 33 ble", "nRF52840"),
        ("ESP32-S3-DevKitC", "ESP32-S3"),
        ("ESP32S3", "ESP32-S3"),
        ("nucleo_l4r5zi", "STM32L4R5ZI"),
        ("RA6M5", "R7FA6M5BH"),
        ("STM32H743", "STM32H743ZI"),
        ("STM32F746NG", "STM32F746ZG"),
        ("STM32F746NGH6", "STM32F746ZG"),
        ("STM32WB55CG", "STM32WB55RG"),
    ],
)
def test_names_as_people_type_them(asked: str, meant: str) -> None:
    """Case, blanks and dashes do not matter, nor do packages."""
    assert chip_named(asked).name == meant


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("STM32F103", "mean STM32F103C8 or STM32F103RB or STM32F103xF?"),
        ("stm32h74", "mean STM32H743ZI or STM32H747XI or "),
        ("Nano 33", "mean Arduino Nano 33 "),
        ("STM32F746ZI", "STM32F746ZG"),
        ("NUCLEO-L4R5ZY", "mean NUCLEO-L4R5ZI"),
        ("", "`diagmem targets` lists"),
        ("qqqqqqq", "`diagmem targets` lists"),
    ],
)
def test_suggestions_are_the_nearest(asked: str, meant: str) -> None:
    with pytest.raises(PlanError, match="is not known") as raised:
        chip_named(asked)
    assert meant in str(raised.value)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """Says what a chip of the table says."""
    chip = chip_named(written(tmp_path, OWN))
    assert (chip.name, chip.core.name, chip.mhz, chip.flash_bytes) == ("my board", "Cortex-M4F", 80, 512 * 1024)
    assert (chip.sram_bytes, chip.arena_limit_bytes, chip.flash_cost) == (112 * 1024, 95 * 1024, 5)
    assert chip.pools == ("fast:16384:1", "main:97280:2")
    least = chip_named(written(tmp_path, 'core = "m0"\nram = [{ name = "RAM", kb = 8 }]'))
    assert (least.name, least.core.name, least.flash_bytes, least.mhz) == ("board", "Cortex-M0", 0, None)


def test_a_plan_for_a_file_of_ones_own(tmp_path: Path) -> None:
    done = call("plan", "zoo:kws_dscnn_int8", "--target", written(tmp_path, OWN))
    assert done.returncode == 0
    assert done.stdout.startswith("kws_dscnn_int8 on my board (Cortex-M4F, 80 MHz): fits\n")
    assert re.search(r"  RAM   5\.\d KB of 16 KB .* arena 4\.0, stack up to 1\.\d; fast\n", done.stdout)
    # It is in the fastest memory that holds it.
    words = ("--schedule", "file", "--no-overlap", "--target", written(tmp_path, OWN))
    assert "of 96 KB " in call("plan", "zoo:kws_dscnn_int8", *words).stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("mhz = 80", "mhz = "), "is not TOML: "),
        (("mhz = 80", "mhz = -1"), "mhz = -1 is not a number of MHz"),
        (("mhz = 80\n", ""), "give mhz too"),
        (("mhz", "megahertz"), "key 'megahertz' is not known; known: name, "),
        (('"cortex-m4f"', '"cortex-m5"'), "core 'cortex-m5' is not known; did you mean cortex-m"),
        (('"cortex-m4f"', "4"), "core = 4 is not a text"),
        (('core = "cortex-m4f"', ""), "key 'core' is missing"),
        (("cost = 2", "cost = 0"), "at least 1 each"),
        (("cost = 1", "cost = 3"), "the fastest memory first"),
        (('"main"', '"fast"'), "listed once"),
        (('"main"', '"9"'), "is not a name"),
        (("kb = 96", "size = 96"), 'is not { name = "SRAM", kb = 64, cost = 1 }'),
        (("flash_kb = 512", "flash_kb = 1.5"), "is not a number of KB"),
        (("flash_kb", 'regions = [{ name = "all", kb = 96 }]\nflash_kb'), "regions have not the same size as ram"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_in_a_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert change[0] in OWN
    path = written(tmp_path, OWN.replace(*change))
    with pytest.raises(PlanError) as raised:
        chip_named(path)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absent, a directory, not text, too deep."""
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "deep.toml").write_text("ram = " + "[" * 100_000)
    monkeypatch.chdir(tmp_path)
    for name in ("none", "folder", "bytes", "deep"):
        with pytest.raises(PlanError, match=f"{name}.toml': "):
            chip_named(f"{name}.toml")
