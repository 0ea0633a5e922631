"""TFLM's own planner, predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagmem.backends.tflm.greedy import ONLINE, layout
from diagmem.frontends.source import Source
from diagmem.kernels import Library, library
from diagmem.model.graph import DType, Graph, Op, Tensor

REFERENCE = library("tflm-reference")
STOCK_HEADS = {"ad01_int8": 768, "kws_ref_model": 16000, "pretrainedResnet_quant": 49152, "vww_96_int8": 73728}


def chain(*sizes: int) -> Graph:
    """Tensors of these sizes, each made of the one before by an operation of no known kind."""
    tensors = tuple(Tensor(i, f"t{i}", (size,), DType.INT8) for i, size in enumerate(sizes))
    ops = tuple(Op(i, "CUSTOM:x", (i,), (i + 1,)) for i in range(len(sizes) - 1))
    return Graph("chain", tensors, ops, (0,), (len(sizes) - 1,))


@pytest.mark.parametrize(("name", "head"), STOCK_HEADS.items())
def test_heads_of_stock_tflm(shared: Path, name: str, head: int) -> None:
    """The heads that TFLM itself reports for the MLPerf Tiny files."""
    graph = Source(shared / "models" / "mlperf_tiny" / f"{name}.tflite").graph
    assert layout(graph, [ONLINE] * len(graph.tensors), REFERENCE).head_bytes == head


def test_largest_first_at_the_lowest_gap() -> None:
    """Sizes are rounded up to 16; the largest takes the bottom, its neighbours lie above, and share."""
    assert layout(chain(20, 100, 30), [ONLINE] * 3, REFERENCE).tensors == {1: 0, 2: 112, 0: 112}


def test_given_offsets_are_obeyed() -> None:
    """Offline offsets stay, and what is left to TFLM is put around those that live at the same time."""
    assert layout(chain(32, 32, 32), [ONLINE, 16, ONLINE], REFERENCE).tensors == {1: 16, 2: 48, 0: 48}
    assert layout(chain(32, 32, 32), [0, 8, 40], REFERENCE).head_bytes == 72


def test_tensor_that_nobody_uses_still_takes_room() -> None:
    """TFLM plans it for no time at all, at the bottom, so it can set the head."""
    graph = chain(16, 16)
    lone = Graph(
        "lone", (*graph.tensors, Tensor(2, "lone", (500,), DType.INT8)), graph.ops, graph.inputs, graph.outputs
    )
    assert layout(lone, [ONLINE] * 3, REFERENCE).head_bytes == 512


def test_scratch_lies_clear_of_what_lives() -> None:
    """It is placed like a tensor that lives during its operation; elsewhere its room is free."""
    hungry = Library(
        "hungry", "wants scratch in its second operation", scratch={"CUSTOM:x": lambda node: 40 * node.op.index}
    )
    found = layout(chain(32, 32, 32), [0, 32, 0], hungry)
    assert found.scratch == {1: 64}
    assert found.head_bytes == 112
