"""Operations that look at a whole row along the last axis, then write it: softmax, normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import Node, Shape, Tensor
from diagmem.model.teamwork import Along, Cut
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_rows import is_row_local
from diagmem.ops.kind import OpKind, input_at, swept
from diagmem.ops.loops.separable import AxisTerm, separation_of
from diagmem.ops.orders import Order
from diagmem.ops.variants import Variant


class RowwiseKind(OpKind):
    """For each row: passes that read all of it and write nothing, then element c is read and written, in order."""

    def output_shapes(self, name: str, attributes: Any, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        shape = input_at(inputs, 0).shape
        if not shape:
            raise ModelError(f"{name} needs an input with at least one axis; the file is damaged")
        return (shape,)

    def has_row_kernel(self, node: Node) -> bool:
        return is_row_local(node)

    def accesses(self, node: Node, order: Order) -> Accesses:
        data = node.input(0)
        size = data.shape[-1]
        row = np.arange(data.elems // max(1, size), dtype=np.int64)
        first_step = row * (size + 1)
        passes = Runs.of(row * size, size, first_step, stride=0)
        swept = Runs.of(row * size, size, first_step + 1)
        return Accesses(len(row) * (size + 1), (Runs.join(passes, swept), *(None for _ in node.inputs[1:])), (swept,))

    def cut_accesses(self, node: Node) -> Accesses:
        """All elements of a row are made of all of it."""
        size = node.input(0).shape[-1]
        row = np.arange(node.output.elems // max(1, size), dtype=np.int64) * size
        return swept(node, {0: Runs.of(row, size, row, stride=0, hold=size)})

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """Several cores share rows."""
        return (Cut(Along.PIXELS, node.output.elems // max(1, node.output.shape[-1]), can_hold=True),)

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        """A row's passes come before its own writes, so only the sweep counts: element-wise."""
        if position:
            return None
        gain = node.output.dtype.size_bytes - node.input(0).dtype.size_bytes
        return separation_of((AxisTerm.even(node.output.elems, gain),))
