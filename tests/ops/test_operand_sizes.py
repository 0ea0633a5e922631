"""Operands whose sizes depend on each other: kernels read as many numbers as one of them says, so the others must have
them."""

from __future__ import annotations

from typing import Any

import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node
from diagmem.ops import Unsupported, kinds
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.sampling import activation, node_of
from diagmem.ops.signature import check_node

NUMBERS = DType.INT32


def made(name: str, out: tuple[int, ...], *inputs: tuple[tuple[int, ...], DType], attributes: Any = None) -> Node:
    given = [activation(shape, dtype) for shape, dtype in inputs]
    return node_of(kinds()[name], name, attributes, given, (given[0].dtype,), (out,))


@pytest.mark.parametrize("begin", [(1,), (3,), (2, 1), ()])
def test_a_part_begins_at_one_index_for_each_axis(begin: tuple[int, ...]) -> None:
    """DYNAMIC_UPDATE_SLICE reads an index for each axis."""
    parts = ((4, 5), DType.INT8), ((2, 2), DType.INT8)
    check_node(made("DYNAMIC_UPDATE_SLICE", (4, 5), *parts, ((2,), NUMBERS)), kinds()["DYNAMIC_UPDATE_SLICE"])
    with pytest.raises(ModelError, match="a part of 2 axes begins at"):
        check_node(made("DYNAMIC_UPDATE_SLICE", (4, 5), *parts, (begin, NUMBERS)), kinds()["DYNAMIC_UPDATE_SLICE"])


@pytest.mark.parametrize("second", [(), (2, 3)])
def test_shapes_are_lists(second: tuple[int, ...]) -> None:
    """BROADCAST_ARGS takes two lists of sizes."""
    check_node(made("BROADCAST_ARGS", (6,), ((6,), NUMBERS), ((1,), NUMBERS)), kinds()["BROADCAST_ARGS"])
    with pytest.raises(ModelError, match="are no two shapes"):
        check_node(made("BROADCAST_ARGS", (6,), ((6,), NUMBERS), (second, NUMBERS)), kinds()["BROADCAST_ARGS"])


def test_windows_that_no_stack_holds_are_refused() -> None:
    """The window of a pool has no weights that would limit it."""
    image = ((1, 1, 1, 4), DType.FLOAT32)
    kinds()["MAX_POOL_2D"].c_call(made("MAX_POOL_2D", (1, 1, 1, 4), image, attributes=Pool2D(kernel_h=4096)))
    with pytest.raises(Unsupported, match="a window of 2147483647x1 pixels"):
        kinds()["MAX_POOL_2D"].c_call(made("MAX_POOL_2D", (1, 1, 1, 4), image, attributes=Pool2D(kernel_h=2**31 - 1)))
