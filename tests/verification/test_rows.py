"""Models that run row by row in C compute the same bytes, in an arena of exactly the size that is planned."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.frontends import source as models
from diagmem.frontends.source import Source
from diagmem.frontends.zoo.networks import Builder
from diagmem.kernels import library
from diagmem.kernels.rows import row_graph
from diagmem.model.graph import DType, Graph
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.order.rows import RowOrders
from diagmem.planning.place.exact import multi_start
from diagmem.planning.plan import Storage, findings_of
from diagmem.transforms import FOR_ROWS, TRANSFORMS
from diagmem.validation import Fault, replay
from diagmem.verification import reference
from diagmem.verification.cortex_m import CORES, run_on_core
from diagmem.verification.harness import differences, spans
from diagmem.verification.host import Machine, run_on_host, trace_on_host
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, with_weights
from tests.row_networks import UNOPTIMISED, flat_net, image_net, image_to_image, line_net, side_by_side

MLPERF_TINY = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
LARGEST = {
    "kws_ref_model": (4_200, 3_900),
    "pretrainedResnet_quant": (11_000, 9_900),
    "vww_96_int8": (28_300, 11_200),
    "mobilenet_v1_0.25_128_int8": (49_700, 16_600),
}
"""Bytes that the arena may take with the input in it, and with the input handed over row by row."""


def by_rows(graph: Graph, input_rows: bool = False, skip: Collection[str] = ()) -> Program | None:
    """None where running row by row needs no less RAM than running layer by layer."""
    made = Program.of(pipeline.plan(graph, schedule="rows", input_rows=input_rows, skip=skip))
    return made if made.schedule.has_turns else None


@pytest.mark.parametrize(("net", "seeds", "least"), [(image_net, 44, 20), (line_net, 30, 20), (flat_net, 30, 9)])
def test_random_networks(net: Callable[[int], Graph], seeds: int, least: int) -> None:
    """Strides, pads, dilations, residuals, pools, several readers, integers and floats, images and lines: every row
    that is made is right, under the sanitizers."""
    compiler("gcc")
    # Every op is there, so that numpy computes the graph as it runs.
    found = [
        made
        for made in (by_rows(net(seed), skip=TRANSFORMS.keys() - {*FOR_ROWS}) for seed in range(seeds))
        if made is not None
    ]
    assert len(found) > least
    program = side_by_side(found)
    inputs = sample_inputs(program.graph, 2)
    sent, complaint = trace_on_host(program, inputs, Machine(flags=UNOPTIMISED))
    assert not complaint
    for run, values in enumerate(inputs):
        assert list(wrong(program, sent, run, reference.run(program.graph, values))) == []


def wrong(program: Program, sent: bytes, run: int, values: object) -> Iterator[str]:
    expected = spans(program, is_traced=True)
    size = sum(span.size_bytes for span in expected)
    assert len(sent) >= (run + 1) * size
    return differences(expected, values, sent[run * size : (run + 1) * size])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("net", "seed"), [(image_net, 3), (image_net, 12), (line_net, 5), (line_net, 11), (flat_net, 2), (flat_net, 3)]
)
def test_random_networks_with_streamed_input(net: Callable[[int], Graph], seed: int) -> None:
    """The caller's rows come one by one; the run is complete with the last one, and not before."""
    compiler("gcc")
    program = by_rows(net(seed), input_rows=True)
    assert program is not None
    assert run_on_host(program, sample_inputs(program.graph, 4)).failure is None


@pytest.mark.parametrize("input_rows", [False, True])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.FLOAT32])
def test_an_image_from_an_image(dtype: DType, input_rows: bool) -> None:
    """Transposed convolutions and slices make rows too: a network that ends in an image holds little of it at once."""
    compiler("gcc")
    graph = image_to_image(dtype)
    program = by_rows(graph, input_rows)
    assert program is not None
    assert not any(op.is_whole for op in program.rows.ops)
    whole = pipeline.plan(graph, schedule="best")
    assert program.arena_bytes < whole.arena_bytes * (0.6 if input_rows else 0.75)
    assert run_on_host(program, sample_inputs(graph, 3)).failure is None


def test_a_row_too_near_is_caught_and_corrupts_the_run() -> None:
    """Rows moved down by one row, onto others that still live: the validator refuses each plan, and each computes
    something else."""
    compiler("gcc")
    graph = image_net(5)
    sound = by_rows(graph)
    assert sound is not None
    assert faults(sound) == set()
    broken = list(itertools.islice(moved_rows(sound), 12))
    assert len(broken) > 5
    program = side_by_side([replace(b, graph=replace(graph, name=f"broken{n}")) for n, b in enumerate(broken)])
    samples = sample_inputs(program.graph, 6, seed=3)
    sent, _ = trace_on_host(program, samples, Machine(flags=UNOPTIMISED))
    runs = [wrong(program, sent, run, reference.run(program.graph, values)) for run, values in enumerate(samples)]
    complaints = [complaint for run in runs for complaint in run]
    for n in range(len(broken)):
        assert any(f"broken{n}/" in complaint for complaint in complaints)


