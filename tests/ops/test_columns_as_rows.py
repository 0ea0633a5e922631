"""What kinds say of pixels is true: those that treat them alike do, and a line of pixels that stands gives the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.graph import Node, Tensor
from diagmem.ops import OpKind, kinds
from diagmem.ops.kind import ColumnsAsRows
from tests.ops.drawing import CASES, runnable
from tests.ops.fitting import input_values

Array = npt.NDArray[Any]

POINTWISE = [case for case, kind in CASES.items() if kind.is_pointwise]
COLUMNS_AS_ROWS = [
    case
    for case, kind in CASES.items()
    if kind.is_pointwise or type(kind).columns_as_rows is not OpKind.columns_as_rows
]


def in_ram(node: Node) -> list[Tensor]:
    return [*(t for _, t in node.activations()), *node.outputs]


def reference(node: Node, values: tuple[Array | None, ...]) -> Array:
    (found,) = kinds()[node.op.kind].reference(node, values)
    return found


def same_pixels(case: str) -> Iterator[Node]:
    """Nodes whose tensors in RAM are of one shape, of several pixels, and whose constants are the same for all."""
    for node in runnable(case):
        shapes = {t.shape for t in in_ram(node)}
        constants = [t for t in node.inputs if t is not None and t.is_constant]
        has_pixels = len(shapes) == 1 and len(node.output.shape) > 1 and node.output.elems > node.output.shape[-1]
        if has_pixels and all(t.elems == (t.shape[-1] if t.shape else 1) for t in constants):
            yield node


@pytest.mark.parametrize("case", POINTWISE)
def test_pixels_are_treated_alike(case: str) -> None:
    """Pixels in another order give the same pixels in that order."""
    for seed, node in enumerate(itertools.islice(same_pixels(case), 60)):
        shape, rng = node.output.shape, np.random.default_rng(seed)
        order = rng.permutation(node.output.elems // shape[-1])

        def moved(values: Array, shape: tuple[int, ...] = shape, order: Array = order) -> Array:
            return values.reshape(-1, shape[-1])[order].reshape(shape)

        values = input_values(node, rng)
        swapped = tuple(
            value if t is None or t.is_constant or value is None else moved(value)
            for t, value in zip(node.inputs, values, strict=True)
        )
        np.testing.assert_array_equal(reference(node, swapped), moved(reference(node, values)))


def lines(case: str) -> Iterator[tuple[Node, Node]]:
    """Nodes over a line of pixels that lies, and the same when it stands."""
    for node in runnable(case):
        shapes = {
            t.index: (1, t.shape[2], 1, t.shape[3])
            for t in in_ram(node)
            if len(t.shape) == 4 and t.shape[:2] == (1, 1) and t.shape[2] > 1
        }
        own = {t.index for t in node.inputs if t is not None and t.is_constant}
        found = (
            kinds()[node.op.kind].columns_as_rows(node, ColumnsAsRows(shapes, (0, 2, 1, 3), own)) if shapes else None
        )
        if found is not None:
            inputs = tuple(
                found.constants.get(p, t if t is None else replace(t, shape=shapes.get(t.index, t.shape)))
                for p, t in enumerate(node.inputs)
            )
            outputs = tuple(replace(t, shape=shapes.get(t.index, t.shape)) for t in node.outputs)
            op = replace(node.op, attributes=found.attributes)
            found_shapes = kinds()[op.kind].output_shapes(op.kind, op.attributes, inputs)
            # The transform refuses what does not have the shapes that are wanted; so does this.
            if found_shapes == tuple(t.shape for t in outputs):
                yield node, replace(node, op=op, inputs=inputs, outputs=outputs)


@pytest.mark.parametrize("case", COLUMNS_AS_ROWS)
def test_a_line_that_stands_gives_the_same(case: str) -> None:
    """The same bytes go in, and the same bytes come out."""
    for seed, (lies, stands) in enumerate(itertools.islice(lines(case), 20)):
        values = input_values(lies, np.random.default_rng(seed))
        turned = tuple(
            value if t is None or value is None else t.data if t.data is not None else value.reshape(t.shape)
            for t, value in zip(stands.inputs, values, strict=True)
        )
        expected, found = reference(lies, values), reference(stands, turned)
        np.testing.assert_array_equal(found.reshape(-1), expected.reshape(-1))
