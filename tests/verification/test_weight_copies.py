"""Weights that are copied before an op runs: bit for bit on the host, with red zones, and on boards."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagmem.backends import c
from diagmem.backends.c.program import Program
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType, Graph
from diagmem.verification.cortex_m import CORES, run_on_core
from diagmem.verification.host import run_on_host
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, program, tiny, with_weights, write
from tests.execution import with_values
from tests.networks import Net

POOLS = ("fast:600", "slow:1K:3")
STREAMED = {"schedule": "rows", "input_rows": True}


def with_copies(graph: Graph, **options: Any) -> Program:
    made = program(graph, **{"pools": POOLS, "weights_pool": "fast:20", **options})
    assert made.weight_copies
    return made


def failure(made: Program, graph: Graph) -> str | None:
    compiler("gcc")
    return run_on_host(made, sample_inputs(graph, 3)).failure


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (DType.INT8, {}),
        (DType.INT8, {"schedule": "rows"}),
        (DType.INT8, {"weights_pool": "slow:20", "align": 16}),
        (DType.INT8, {"pools": ("fast:1K",), "weights_ahead": True}),
        (DType.INT8, {"pools": ("fast:1K",), "weights_ahead": True, **STREAMED}),
        (DType.FLOAT32, {"pools": ("fast:3K", "slow:4K:3"), **STREAMED}),
    ],
)
def test_a_model_with_copies_is_right(dtype: DType, options: dict[str, Any]) -> None:
    """Every operation, bit for bit: whole, by rows, streamed; copies in the first pool, in another, in the only one."""
    graph = tiny(dtype)
    assert failure(with_copies(graph, **options), graph) is None


def test_rows_that_are_recomputed_find_the_copy() -> None:
    """It is made before the first turn, and not before those that come back to the first row."""
    b = Builder("again", DType.INT8)
    x = b.input(1, 30, 4, 2)
    for _ in range(2):
        x = b.conv(b.depthwise(b.conv(x, 16, 1), 3), 2, 1)
    graph = with_weights(b.graph(b.mean(x, keep_dims=True)))
    again = {"allocator": "greedy", "recompute": 2.0, **STREAMED}
    made = with_copies(graph, pools=("fast:64K",), weights_pool="fast:20", **again)
    assert any(len(turns) > len(set(turns)) for op, turns in made.visits.items() if op in made.weight_copies)
    assert failure(made, graph) is None


def test_a_constant_that_is_passed_as_a_tensor() -> None:
    """Its copy's address is passed instead."""
    net = Net(DType.FLOAT32)
    x = net.input(1, 6, 8)
    y = net.op("BATCH_MATMUL", _matmul(), x, net.filters(x, 1, 8, 5))
    graph = with_values(net.graph(y))
    made = with_copies(graph, pools=("fast:4K",), weights_pool="fast:9")
    assert "MODEL_COPY(" in c.emit(made, "model")["model.c"].decode()
    assert failure(made, graph) is None


def _matmul() -> Any:
    from diagmem.ops.matrix.products import BatchMatMul

    return BatchMatMul()


def test_a_copy_over_something_in_use_is_found() -> None:
    """At the end of the op's own input."""
    graph = tiny()
    made = with_copies(graph, pools=("fast:4K",))
    op, size = next((op, weights.size_bytes) for op, weights in made.copied_weights.items())
    tensor = made.graph.tensors[made.graph.ops[op].inputs[0]]
    at = (made.offsets[tensor.index] + tensor.size_bytes - 4) // 4 * 4
    longer = replace(made.pools.uses[0], used_bytes=at + size + made.arena_bytes)
    moved = replace(made, weight_copies={**made.weight_copies, op: at}, pools=replace(made.pools, uses=(longer,)))
    assert failure(moved, graph) is not None


