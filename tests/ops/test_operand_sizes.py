"""Operands whose sizes depend on each other: kernels read as many numbers as one of them says, so the others must have
them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.model.sliding_window import Padding
from diagmem.ops import InstructionSet, Unsupported, kinds
from diagmem.ops.c_call import CStruct, CTable
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.signature import check_node
from tests.ops.drawing import is_supported
from tests.ops.fitting import SeededDraw, fitted, input_values
from tests.ops.sampling import activation, node_of, samples_of

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


@pytest.mark.parametrize("field", ["stride_h", "stride_w", "dilation_h", "dilation_w"])
@pytest.mark.parametrize(("kind", "attributes"), [("CONV_2D", Conv2D), ("DEPTHWISE_CONV_2D", DepthwiseConv2D)])
def test_windows_that_reach_beyond_32_bits_are_refused(kind: str, attributes: Any, field: str) -> None:
    """Kernels work out in 32 bits where a tap lies, also one that is far outside the image."""
    image, weights, bias = ((1, 1, 1, 4), DType.FLOAT32), ((4, 3, 3, 4), DType.FLOAT32), ((4,), DType.FLOAT32)
    weights = weights if kind == "CONV_2D" else ((1, 3, 3, 4), DType.FLOAT32)

    def call(size: int) -> object:
        wide = attributes(padding=Padding.SAME, **{field: size})
        node = made(kind, (1, 1, 1, 4), image, weights, bias, attributes=wide)
        constants = [replace(t, data=np.zeros(t.shape, np.float32), is_constant=True) for t in node.inputs[1:] if t]
        return kinds()[kind].c_call(replace(node, inputs=(node.inputs[0], *constants)))

    call(2**26)
    for size in (2**30, 2**31 - 1):
        with pytest.raises(Unsupported, match="a window that reaches over"):
            call(size)


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
def test_biases_of_any_shape_are_lists(kind: str) -> None:
    """One for each output channel, along whichever axis: outputs and tables are those of a plain list."""
    position = 3 if kind == "TRANSPOSE_CONV" else 2
    tried = 0
    for seed in range(60):
        node = fitted(samples_of(kind).sample(kind, SeededDraw(f"{kind} {seed}")), seed)
        bias = node.inputs[position] if len(node.inputs) > position else None
        if bias is None or bias.data is None or not is_supported(node):
            continue
        column = replace(bias, shape=(*bias.shape, 1), data=bias.data.reshape(*bias.shape, 1))
        standing = replace(node, inputs=(*node.inputs[:position], column, *node.inputs[position + 1 :]))
        values = input_values(node, np.random.default_rng(seed))
        turned = (*values[:position], column.data, *values[position + 1 :])
        wanted, found = kinds()[kind].reference(node, values)[0], kinds()[kind].reference(standing, turned)[0]
        np.testing.assert_array_equal(found, wanted, strict=True)
        assert _tables(standing) == _tables(node)
        tried += 1
    assert tried > 5


def _tables(node: Node) -> list[bytes]:
    def inside(struct: CStruct) -> Iterator[bytes]:
        for value in struct.fields.values():
            if isinstance(value, CTable):
                yield value.data.tobytes()
            elif isinstance(value, CStruct):
                yield from inside(value)

    calls = [kinds()[node.op.kind].c_call(node)]
    calls += [v.call(node) for v in kinds()[node.op.kind].variants(node, InstructionSet.DSP)]
    return [table for call in calls for table in inside(call.parameters)]


@pytest.mark.parametrize("kind", ["RESHAPE", "EXPAND_DIMS", "ONE_HOT", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_shapes_that_only_the_file_knows_suit_the_inputs(kind: str) -> None:
    """Where sizes are computed, outputs are what the file says: as far as that is possible."""
    refused = 0
    for seed in range(40):
        node = fitted(samples_of(kind).sample(kind, SeededDraw(f"{kind} {seed}")), seed)
        computed = tuple(_computed(t) for t in node.inputs)
        node = replace(node, inputs=computed)
        if kinds()[kind].output_shapes(kind, node.attributes, computed) is None:
            check_node(node, kinds()[kind])
            shape = node.output.shape
            for wrong in [(*shape, 2), *([(shape[0] + 1, *shape[1:])] if "RESIZE" in kind else [])]:
                with pytest.raises(ModelError, match="cannot give them"):
                    check_node(replace(node, outputs=(replace(node.output, shape=wrong),)), kinds()[kind])
                refused += 1
    assert refused > 5


def _computed(tensor: Tensor | None) -> Tensor | None:
    """A constant of whole numbers as one that an operation would make."""
    if tensor is None or tensor.data is None or tensor.dtype is not DType.INT32:
        return tensor
    return replace(tensor, is_constant=False, data=None)
