"""The C kernels compute what the numpy references compute, wherever their tensors lie, down to the last safe byte."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.backends.c.kernels import joined, sources
from diagmem.kernels import library
from diagmem.model.graph import DType, Node, Rounding, Tensor
from diagmem.ops import kinds
from tests.ops.compiled import COMPILER, FLAGS, Job, Place, compiled, disjoint, overlapped
from tests.ops.drawing import CASES, drawn, is_supported, names_of, spread_out
from tests.ops.fitting import input_values

Array = npt.NDArray[Any]

DIAGMEM = library("diagmem")

TO_EVEN_CASES = ("conv_2d", "depthwise_conv_2d", "fully_connected", "pool_2d", "softmax", "reduce", "unary", "binary")
"""Files with kernels that can round once."""

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


def _overlaps(node: Node) -> Iterator[tuple[int, int, int]]:
    """(input, output, separation) of all pairs of which the kernel says how far they may overlap."""
    if kinds()[node.op.kind].is_alias:
        return
    passed = {t.index for t in kinds()[node.op.kind].c_call(node).tensors}
    for position, tensor in node.activations():
        for output in range(len(node.outputs)):
            separation = DIAGMEM.separation(node, position, output)
            if separation is not None and tensor.index in passed:
                yield position, output, separation


def _unit(node: Node, position: int, output: int) -> int:
    """Bytes by which the distance of an input and an output may change."""
    return max(node.input(position).dtype.size_bytes, node.outputs[output].dtype.size_bytes)


def _spread_out(nodes: list[Node]) -> list[Node]:
    """Every third has views, where its kernel can address them."""
    spread = [spread_out(node, index) for index, node in enumerate(nodes)]
    return [
        s if index % 3 == 2 and kinds()[s.op.kind].can_address(s) and is_supported(s) else node
        for index, (node, s) in enumerate(zip(nodes, spread, strict=True))
    ]


def _written(node: Node) -> list[Tensor]:
    """Outputs, and variables."""
    return [*node.outputs, *(node.input(p) for p in kinds()[node.op.kind].states(node))]


def _expected(node: Node, place: Place, before: Array, outputs: Sequence[Array]) -> Array:
    """The arena after a run that changes what the node writes and nothing else."""
    after: Array = before.copy()
    for tensor, values in zip(_written(node), outputs, strict=True):
        place.seen(after, tensor)[...] = values
    return after


def _same(node: Node, place: Place, found: Array, wanted: Sequence[Array]) -> bool:
    """Whether the outputs in an arena are as wanted. 0 and -0 are the same, and what is no number is like any such."""
    return all(
        np.array_equal(place.seen(found, t), w, equal_nan=w.dtype.kind == "f")
        for t, w in zip(_written(node), wanted, strict=True)
    )


@pytest.mark.parametrize("case", CASES)
def test_c_computes_the_reference(case: str, tmp_path: Path) -> None:
    """Disjoint, where nothing else may change; at the separation of every input from every output; and not one element
    nearer, for each kind that overlaps. What leaves the arena is the sanitizers' to find."""
    nodes = _spread_out(drawn(case, 6))
    assert {node.op.kind for node in nodes} == names_of(case)
    _compare(nodes, tmp_path)


@pytest.mark.parametrize("case", TO_EVEN_CASES)
def test_c_rounds_to_even(case: str, tmp_path: Path) -> None:
    """The same for results that are rounded once, halves to even, which the reference does in single precision and the
    kernel by integers."""
    nodes = [node for node in map(_to_even, drawn(case, 12)) if node is not None and is_supported(node)]
    assert len(nodes) >= 8
    _compare(_spread_out(nodes), tmp_path)


def _to_even(node: Node) -> Node | None:
    """The node with an output of 8 bits that is rounded so; scales of pools may then differ."""
    output = node.output
    if output.dtype is not DType.INT8 or output.quantisation is None:
        return None
    scale = output.quantisation.scales[0] * (0.7 if node.op.kind == "AVERAGE_POOL_2D" else 1.0)
    rounded = replace(output.quantisation, scales=(scale,), rounding=Rounding.ONNX)
    return replace(node, outputs=(replace(output, quantisation=rounded), *node.outputs[1:]))


def _compare(nodes: list[Node], tmp_path: Path) -> None:
    program = compiled(nodes, tmp_path)
    jobs: list[Job] = []
    checks: list[tuple[str, tuple[Array, ...]]] = []
    for index, node in enumerate(nodes):
        for what, place in _places(node):
            values = input_values(node, np.random.default_rng(len(jobs)))
            jobs.append((index, place, place.filled(node, values)))
            checks.append((what, kinds()[node.op.kind].reference(node, values)))
    limited: set[str] = set()
    caught: set[str] = set()
    for (index, place, before), (what, wanted), found in zip(jobs, checks, program.run(jobs), strict=True):
        node, is_right = nodes[index], _same(nodes[index], place, found, wanted)
        assert is_right or what == "too near", (what, node, place, wanted)
        if what == "disjoint":
            assert _same(node, place, found, wanted)
            untouched = _expected(node, place, before, [place.seen(found, t) for t in _written(node)])
            assert np.array_equal(found, untouched), (node, place)
        elif what == "too near":
            limited.add(node.op.kind)
            caught |= set() if is_right else {node.op.kind}
    assert caught == limited


def _places(node: Node) -> Iterator[tuple[str, Place]]:
    yield "disjoint", disjoint(node)
    for position, output, separation in _overlaps(node):
        unit = _unit(node, position, output)
        yield "as near as may be", overlapped(node, position, output, -(-separation // unit) * unit)
        if separation > -node.input(position).span_bytes and separation % unit == 0:
            yield from [("too near", overlapped(node, position, output, separation - unit))] * 3


@pytest.mark.parametrize("case", ["concatenation", "unary", "strided_slice"])
def test_optimisers_keep_the_order(case: str, tmp_path: Path) -> None:
    """Copies and simple loops stay right at the last safe byte when a compiler vectorises them or calls memmove."""
    nodes = drawn(case, 2)
    program = compiled(nodes, tmp_path, optimised=True)
    jobs: list[Job] = []
    wanted: list[tuple[Array, ...]] = []
    for index, node in enumerate(nodes):
        for what, place in _places(node):
            if what != "too near":
                values = input_values(node, np.random.default_rng(len(jobs)))
                jobs.append((index, place, place.filled(node, values)))
                wanted.append(kinds()[node.op.kind].reference(node, values))
    for (index, place, _), right, found in zip(jobs, wanted, program.run(jobs), strict=True):
        assert _same(nodes[index], place, found, right), (nodes[index], place)


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_all_kernels_fit_into_one_program(compiler: str, tmp_path: Path) -> None:
    """No name is used twice, and no compiler has anything to say."""
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    kernels = sorted(name for name in sources() if name.endswith(".c"))
    assert len(kernels) > 30
    (tmp_path / "kernels.h").write_text("\n".join(joined(kernels)))
    (tmp_path / "main.c").write_text('#include "kernels.h"\nint main(void) { return 0; }\n')
    command = [compiler, *FLAGS, "-O2", "-c", "main.c", "-o", "main.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
