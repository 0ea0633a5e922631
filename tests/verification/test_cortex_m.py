"""Running as firmware on emulated cores: right, measured, and within a real chip's memory."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from diagmem.backends.c.program import Program
from diagmem.frontends.zoo import build
from diagmem.model.graph import DType, Graph
from diagmem.planning.plan import Storage
from diagmem.targets import chip_named
from diagmem.tracing.model import side_by_side
from diagmem.verification.cortex_m import CORES, Core, Memory, run_on_core
from diagmem.verification.reference import sample_inputs
from diagmem.verification.tools import ToolError
from tests.backends.c.models import compiler, program, tiny, with_weights
from tests.ops.deep_nodes import KINDS, deep_nodes
from tests.profiles import some


@pytest.fixture(autouse=True)
def _tools() -> None:
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm", "gcc"):
        compiler(tool)


@pytest.mark.parametrize("core", CORES.values(), ids=lambda core: core.name)
@pytest.mark.parametrize(
    ("dtype", "schedule"),
    [(DType.INT8, "auto"), (DType.INT8, "best"), (DType.FLOAT32, "auto"), (DType.FLOAT32, "best")],
)
def test_every_core_gives_the_same_bits(core: Core, dtype: DType, schedule: str) -> None:
    """With and without a floating-point unit, row by row and layer by layer. All that is measured is there."""
    compiler(f"{core.made_by.prefix}gcc")
    compiler(core.made_by.emulator)
    graph = tiny(dtype)
    run = run_on_core(program(graph, schedule=schedule), sample_inputs(graph, 3), core)
    assert run.failure is None
    assert run.stack_bytes is not None
    assert 64 <= run.stack_bytes <= 2048
    assert run.code_bytes is not None
    assert 1000 <= run.code_bytes <= 16384
    assert run.static_bytes == 0
    assert run.weights_bytes
    assert run.instructions


@pytest.mark.parametrize(
    ("core", "kernels"),
    [
        *itertools.product(("cortex-m3", "cortex-m4", "cortex-m55"), ("diagmem-dsp", "diagmem-dsp/all")),
        *itertools.product(("cortex-m3", "cortex-m55"), ("diagmem-mve", "diagmem-mve/all")),
    ],
)
def test_kernels_for_more_than_plain_c_give_the_same_bits(core: str, kernels: str) -> None:
    """On a core that has the instructions, and on one that has not."""
    made = side_by_side([node for kind in KINDS for node in deep_nodes(kind, some(24))], kernels)
    assert run_on_core(made, sample_inputs(made.graph, 3), CORES[core]).failure is None


def test_kernels_for_vectors_overlap_up_to_the_limit() -> None:
    """No tracer knows their instructions, so the emulator tells. As near as may be, every node is right; one byte
    nearer, nodes of each of these kinds are wrong."""
    core, kernels = "cortex-m55", "diagmem-mve"
    limited = ("POINTWISE", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MAX_POOL_2D", "ADD")
    nodes = {kind: deep_nodes(kind, 12) for kind in limited}
    made = _overlapped(side_by_side([node for kind in limited for node in nodes[kind]], kernels), 0)
    assert run_on_core(made, sample_inputs(made.graph, 3), CORES[core]).failure is None
    for kind in limited:
        made = _overlapped(side_by_side(nodes[kind], kernels), 1)
        assert run_on_core(made, sample_inputs(made.graph, 12), CORES[core]).failure is not None


def _overlapped(made: Program, nearer_bytes: int) -> Program:
    """The first input of every op as near above its output as its kernel allows, or nearer."""
    storage = dict(made.storage)
    for node in made.graph.nodes:
        source, target = node.input(0), node.output
        apart = (made.library.separation(node, 0, 0) or 0) - nearer_bytes
        low = made.offsets[target.index]
        for tensor, offset in ((target, low + max(0, -apart)), (source, low + max(0, apart))):
            storage[tensor.index] = Storage.linear(offset, tensor.rows, tensor.row_bytes)
    return replace(made, storage=storage)


def test_instructions_are_counted_exactly() -> None:
    """The same input takes the same number of instructions, every time."""
    graph = tiny()
    counts = {run_on_core(program(graph), sample_inputs(graph, 1), CORES["cortex-m4"]).instructions for _ in range(2)}
    assert len(counts) == 1


def test_a_wrong_plan_is_found_and_its_op_named() -> None:
    """An output moved onto an input that is still needed."""
    graph = tiny()
    made = program(graph, schedule="best")
    pooled = next(node for node in graph.nodes if node.op.kind == "DEPTHWISE_CONV_2D")
    onto = Storage.linear(made.offsets[pooled.input(0).index], pooled.output.rows, pooled.output.row_bytes)
    broken = replace(made, storage={**made.storage, pooled.output.index: onto})
    failure = run_on_core(broken, sample_inputs(graph, 6), CORES["cortex-m3"]).failure
    assert failure is not None
    assert "(DEPTHWISE_CONV_2D)" in failure


def test_the_paper_s_model_runs_in_96_kilobytes() -> None:
    """MobileNet v1 0.25 128 in 8 bits within the memory map of an STM32F103xF, layer by layer: arena, stack, data."""
    graph = _mobilenet()
    chip = chip_named("STM32F103xF")
    memory = Memory(chip.flash_bytes, chip.sram_bytes)
    assert memory.ram_bytes == 96 * 1024
    run = run_on_core(program(graph, schedule="best"), sample_inputs(graph, 1, seed=1), CORES["cortex-m3"], memory)
    assert run.failure is None
    assert run.arena_bytes + (run.stack_bytes or 0) + (run.static_bytes or 0) < memory.ram_bytes


def test_what_does_not_fit_does_not_link() -> None:
    """RAM that is a byte too small for the arena alone."""
    made = program(tiny())
    memory = Memory(64 * 1024, made.arena_bytes - 1)
    with pytest.raises(ToolError, match="arm-none-eabi-gcc failed"):
        run_on_core(made, sample_inputs(made.graph, 1), CORES["cortex-m3"], memory)


def _mobilenet() -> Graph:
    return with_weights(build("mobilenet_v1_0.25_128_int8"))
