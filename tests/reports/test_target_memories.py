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


def test_a_name_without_its_package() -> None:
    assert target("STM32H743") is target("STM32H743ZI")
