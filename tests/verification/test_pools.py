"""Several memories: an arena in each, on the host with red zones around them, and on boards that have two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType, Graph
from diagmem.model.pools import PoolLayout
from diagmem.verification.cortex_m import CORES, Core, run_on_core
from diagmem.verification.host import run_on_host
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, program, tiny
from tests.streams import stream

TWO = ("fast:140", "slow:1K:5")
THREE = ("fast:64", "mid:140", "slow:1K:5")
BOARDS = ("cortex-m3", "cortex-m7", "cortex-m33", "cortex-m55", "riscv32")
"""All that have a second memory at an address of their own."""


@pytest.fixture(autouse=True)
def _gcc() -> None:
    compiler("gcc")


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (DType.INT8, {"pools": TWO}),
        (DType.INT8, {"pools": THREE, "schedule": "rows"}),
        (DType.INT8, {"pools": ("fast:100", "slow:1K"), "schedule": "rows", "input_rows": True}),
        (DType.FLOAT32, {"pools": ("fast:600", "slow:4K"), "align": 16}),
    ],
)
def test_a_planned_model_is_right(dtype: DType, options: dict[str, Any]) -> None:
    """Every operation, bit for bit: whole, by rows, streamed; arenas begin where they are aligned."""
    graph = tiny(dtype)
    made = program(graph, **options)
    assert len(made.pools.uses) >= 2
    run = run_on_host(made, sample_inputs(graph, 3))
    assert (run.failure, run.arena_bytes) == (None, made.arena_bytes)


def shrunk(made: Program, number: int) -> Program:
    """With an arena that is a byte too small."""
    uses = tuple(replace(use, used_bytes=use.used_bytes - (n == number)) for n, use in enumerate(made.pools.uses))
    return replace(made, pools=PoolLayout(uses))


@pytest.mark.parametrize("number", [0, 1])
def test_the_red_zones_are_watched(number: int) -> None:
    """Of each arena: what is said to be smaller than it is is overrun, and the sanitizer says so."""
    graph = tiny()
    made = program(graph, pools=TWO)
    failure = run_on_host(shrunk(made, number), sample_inputs(graph, 1)).failure
    assert failure is not None
    assert "AddressSanitizer" in failure


def test_a_buffer_in_the_wrong_pool_is_found() -> None:
    """Something that lives beside others in one memory, moved onto what lives in the other."""
    graph = tiny()
    made = program(graph, pools=TWO)
    fast, slow = made.pools.uses
    moved = next(t for t, s in made.storage.items() if s.base == fast.start and graph.tensors[t].size_bytes == 128)
    there = replace(made.storage[moved], base=slow.start)
    failure = run_on_host(replace(made, storage={**made.storage, moved: there}), sample_inputs(graph, 2)).failure
    assert failure is not None


def test_state_stays_in_its_pool() -> None:
    """What lives from run to run is where it was, and the rest is poisoned between runs."""
    graph = stream(7)
    single = pipeline.plan(graph).arena_bytes
    made = program(graph, pools=(f"fast:{single // 2}", "slow:64K"))
    assert graph.variables
    assert len(made.pools.uses) == 2
    assert run_on_host(made, sample_inputs(graph, 4)).failure is None


def on_core(graph: Graph, core: Core, **options: Any) -> str | None:
    compiler(f"{core.made_by.prefix}gcc")
    compiler(core.made_by.emulator)
    return run_on_core(program(graph, **options), sample_inputs(graph, 2), core).failure


@pytest.mark.parametrize("core", [CORES[name] for name in BOARDS], ids=BOARDS)
def test_boards_with_two_memories(core: Core) -> None:
    """The first pool in the board's RAM, the others in its other RAM, by the linker script."""
    assert on_core(tiny(), core, pools=THREE) is None


def test_rows_in_two_memories_of_a_board() -> None:
    assert on_core(tiny(), CORES["cortex-m4"], pools=THREE, schedule="rows", input_rows=True) is None


def test_a_plan_that_does_not_fit_becomes_no_code() -> None:
    with pytest.raises(PlanError, match="does not fit its pools"):
        Program.of(pipeline.plan(tiny(), pools=("fast:10", "slow:20")))
