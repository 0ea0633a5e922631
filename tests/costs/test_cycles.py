"""Cycles without an emulator: what the tables know, and how clocks, caches and boards enter."""

from __future__ import annotations

from dataclasses import replace

import pytest

import diagmem
from diagmem.costs import Costs
from diagmem.costs.cycles import Clock, Spent, cold_steps
from diagmem.frontends.source import Source
from diagmem.targets import chip_named, timing_of

CHIPS = ("STM32L4R5ZI", "RP2040", "STM32H743ZI", "STM32H563ZI", "STM32F103RB", "ESP32-C3", "R7FA8D1BH")


@pytest.mark.parametrize("chip", CHIPS)
def test_kernels_of_networks_are_known(chip: str) -> None:
    """One of each kind of core tells time, and the share of it that waits where the chip's flash is known."""
    made = diagmem.plan(Source("zoo:kws_dscnn_int8"), target=chip)
    cost = made.costs.on()
    assert cost.cycles is not None
    assert cost.ms == pytest.approx(cost.cycles / (1000 * (chip_named(chip).mhz or 0)))
    assert (cost.flash_wait_cycles is None) == (chip_named(chip).flash_cache is None)


def test_a_board_that_was_measured_enters_all_figures() -> None:
    """Measured cycles over predicted ones."""
    timing, chip = timing_of("cortex-m4f"), chip_named("STM32L4R5ZI")
    assert timing is not None
    clock, spent = Clock(timing, chip), Spent(1000, 100, 50)
    plain, measured = clock.told(spent), replace(clock, chip=replace(chip, calibrated=(1.2, 0.5))).told(spent)
    assert (measured["cycles"], measured["flash_wait_cycles"]) == (1200, 180)
    assert measured["ms"] == pytest.approx(1.2 * plain["ms"])
    assert measured["error_percent"] == 0.5
    cycles, ms = replace(clock, chip=replace(chip, calibrated=(1.2, 0.5))).of_op(spent)
    assert cycles == 1200
    assert ms == pytest.approx(1.2 * plain["ms"])


def test_less_is_waited_at_a_lower_clock() -> None:
    """Flash has fewer wait states then; the core takes as many cycles as ever."""
    made = diagmem.plan(Source("zoo:kws_dscnn_int8"), target="STM32L4R5ZI")
    chip = chip_named("STM32L4R5ZI")
    fast, slow = (made.costs.spent(Clock.of(chip, None, mhz)) or {} for mhz in (120, 40))
    assert sum(one.wait for one in slow.values()) < sum(one.wait for one in fast.values())
    for op, one in fast.items():
        assert one.cycles - one.wait == pytest.approx(slow[op].cycles - slow[op].wait)


def test_what_others_drive_out_of_a_cache_is_fetched_again() -> None:
    """Ops that run by turns need all that they share a cache with to fit into it."""
    made = diagmem.plan(Source("zoo:kws_dscnn_int8"), target="STM32L4R5ZI", schedule="rows")
    program = Costs.of(made).firmware
    held = {op: (str(op), 1000) for op in program.visits}
    assert set(cold_steps(program, held, 10**6).values()) == {1}
    assert cold_steps(program, held, 999) == {op: len(turns) for op, turns in program.visits.items()}
