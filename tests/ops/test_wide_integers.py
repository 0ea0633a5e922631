"""Arithmetic on plain integers of 32 and 64 bits, at the ends of their range: the references give what LiteRT gives,
and the C kernels what the references give. What does not fit wraps around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.graph import DType, Node
from diagmem.ops import kinds
from diagmem.ops.matrix.products import BatchMatMul
from diagmem.ops.options import Activation
from tests.ops.cases import activation, ints, node_of
from tests.ops.compiled import COMPILER, Job, compiled, disjoint
from tests.ops.single_op import ask, is_installed

Array = npt.NDArray[Any]

PAIRS = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "FLOOR_DIV", "FLOOR_MOD", "LESS", "EQUAL", "GREATER_EQUAL")
DIVISIONS = ("DIV", "FLOOR_DIV", "FLOOR_MOD")
REDUCTIONS = ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
UNKNOWN_TO_LITERT = {DType.INT32: set[str](), DType.INT64: {"DIV", "FLOOR_DIV", "ABS"}}
"""BATCH_MATMUL it takes for one of 8 bits."""


def edges(dtype: DType) -> Array:
    """The ends of a range, what is near to them and to 0, and where products no longer fit."""
    info, half = np.iinfo(dtype.numpy), dtype.bits // 2
    ends = [info.min, info.min + 1, info.min + 2, -(3 << half), -7, -2, -1]
    return np.array([*ends, 0, 1, 2, 5, 3 << half, (1 << half) - 1, info.max - 1, info.max], dtype.numpy)


def with_values(kind: str, dtype: DType, fused: Activation = Activation.NONE) -> tuple[Node, list[Array | None]]:
    """A node of the kind, and what its inputs hold: every edge with every other."""
    own, all_edges = kinds()[kind], edges(dtype)
    attributes = own.decode(kind, None)
    if kind in PAIRS:
        first, second = (grid.reshape(1, -1) for grid in np.meshgrid(all_edges, all_edges))
        if kind in ("ADD", "SUB", "MUL", "DIV"):
            attributes = type(attributes)(fused)
        if kind in DIVISIONS:
            # LiteRT stops at a division by 0; the processor at the only quotient that does not fit.
            second = np.where((second == 0) | (second == -1), 3, second)
        made = DType.BOOL if kind in PAIRS[-3:] else dtype
        return node_of(kind, attributes, [activation(first.shape, dtype)] * 2, (made,)), [first, second]
    if kind == "BATCH_MATMUL":
        square = np.resize(all_edges, (2, 5, 5))
        inputs = [activation(square.shape, dtype)] * 2
        return node_of(kind, BatchMatMul(adj_y=True), inputs, (dtype,)), [square, square[::-1].copy()]
    if kind in (*REDUCTIONS, "CUMSUM"):
        rows = np.stack([np.roll(all_edges, n)[:5] for n in range(len(all_edges))])
        axis = ints([1])
        return node_of(kind, attributes, [activation(rows.shape, dtype), axis], (dtype,)), [rows, axis.data]
    return node_of(kind, attributes, [activation((1, len(all_edges)), dtype)], (dtype,)), [all_edges.reshape(1, -1)]


KINDS = (*PAIRS, "ABS", "NEG", *REDUCTIONS, "CUMSUM", "BATCH_MATMUL")


@pytest.mark.parametrize("dtype", UNKNOWN_TO_LITERT)
def test_references_agree_with_litert(dtype: DType) -> None:
    """Of every kind that it runs on them, also with activations."""
    if not is_installed("litert"):
        pytest.skip("needs ai_edge_litert")
    cases = [with_values(kind, dtype) for kind in KINDS]
    cases += [with_values(kind, dtype, Activation.RELU6) for kind in ("ADD", "SUB", "MUL")]
    answers = ask("litert", [node for node, _ in cases], [values for _, values in cases])
    silent = set()
    for (node, values), answer in zip(cases, answers, strict=True):
        (wanted,) = kinds()[node.op.kind].reference(node, values)
        if isinstance(answer, str) or node.op.kind == "BATCH_MATMUL":
            silent.add(node.op.kind)
        else:
            assert np.array_equal(answer[0], wanted), (node.op.kind, answer[0], wanted)
    assert silent == UNKNOWN_TO_LITERT[dtype] | {"BATCH_MATMUL"}


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_kernels_agree_with_references(tmp_path: Path) -> None:
    """Under sanitizers, also where something is divided by 0, or the smallest number by -1."""
    cases = [with_values(kind, dtype, a) for dtype in UNKNOWN_TO_LITERT for kind in KINDS for a in activations(kind)]
    jobs: list[Job] = []
    expected = []
    for index, (node, given) in enumerate(cases):
        values = list(given)
        if node.op.kind in DIVISIONS:
            values[1] = np.meshgrid(edges(node.output.dtype), edges(node.output.dtype))[1].reshape(1, -1)
        jobs.append((index, disjoint(node), disjoint(node).filled(node, values)))
        expected.append(kinds()[node.op.kind].reference(node, values)[0])
    program = compiled([node for node, _ in cases], tmp_path)
    for (index, place, _), wanted, found in zip(jobs, expected, program.run(jobs), strict=True):
        node = cases[index][0]
        assert np.array_equal(place.seen(found, node.output), wanted), node.op.kind


def activations(kind: str) -> tuple[Activation, ...]:
    return tuple(Activation)[:4] if kind in ("ADD", "SUB", "MUL", "DIV") else (Activation.NONE,)
