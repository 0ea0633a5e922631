"""Zeros of both signs: what a kernel makes of them, its reference makes of them too, to the last bit.

Comparisons take the two for equal, and so do most tests; but where a layer has rounded to minus zero, which of them a
maximum returns decides whether two runs of a network give the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops import kinds
from tests.ops.compiled import COMPILER, Job, compiled, disjoint
from tests.ops.drawing import CASES, drawn
from tests.ops.fitting import input_values

NUMBERS = np.array([-0.0, 0.0, -0.0, 0.0, -1.5, 2.5], np.float32)
TRIES = 4


def _is_real(node: Node) -> bool:
    return node.output.dtype is DType.FLOAT32 and any(t.dtype is DType.FLOAT32 for _, t in node.activations())


def _values(node: Node, rng: np.random.Generator) -> tuple[np.ndarray | None, ...]:
    def zeros(tensor: Tensor | None, value: np.ndarray | None) -> np.ndarray | None:
        if tensor is None or tensor.data is not None or tensor.dtype is not DType.FLOAT32:
            return value
        return rng.choice(NUMBERS, tensor.shape)

    return tuple(map(zeros, node.inputs, input_values(node, rng)))


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_zeros_keep_their_signs(tmp_path: Path) -> None:
    """On numbers of which two in three are zeros, for all kinds on floats that remember nothing."""
    nodes = [node for case in CASES for node in drawn(case, 2) if _is_real(node)]
    nodes = [node for node in nodes if not kinds()[node.op.kind].states(node)]
    program = compiled(nodes, tmp_path)
    jobs: list[Job] = []
    wanted = []
    for index, node in enumerate(nodes):
        place = disjoint(node)
        for _ in range(TRIES):
            values = _values(node, np.random.default_rng(len(jobs)))
            jobs.append((index, place, place.filled(node, values)))
            with np.errstate(all="ignore"):
                wanted.append(kinds()[node.op.kind].reference(node, values))
    wrong = set()
    for (index, place, _), results, after in zip(jobs, wanted, program.run(jobs), strict=True):
        for tensor, right in zip(nodes[index].outputs, results, strict=False):
            found = np.ascontiguousarray(place.seen(after, tensor))
            differs = (found.view(np.uint32) != right.view(np.uint32)) & ~(np.isnan(found) & np.isnan(right))
            wrong |= {nodes[index].op.kind} if differs.any() else set()
    assert not wrong