def moved_rows(program: Program) -> Iterator[Program]:
    """Programs with one row of a table moved down by a row, those that the validator refuses."""
    for tensor, storage in program.storage.items():
        size, offsets = program.rows.row_bytes[tensor], storage.offsets
        for row, offset in enumerate(offsets):
            if tensor not in program.offsets and offset >= size:
                table = (*offsets[:row], offset - size, *offsets[row + 1 :])
                moved = replace(program, storage={**program.storage, tensor: Storage.of(table)})
                if faults(moved) == {Fault.OVERWRITTEN}:
                    yield moved


def faults(program: Program) -> set[Fault]:
    row_offsets = {tensor: storage.offsets for tensor, storage in program.storage.items()}
    places = program.schedule, row_offsets, program.scratch, program.arena_bytes
    return {finding.fault for finding in replay(program.graph, library("diagmem"), *places)}


def test_rows_that_are_recomputed() -> None:
    """Where rows are dropped after use and recomputed, each time they are the same."""
    compiler("gcc")
    b = Builder("again", DType.INT8)
    x = b.input(1, 30, 4, 2)
    for _ in range(2):
        x = b.conv(b.depthwise(b.conv(x, 16, 1), 3), 2, 1)
    graph = with_weights(b.graph(b.mean(x, keep_dims=True)))
    made = pipeline.plan(graph, schedule="rows", allocator="greedy", input_rows=True, recompute=2)
    assert made.plan.recompute > 1
    assert run_on_host(Program.of(made), sample_inputs(graph, 3)).failure is None


@pytest.mark.parametrize("piece", [1, 4])
def test_rows_that_are_recomputed_in_pieces(piece: int) -> None:
    """The paper's splitting: each piece of the block behind a wide tensor recomputes its margin of it."""
    compiler("gcc")
    b = Builder("pieces", DType.INT8)
    x = b.conv(b.input(1, 30, 4, 2), 4, 3)
    graph = with_weights(b.graph(b.conv(b.conv(b.depthwise(b.conv(x, 16, 1), 3), 2, 1), 2, 3)))
    plan = pipeline.plan(graph, schedule="rows", input_rows=True, skip="all").plan
    rows = row_graph(graph, library("diagmem"))
    split = RowOrders(rows, input_rows=True, again=4).best(frozenset({(graph.ops[1].outputs[0], piece)}))
    problem = build_problem(footprint(graph, plan.options), split.schedule)
    placed = multi_start(problem)
    made = plan.with_buffers(
        problem.buffers,
        placed.offsets,
        schedule=split.schedule,
        arena_bytes=placed.arena_bytes,
        pressure=problem.pressure,
        recompute=float(split.macs / rows.macs(plan.schedule.ops)),
    )
    assert made.recompute > 1
    assert findings_of(made) == []
    assert run_on_host(Program.running(made), sample_inputs(graph, 3)).failure is None


def test_the_arena_is_used_to_its_last_byte() -> None:
    """In an arena that is one byte shorter, the sanitizer sees a row end outside."""
    compiler("gcc")
    program = by_rows(image_net(5))
    assert program is not None
    short = replace(program, arena_bytes=program.arena_bytes - 1)
    assert "AddressSanitizer" in (run_on_host(short, sample_inputs(program.graph, 1)).failure or "")


@pytest.mark.parametrize("input_rows", [False, True])
@pytest.mark.parametrize("name", MLPERF_TINY)
def test_mlperf_tiny_on_the_host(name: str, input_rows: bool, shared: Path) -> None:
    """Every row of every tensor, in no more RAM than this."""
    compiler("gcc")
    graph = Source(shared / "models" / "mlperf_tiny" / f"{name}.tflite").graph
    run = run_on_host(Program.of(pipeline.plan(graph, schedule="rows", input_rows=input_rows)), sample_inputs(graph, 5))
    assert run.failure is None
    assert run.arena_bytes <= LARGEST.get(name, (800, 800))[input_rows]


@pytest.mark.parametrize("input_rows", [False, True])
def test_mobilenet_on_the_host(input_rows: bool) -> None:
    compiler("gcc")
    name = "mobilenet_v1_0.25_128_int8"
    graph = models.Source(f"zoo:{name}").runnable
    program = by_rows(graph, input_rows)
    assert program is not None
    run = run_on_host(program, sample_inputs(graph, 2))
    assert run.failure is None
    assert run.arena_bytes <= LARGEST[name][input_rows]


def test_on_a_cortex_m4(shared: Path) -> None:
    """The same outputs, and within 5 % of the instructions that layer by layer takes."""
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm", "gcc"):
        compiler(tool)
    graph = Source(shared / "models" / "mlperf_tiny" / "kws_ref_model.tflite").graph
    inputs, core = sample_inputs(graph, 2), CORES["cortex-m4"]
    whole = run_on_core(Program.of(pipeline.plan(graph, schedule="best")), inputs, core)
    for input_rows in (False, True):
        program = by_rows(graph, input_rows)
        assert program is not None
        run = run_on_core(program, inputs, core)
        assert run.failure is None
        assert (run.instructions or 0) < 1.05 * (whole.instructions or 0)
