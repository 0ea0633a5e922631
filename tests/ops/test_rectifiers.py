"""Rectifiers whose output has another scale or zero point than their input, on every number that there is: C follows
the reference, and the reference follows TFLite Micro or LiteRT, as docs/compatibility.md says which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.graph import DType, Node, Quantisation
from diagmem.ops import kinds
from diagmem.ops.elementwise.unary import Unary
from diagmem.verification.oracles import deviation
from tests.ops.compiled import COMPILER, compiled, disjoint
from tests.ops.drawing import is_supported
from tests.ops.sampling import activation, constant, node_of
from tests.ops.single_op import ORACLES, ask, is_installed

Array = npt.NDArray[Any]

CLAMPING = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
RECTIFIERS = (*CLAMPING, "LEAKY_RELU", "PRELU", "HARD_SWISH", "ELU", "ABS")

SPREADS = ((1.0, 1.0), (0.6, 1.7), (1 / 128, 1 / 8), (8.0, 128.0))
"""How much coarser the output's steps are than the input's: not at all, a little either way, far finer, far coarser."""

MAY_BE_SHIFTED = ("RELU6", "LEAKY_RELU", "PRELU")
"""Kinds of which a runtime takes 16-bit numbers with a zero point."""


def rectifiers() -> Iterator[Node]:
    """All kinds on 8 and on 16 bits, at all spreads, with the same zero point and another, and slopes of both signs."""
    rng = np.random.default_rng(5)
    for kind in RECTIFIERS:
        for dtype in (DType.INT8, DType.INT16):
            for least, most in SPREADS:
                for is_shifted in (False, True):
                    scale = 0.05 * 2 ** rng.uniform(-1, 1) / (256 if dtype is DType.INT16 else 1)
                    has_zero = dtype is DType.INT8 or (is_shifted and kind in MAY_BE_SHIFTED)
                    zero = int(rng.integers(-100, 100)) if has_zero else 0
                    other = int(rng.integers(-100, 100)) if has_zero and is_shifted else zero
                    made = _quantised(scale * rng.uniform(least, most), other)
                    node = _rectifier(kind, dtype, _quantised(scale, zero), made, rng)
                    if is_supported(node):
                        yield node


def _quantised(scale: float, zero_point: int) -> Quantisation:
    return Quantisation((float(np.float32(scale)),), (zero_point,))


def _rectifier(kind: str, dtype: DType, given: Quantisation, made: Quantisation, rng: np.random.Generator) -> Node:
    """A node over as many elements as there are numbers of the type."""
    shape = (1, 2**dtype.bits)
    inputs = [replace(activation(shape, dtype), quantisation=given)]
    attributes: Unary | None = None
    if kind == "PRELU":
        slopes = rng.integers(-128, 128, shape).astype(np.int8)
        inputs.append(replace(constant(shape), quantisation=_quantised(0.013, 3), data=slopes))
    else:
        attributes = Unary(alpha=float(np.float32(rng.uniform(-0.5, 1.5))) if kind == "LEAKY_RELU" else 0.0)
    node = node_of(kinds()[kind], kind, attributes, inputs, (dtype,))
    return replace(node, outputs=(replace(node.output, quantisation=made),))


def _values(node: Node) -> tuple[Array, ...]:
    info = np.iinfo(node.output.dtype.numpy)
    every = np.arange(info.min, info.max + 1).reshape(node.output.shape).astype(node.output.dtype.numpy)
    return (every, *(t.data for t in node.inputs[1:] if t is not None and t.data is not None))


def test_kinds_and_types() -> None:
    """Nothing is left out by accident."""
    only_8_bits = {"HARD_SWISH", "ELU"}
    expected = {(kind, dtype) for kind in RECTIFIERS for dtype in (DType.INT8, DType.INT16)}
    found = {(node.op.kind, node.output.dtype) for node in rectifiers()}
    assert found == expected - {(kind, DType.INT16) for kind in only_8_bits}


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_c_is_the_reference(tmp_path: Path) -> None:
    nodes = list(rectifiers())
    program = compiled(nodes, tmp_path)
    places = [disjoint(node) for node in nodes]
    jobs = [(n, places[n], places[n].filled(node, _values(node))) for n, node in enumerate(nodes)]
    for node, place, found in zip(nodes, places, program.run(jobs), strict=True):
        (wanted,) = kinds()[node.op.kind].reference(node, _values(node))
        assert np.array_equal(place.seen(found, node.output), wanted), node


SILENT = {
    "tflm": {("RELU_N1_TO_1", DType.INT8), ("RELU_N1_TO_1", DType.INT16)}
    | {("RELU_0_TO_1", DType.INT8), ("RELU_0_TO_1", DType.INT16)},
    "litert": {("RELU_N1_TO_1", DType.INT16), ("RELU_0_TO_1", DType.INT16), ("ELU", DType.INT8)},
}
"""What a runtime does not have."""


@pytest.mark.parametrize("oracle", ORACLES)
def test_the_reference_is_what_is_documented(oracle: str) -> None:
    """Where a runtime is followed, the same bits; where it is not, it computes what is said that it computes, and where
    that is not known it is off by one at the most."""
    if not is_installed(oracle):
        pytest.skip(f"needs {ORACLES[oracle]}")
    nodes = list(rectifiers())
    answered = set()
    documented = set()
    for node, answer in zip(nodes, ask(oracle, nodes, [_values(node) for node in nodes]), strict=True):
        if isinstance(answer, str):
            continue
        answered.add((node.op.kind, node.output.dtype))
        known = deviation(oracle, node)
        (wanted,) = kinds()[node.op.kind].reference(node, _values(node))
        if known is not None and known.theirs is not None:
            documented.add(node.op.kind)
            assert not np.array_equal(answer[0], wanted)
            (wanted,) = known.theirs(node, _values(node))
        off = np.abs(answer[0].astype(np.int64) - wanted)
        assert off.max() <= (1 if known is not None and known.theirs is None else 0), (node, off.max())
    assert {(node.op.kind, node.output.dtype) for node in nodes} - answered == SILENT[oracle]
    assert documented == ({"RELU6"} if oracle == "tflm" else set())
