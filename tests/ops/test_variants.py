"""Kernels of ours that use more than plain C keep the contract too: right in any place, down to the last safe byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.kernels import library
from diagmem.model.graph import Node
from diagmem.ops import InstructionSet, Order, kinds
from diagmem.ops.c_call import CCall
from tests.ops.compiled import COMPILER, Job, Place, compiled, disjoint, overlapped, with_scratch
from tests.ops.deep_nodes import KINDS, REAL, deep_nodes
from tests.ops.drawing import spread_out
from tests.ops.fitting import input_values
from tests.ops.test_contract import accesses_stay_inside_and_fill_the_outputs, separation_is_exact

Array = npt.NDArray[Any]

_ALIKE = {
    "CONV_2D": {Order.PAIRS, Order.BLOCKS},
    "FULLY_CONNECTED": {Order.BLOCKS},
    "ADD": {Order.REFERENCE},
    "MUL": {Order.REFERENCE},
}
ORDERS = {
    InstructionSet.DSP: {
        **_ALIKE,
        **{name: {Order.FOURS} for name in ("DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")},
    },
    InstructionSet.MVE: {
        **_ALIKE,
        **{name: {Order.EIGHTS} for name in ("DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D")},
        "MAX_POOL_2D": {Order.SIXTEENS},
    },
}
REAL_ORDERS = {
    "CONV_2D/f32": {Order.BLOCKS},
    "DEPTHWISE_CONV_2D/f32": {Order.EIGHTS},
    "FULLY_CONNECTED/f32": {Order.BLOCKS},
}
KERNELS = {
    InstructionSet.DSP: {
        "diagmem_conv_2d_vfp_f32",
        "diagmem_depthwise_conv_2d_vfp_f32",
        "diagmem_fully_connected_vfp_f32",
        "diagmem_conv_2d_pairs_s8",
        "diagmem_conv_2d_wide_pairs_s8",
        "diagmem_conv_2d_direct_s8",
        "diagmem_conv_2d_s8",
        "diagmem_depthwise_conv_2d_fours_s8",
        "diagmem_depthwise_conv_2d_wide_fours_s8",
        "diagmem_fully_connected_packed_s8",
        "diagmem_fully_connected_s8",
        "diagmem_average_pool_2d_fours_s8",
        "diagmem_max_pool_2d_fours_s8",
        "diagmem_add_packed_s8",
        "diagmem_add_s8",
        "diagmem_mul_packed_s8",
        "diagmem_mul_s8",
    },
    InstructionSet.MVE: {
        "diagmem_conv_2d_vfp_f32",
        "diagmem_depthwise_conv_2d_vfp_f32",
        "diagmem_fully_connected_vfp_f32",
        "diagmem_conv_2d_mve_s8",
        "diagmem_conv_2d_point_mve_s8",
        "diagmem_depthwise_conv_2d_mve_s8",
        "diagmem_fully_connected_mve_s8",
        "diagmem_average_pool_2d_mve_s8",
        "diagmem_average_pool_2d_to_even_fours_s8",
        "diagmem_max_pool_2d_mve_s8",
        "diagmem_add_mve_s8",
        "diagmem_add_once_mve_s8",
        "diagmem_mul_once_mve_s8",
        "diagmem_mul_mve_s8",
    },
}


class Case(NamedTuple):
    """A node, and one of the kernels for it."""

    node: Node
    order: Order
    call: CCall
    scratch_bytes: int


def cases(kind: str, count: int, instructions: InstructionSet) -> list[Case]:
    """All kernels of some nodes; every third node has views, where its kernel can address them."""
    found: list[Case] = []
    for number, node in enumerate(deep_nodes(kind, count)):
        spread = spread_out(node, number)
        chosen = spread if number % 3 == 2 and kinds()[node.op.kind].can_address(spread) else node
        variants = kinds()[node.op.kind].variants(chosen, instructions)
        found += [Case(chosen, variant.order, variant.call(chosen), variant.scratch_bytes) for variant in variants]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_contract(kind: str) -> None:
    """With many channels too, the closed separation is that of the accesses, and one byte less is caught."""
    for node in deep_nodes(kind, 12):
        accesses_stay_inside_and_fill_the_outputs(node)
        separation_is_exact(node)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("instructions", InstructionSet)
@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_every_variant_computes_the_reference(kind: str, instructions: InstructionSet, tmp_path: Path) -> None:
    """Disjoint, where nothing else may change; at the separation of every input from the output; and not one element
    nearer."""
    found = cases(kind, 60, instructions)
    if not found:
        pytest.skip("the kernel in plain C is used")
    orders = REAL_ORDERS[kind] if REAL in kind else ORDERS[instructions][found[0].node.op.kind]
    orders = {Order.FOURS} if kind == "AVERAGE_POOL_2D/once" else orders
    assert {case.order for case in found} == orders
    program = compiled([case.node for case in found], tmp_path, calls=[case.call for case in found])
    jobs: list[Job] = []
    checks: list[tuple[Case, str, tuple[Array, ...]]] = []
    for index, case in enumerate(found):
        for what, place in _places(case):
            values = input_values(case.node, np.random.default_rng(len(jobs)))
            jobs.append((index, place, place.filled(case.node, values)))
            checks.append((case, what, kinds()[case.node.op.kind].reference(case.node, values)))
    limited: set[str] = set()
    caught: set[str] = set()
    for (_, place, before), (case, what, (wanted,)), after in zip(jobs, checks, program.run(jobs), strict=True):
        is_right = np.array_equal(place.seen(after, case.node.output), wanted)
        assert is_right or what == "too near", (what, case, place)
        if what == "disjoint":
            place.seen(before, case.node.output)[...] = wanted
            kept = place.arena_bytes - case.scratch_bytes
            assert np.array_equal(after[:kept], before[:kept]), (case, place)
        elif what == "too near":
            limited.add(case.call.function)
            caught |= set() if is_right else {case.call.function}
    assert caught == limited


def _places(case: Case) -> Iterator[tuple[str, Place]]:
    node = case.node
    yield "disjoint", with_scratch(disjoint(node), case.scratch_bytes)
    for position, tensor in node.activations():
        separation = kinds()[node.op.kind].separation(node, position, case.order)
        yield "as near as may be", with_scratch(overlapped(node, position, 0, separation), case.scratch_bytes)
        if separation > -tensor.span_bytes:
            near = overlapped(node, position, 0, separation - tensor.dtype.size_bytes)
            near = with_scratch(near, case.scratch_bytes)
            yield from [("too near", near)] * 2


@pytest.mark.parametrize("instructions", InstructionSet)
def test_every_kernel_is_tested(instructions: InstructionSet) -> None:
    """Numbers that two channels can share, and numbers that they cannot."""
    found = {case.call.function for kind in KINDS for case in cases(kind, 60, instructions)}
    assert found == KERNELS[instructions]


@pytest.mark.parametrize("kind", KINDS)
def test_plans_need_no_weights(kind: str) -> None:
    """Order and scratch follow from shapes and types: they are the same for all weights."""
    for lib in map(library, ("diagmem-dsp", "diagmem-dsp/all", "diagmem-mve", "diagmem-mve/all")):
        for node in deep_nodes(kind, 30):
            bare = _without_data(node)
            assert lib.order(bare) == lib.order(node)
            assert lib.scratch_bytes(bare) == lib.scratch_bytes(node)
            assert lib.scratch_bytes(node) == 0 or lib.lean is not None


def _without_data(node: Node) -> Node:
    return replace(node, inputs=tuple(None if t is None else replace(t, data=None) for t in node.inputs))
