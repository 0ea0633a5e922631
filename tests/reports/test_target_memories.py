"""The memories of chips, as pools."""

from __future__ import annotations

import pytest

from diagmem.planning.pools import pools_of
from diagmem.reports.targets import RESERVE_BYTES, TARGETS, Target, target


@pytest.mark.parametrize("chip", TARGETS, ids=lambda chip: chip.name)
def test_memories_are_all_of_its_ram(chip: Target) -> None:
    """No more and no less than its regions, fastest first, but for what firmware keeps."""
    assert pools_of(chip.pools) == chip.pools
    assert sum(size for _, size, _ in chip.memories) == chip.sram_bytes
    assert sum(pool.capacity_bytes for pool in chip.pools) == chip.sram_bytes - RESERVE_BYTES


@pytest.mark.parametrize("chip", TARGETS, ids=lambda chip: chip.name)
def test_costs_have_a_source(chip: Target) -> None:
    """Where memories differ, and of flash where its wait states are known: as many and one more."""
    assert bool(chip.order_source) == (len({cost for _, _, cost in chip.memories}) > 1)
    assert bool(chip.flash_cost) == bool(chip.flash_source)
    if chip.flash_cost:
        waits = int(chip.flash_source.split(" at ")[0])
        assert chip.flash_cost == (waits + 1) * (2 if "half of the core's clock" in chip.flash_source else 1)


def test_a_name_without_its_package() -> None:
    assert target("STM32H743") is target("STM32H743ZI")
