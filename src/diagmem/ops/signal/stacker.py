"""SignalStacker: frames put together with those before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signal._own_state import remembering, state
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Stacker:
    """Input: a frame of so many channels. `left`, `right`: how many frames before and after one are put beside it;
    before the first one it is taken to have been the same. `step`: every so many frames, after the first."""

    channels: int = 0
    left: int = 0
    right: int = 0
    step: int = 0

    @property
    def frames(self) -> int:
        """In a stack."""
        return self.left + self.right + 1


class StackerKind(OpKind):
    """Outputs: a stack, and whether there is one. TFLite Micro leaves it as it was where there is none; here it is
    0."""

    names = ("CUSTOM:SignalStacker",)
    keeps_state = True
    takes = Signature((1, 2), (2, 2), made=None)
    needs = Fitting(is_drawn_whole=True)
    table = CustomTable(Stacker, ("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step"))

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        """How many frames of the next stack have come in, and 1 more; 0 before the first. Then the frames before."""
        a = node.attributes
        return (state("stack", (1 + (a.frames - 1) * a.channels,), DType.INT16),)

    def output_shapes(self, name: str, attributes: Stacker, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        a, shape = attributes, input_at(inputs, 0).shape
        if shape != (a.channels,):
            raise ModelError(f"its input {list(shape)} has not {a.channels} channels; the file is damaged")
        if min(a.left, a.right) < 0 or not 0 < a.step <= a.frames < 2**15:
            raise ModelError(f"stacks of {a.left} + 1 + {a.right} frames every {a.step}; the file is damaged")
        return (a.frames * a.channels,), ()

    def accesses(self, node: Node, order: Order) -> Accesses:
        """The frames before are written, then each element of the frame is read and written; in the end it is written
        whether there is a stack."""
        elems, channels = node.output.elems, node.attributes.channels
        held = (Runs.of(0, t.elems, 0, stride=0, hold=elems + 2) for p, t in node.activations() if p)
        reads = Runs.of(0, channels, elems - channels)
        return Accesses(elems + 2, (reads, *held), (Runs.sweep(elems), Runs.of(0, 1, elems)))

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        if position:
            return node.outputs[output].size_bytes
        if output or node.output.elems < 2:
            return None
        return (node.output.elems - node.input(0).elems) * node.output.dtype.size_bytes

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        a, (frame, before) = node.attributes, inputs
        stack = np.concatenate([before[1:], frame])
        count = int(before[0])
        if not before[0]:
            stack, count = np.tile(frame, a.frames), a.left + 1
        is_whole = count >= a.frames
        made = stack if is_whole else np.zeros_like(stack)
        after = np.array([1 + count - (a.step if is_whole else 0)], np.int16)
        return made, np.array(is_whole), np.concatenate([after, stack[a.channels :]])

    def c_call(self, node: Node) -> CCall:
        require_types(DType.INT16, (node.input(0), node.output))
        require_types(DType.BOOL, node.outputs[1:])
        a = node.attributes
        values = {"channels": a.channels, "frames": a.frames, "first": a.left + 1, "step": a.step}
        return kernel_call("signal_stacker", values, (node.input(0), node.input(1), *node.outputs))

    def sample(self, name: str, draw: Draw) -> Node:
        """With and without frames before and after."""
        channels, left, right = draw.integer(1, 8), draw.integer(0, 4), draw.integer(0, 3)
        stacker = Stacker(channels, left, right, draw.integer(1, left + right + 2))
        data = activation((channels,), DType.INT16)
        return remembering(self, node_of(self, name, stacker, [data], (DType.INT16, DType.BOOL)))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        found: Array = rng.integers(-(2**15), 2**15, tensor.shape)
        if position:
            found[0] = rng.integers(0, node.attributes.frames + 1)
        return found


KIND = StackerKind()
