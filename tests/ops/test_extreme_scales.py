"""Scales that no converter writes: a kernel is refused, or computes what its reference computes, and C defines every
step of it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Quantisation, Tensor
from diagmem.ops import InstructionSet, Unsupported, kinds
from diagmem.ops.c_call import CCall
from diagmem.ops.signature import check_node
from tests.ops.compiled import COMPILER, compiled, disjoint, with_scratch
from tests.ops.drawing import CASES, drawn, is_supported
from tests.ops.fitting import input_values

Array = npt.NDArray[Any]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")

STORED = (DType.INT8, DType.UINT8, DType.INT16)
POWERS = (-40, -30, -24, -20, -16, -12, 12, 16, 20, 24, 30)
JUST_BELOW = 1 - 2.0**-24
"""A mantissa of nearly 2^31 makes the largest results."""


def extreme(node: Node, chance: random.Random) -> Node:
    """The node with one or two of its scales far from the others, and zero points at an end of their range."""

    def far(tensor: Tensor) -> Tensor:
        found = tensor.quantisation
        if found is None or tensor.dtype not in STORED:
            return tensor
        factor = 2.0 ** chance.choice(POWERS)
        is_round = chance.random() < 0.5
        scales = tuple(float(np.float32(JUST_BELOW * factor if is_round else s * factor)) for s in found.scales)
        info = np.iinfo(tensor.dtype.numpy)
        is_moved = any(found.zero_points) or (tensor.dtype.bits == 16 and chance.random() < 0.3)
        end = int(chance.choice((info.min, info.max)))
        zero_points = (end,) * len(scales) if is_moved else found.zero_points
        return replace(tensor, quantisation=Quantisation(scales, zero_points, found.axis))

    which = [chance.random() < 0.4 for _ in node.inputs]
    inputs = tuple(far(t) if t is not None and is_far else t for t, is_far in zip(node.inputs, which, strict=True))
    is_output = not any(which) or chance.random() < 0.5
    return replace(node, inputs=inputs, outputs=tuple(far(t) if is_output else t for t in node.outputs))


def accepted(node: Node) -> bool:
    """Whether the node passes its signature, and there is a kernel for it."""
    try:
        check_node(node, kinds()[node.op.kind])
        return is_supported(node)
    except (Unsupported, ModelError):
        return False


def at_the_ends(node: Node, rng: np.random.Generator) -> tuple[Array | None, ...]:
    """Random inputs, many of which are the least or the largest number of their type."""

    def some(values: Array | None, tensor: Tensor | None) -> Array | None:
        if values is None or tensor is None or tensor.data is not None or tensor.dtype not in STORED:
            return values
        info = np.iinfo(tensor.dtype.numpy)
        ends = rng.choice(np.array([info.min, info.max], values.dtype), values.shape)
        return np.where(rng.random(values.shape) < 0.5, ends, values)

    return tuple(map(some, input_values(node, rng), node.inputs))


def calls_of(node: Node) -> list[tuple[CCall, int]]:
    """All kernels of ours for a node, and the scratch of each."""
    kind = kinds()[node.op.kind]
    return [
        (kind.c_call(node), 0),
        *((variant.call(node), variant.scratch_bytes) for variant in kind.variants(node, InstructionSet.DSP)),
    ]


COMPUTING = [case for case, kind in CASES.items() if ".moving." not in type(kind).__module__]
"""Files of kinds that do more than move elements."""


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", COMPUTING)
def test_c_is_the_reference_at_any_scale(case: str, count: int, tmp_path: Path) -> None:
    """In plain C and with more, under the sanitizer for undefined behaviour."""
    chance = random.Random(case)
    drawn_nodes = [n for n in drawn(case, count) if n.output.quantisation is not None and n.output.dtype in STORED]
    nodes = [found for node in drawn_nodes for found in [extreme(node, chance) for _ in range(3)] if accepted(found)]
    made = [(node, *call) for node in nodes for call in calls_of(node)]
    if not made:
        pytest.skip("has no scales")
    program = compiled([node for node, _, _ in made], tmp_path, calls=[call for _, call, _ in made])
    places = [with_scratch(disjoint(node), scratch_bytes) for node, _, scratch_bytes in made]
    values = [at_the_ends(node, np.random.default_rng(n)) for n, (node, _, _) in enumerate(made)]
    jobs = [(n, places[n], places[n].filled(made[n][0], values[n])) for n in range(len(made))]
    for (n, place, _), found in zip(jobs, program.run(jobs), strict=True):
        node, call, _ = made[n]
        wanted = kinds()[node.op.kind].reference(node, values[n])
        for tensor, right in zip(node.outputs, wanted, strict=False):
            assert np.array_equal(place.seen(found, tensor), right), (node, call.function, values[n])
