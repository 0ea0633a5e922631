"""Copies where an element's place in the input is a sum of one number for each axis of the output, as C takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from diagmem.model.graph import IntArray, Node, row_major_strides
from diagmem.model.views import Strides
from diagmem.ops.c_call import CCall, CTable, Unsupported, kernel_call, require_types

MOST_AXES = 4
"""How many axes `gathered.c` walks over."""


def gathered_call(node: Node, places: Sequence[IntArray], run: int = 1, strides: Strides | None = None) -> CCall:
    """`places`: for each axis, and each index along it, elements from the input's start. `run`: elements that lie side
    by side behind each place. `strides`: elements between neighbours in the output, if it is not in one piece."""
    require_types(node.output.dtype, (node.input(0),))
    dense = (run * stride for stride in row_major_strides([len(axis) for axis in places]))
    axes, run = _joined(zip(places, strides or dense, strict=True), run)
    if len(axes) > MOST_AXES:
        raise Unsupported(f"{len(axes)} axes that cannot be joined; at most {MOST_AXES} are supported")
    axes = [(np.zeros(1, np.int64), 0)] * (MOST_AXES - len(axes)) + axes
    element = node.output.dtype.size_bytes
    fields = {
        "element": element,
        "run": run,
        "size": tuple(len(axis) for axis, _ in axes),
        "step": tuple(stride * element for _, stride in axes),
        "places": CTable("places", (np.concatenate([axis for axis, _ in axes]) * element).astype(np.int32)),
    }
    return kernel_call("gathered", fields, (node.input(0), node.output))


def _joined(places: Iterable[tuple[IntArray, int]], run: int) -> tuple[list[tuple[IntArray, int]], int]:
    """The same places with fewer axes: those of one index that is 0 are left out, last ones that run on become part of
    the run."""
    axes = [(axis, stride) for axis, stride in places if len(axis) != 1 or axis[0]]
    while axes and axes[-1][1] == run and (axes[-1][0] == np.arange(len(axes[-1][0])) * run).all():
        run *= len(axes.pop()[0])
    return axes, run
