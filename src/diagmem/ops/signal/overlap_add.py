"""SignalOverlapAdd: frames that overlap, added up to one stream of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import SUFFIXES, CCall, CStruct, Unsupported, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signal._own_state import remembering, state
from diagmem.ops.signature import Signature

_TYPES = (DType.INT16, DType.FLOAT32)


@dataclass(frozen=True, slots=True)
class OverlapAdd:
    """Input: rows of frames of samples. `step`: from one frame to the next, in samples."""

    step: int = 0


class OverlapAddKind(OpKind):
    names = ("CUSTOM:SignalOverlapAdd",)
    keeps_state = True
    takes = Signature((1, 2))
    needs = Fitting(is_drawn_whole=True)
    table = CustomTable(OverlapAdd, ("frame_step",), has_type=True)

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        """What frames leave over for those that follow, row by row; one sample, which nobody looks at, where they do
        not overlap."""
        *outer, _, size = node.input(0).shape
        left = math.prod(outer) * (size - node.attributes.step)
        return (state("overlap", (max(1, left),), node.input(0).dtype),)

    def output_shapes(self, name: str, attributes: OverlapAdd, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        shape, step = input_at(inputs, 0).shape, attributes.step
        if len(shape) < 2 or not 0 < step <= shape[-1]:
            raise ModelError(f"frames {list(shape)} cannot be {step} samples apart; the file is damaged")
        return ((*shape[:-2], shape[-2] * step),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """Frame by frame its samples are read; the first ones are written at once."""
        elems, size, step = node.input(0).elems, node.input(0).shape[-1], node.attributes.step
        frame = np.arange(elems // size)
        held = (Runs.of(0, t.elems, 0, stride=0, hold=elems + 1) for p, t in node.activations() if p)
        return Accesses(elems + 1, (Runs.sweep(elems), *held), (Runs.of(frame * step, step, frame * size),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        *outer, frames, size = node.input(0).shape
        step, rows = node.attributes.step, math.prod(outer)
        data, left = inputs[0].reshape(rows, frames, size), np.zeros((rows, size), inputs[0].dtype)
        left[:, : size - step] = inputs[1][: rows * (size - step)].reshape(rows, -1)
        made = []
        for frame in range(frames):
            total = _added(left, data[:, frame])
            made.append(total[:, :step])
            left = np.concatenate([total[:, step:], np.zeros_like(total[:, :step])], axis=1)
        state = left[:, : size - step].reshape(-1) if size > step else inputs[1]
        return np.stack(made, axis=1).reshape(node.output.shape), state

    def c_call(self, node: Node) -> CCall:
        dtype = node.input(0).dtype
        if dtype not in _TYPES:
            raise Unsupported(f"{dtype.value} elements; supported: {', '.join(t.value for t in _TYPES)}")
        require_types(dtype, (node.output,))
        *outer, frames, size = node.input(0).shape
        values = {"rows": math.prod(outer), "frames": frames, "size": size, "step": node.attributes.step}
        parameters = CStruct("diagmem_signal_overlap_add_params", values)
        function = f"diagmem_signal_overlap_add_{SUFFIXES[dtype]}"
        return CCall("signal_overlap_add.c", function, parameters, (node.input(0), node.input(1), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Frames that overlap by less and by more than half, or not at all."""
        size, dtype = draw.integer(1, 10), draw.choice(_TYPES)
        shape = (*draw.many(0, 2, draw.small), draw.small(), size)
        step = OverlapAdd(draw.integer(1, size + 1))
        return remembering(self, node_of(self, name, step, [activation(shape, dtype)], (dtype,)))


def _added(first: Array, second: Array) -> Array:
    """Whole numbers are held within 16 bits."""
    if first.dtype == np.float32:
        return first + second
    found: Array = np.clip(first.astype(np.int32) + second, -(2**15), 2**15 - 1).astype(np.int16)
    return found


KIND = OverlapAddKind()