def test_a_copy_over_the_end_is_found() -> None:
    """By the red zone behind the pool."""
    graph = tiny()
    made = with_copies(graph, pools=("fast:4K",))
    op, end = next(iter(made.weight_copies)), made.arena_bytes
    size = made.copied_weights[op].size_bytes
    shorter = replace(made.pools.uses[0], used_bytes=end + size - 1)
    moved = replace(made, weight_copies={**made.weight_copies, op: end}, pools=replace(made.pools, uses=(shorter,)))
    found = failure(moved, graph)
    assert found is not None
    assert "AddressSanitizer" in found


_LATE = """\
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static struct {{ void *to; const void *from; unsigned long bytes; }} begun[64];
static int waiting;
static void copy(void *to, const void *from, unsigned long bytes) {{
    begun[waiting].to = to; begun[waiting].from = from; begun[waiting++].bytes = bytes;
    memset(to, 0x55, bytes);
}}
static void copied(void) {{
    while (waiting > 0) {{ --waiting; memcpy(begun[waiting].to, begun[waiting].from, begun[waiting].bytes); }}
}}
{macros}
#include "model.c"
int main(void) {{
    for (int run = 0; run < 2; ++run) {{
        unsigned char *const in = (unsigned char *)model_input(0);
        for (int i = 0; i < MODEL_INPUT_0_BYTES; ++i) in[i] = (unsigned char)(i * (37 + run) + i / 7);
        model_invoke();
        fwrite(model_output(0), 1, MODEL_OUTPUT_0_BYTES, stdout);
    }}
    return 0;
}}
"""


@pytest.mark.parametrize("options", [{}, {"schedule": "rows"}])
def test_copies_may_come_late(options: dict[str, Any], tmp_path: Path) -> None:
    """As of DMA that is done when it is waited for, and disturbs from the start what it will write: the same bytes
    come out."""
    gcc = compiler("gcc")
    made = with_copies(tiny(), pools=("fast:1K",), weights_ahead=True, **options)
    write(c.emit(made, "model"), tmp_path)
    said = []
    for macros in ("", "#define MODEL_COPY(t, f, b) copy(t, f, b)\n#define MODEL_COPIED() copied()"):
        (tmp_path / "late.c").write_text(_LATE.format(macros=macros))
        sources = ["late.c", "model_weights.c", "-o", "late", "-w"]
        subprocess.run([gcc, *sources, "-lm"], cwd=tmp_path, check=True)
        said.append(subprocess.run([tmp_path / "late"], check=True, capture_output=True).stdout)
    assert said[0] == said[1]
    assert len(set(said[0])) > 2


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m4", "cortex-m55", "riscv32"])
def test_boards_with_two_memories(core: str) -> None:
    """Copies in the slower one, with the kernels of the core."""
    board = CORES[core]
    compiler(f"{board.made_by.prefix}gcc")
    compiler(board.made_by.emulator)
    graph = tiny()
    kernels = {"cortex-m4": "diagmem-dsp", "cortex-m55": "diagmem-mve"}.get(core, "diagmem")
    options = {"pools": ("fast:200", "slow:2K:2"), "weights_pool": "slow:20", "kernels": kernels}
    assert run_on_core(with_copies(graph, **options), sample_inputs(graph, 2), board).failure is None


def test_rows_on_a_board() -> None:
    compiler("arm-none-eabi-gcc")
    compiler("qemu-system-arm")
    graph = tiny()
    assert run_on_core(with_copies(graph, **STREAMED), sample_inputs(graph, 2), CORES["cortex-m3"]).failure is None


def test_weights_that_a_copy_gains_nothing_for_are_read_from_flash() -> None:
    """Of a fully connected layer with one row: no copy, and no word of one in the code."""
    net = Net(DType.FLOAT32)
    x = net.input(1, 16)
    y = net.op("FULLY_CONNECTED", _connected(), x, net.filters(x, 8, 16))
    graph = with_values(net.graph(y))
    made = program(graph, pools=("fast:64K",), weights_pool="fast:1000")
    assert made.weight_copies == {}
    assert b"_COPY" not in c.emit(made, "model")["model.c"]


def _connected() -> Any:
    from diagmem.ops.matrix.products import FullyConnected

    return FullyConnected()
