"""SignalFramer: a stream of samples cut into frames that overlap."""

from __future__ import annotations

import math
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
class Framer:
    """Input: rows of new samples, some whole steps of them. `size`: of a frame; `step`: from one to the next.
    `prefill`: before the first sample there was silence; else there is no frame until enough samples have come in."""

    size: int = 0
    step: int = 0
    prefill: int = 0

    @property
    def kept(self) -> int:
        """Samples of a row that a frame needs beside a new step. They are whole steps, unless there was silence: then
        the oldest ones are those of a frame, and the newest wait for the next."""
        return (self.size if self.prefill else -(-self.size // self.step) * self.step) - self.step

    @property
    def missing(self) -> int:
        """Steps that must come in before the first frame does."""
        return 0 if self.prefill else self.kept // self.step


class FramerKind(OpKind):
    """Outputs: frames, and whether there are any yet. TFLite Micro leaves a frame as it was until there is one; here it
    is 0."""

    names = ("CUSTOM:SignalFramer",)
    keeps_state = True
    takes = Signature((1, 2), (2, 2), made=None)
    needs = Fitting(is_drawn_whole=True)
    table = CustomTable(Framer, ("frame_size", "frame_step", "prefill"), flags=("prefill",))

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        """How many steps have come in, until there are enough; then what is kept of each row."""
        return (state("kept", (1 + _rows(node) * node.attributes.kept,), DType.INT16),)

    def output_shapes(self, name: str, attributes: Framer, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        shape, size, step = input_at(inputs, 0).shape, attributes.size, attributes.step
        if not shape or min(size, step) < 1 or shape[-1] < step or shape[-1] % step:
            raise ModelError(f"samples {list(shape)} are not steps of {step} to frames of {size}; the file is damaged")
        if attributes.kept < 0 or attributes.missing > 2**15 - 1:
            raise ModelError(f"frames of {size} samples with a step of {step} cannot be filled; the file is damaged")
        return (*shape[:-1], shape[-1] // step, size), ()

    def accesses(self, node: Node, order: Order) -> Accesses:
        """Frame by frame: what is kept is written, then each sample is read and written; those that are too new for the
        frame are read last. In the end it is written whether there were frames."""
        a, frames = node.attributes, node.output.elems // node.attributes.size
        new, step = a.size - a.kept, a.size + 1
        frame, steps = np.arange(frames), frames * step + 2
        reads = Runs.join(
            Runs.of(frame * a.step, new, frame * step + a.kept),
            Runs.of(frame * a.step + new, a.step - new if a.kept else 0, frame * step + a.size, stride=0),
        )
        held = (Runs.of(0, t.elems, 0, stride=0, hold=steps) for p, t in node.activations() if p)
        writes = Runs.of(frame * a.size, a.size, frame * step), Runs.of(0, 1, steps - 2)
        return Accesses(steps, (reads, *held), writes)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        a, rows = node.attributes, _rows(node)
        seen, kept = int(inputs[1][0]), inputs[1][1:].reshape(rows, a.kept)
        stream = np.concatenate([kept, inputs[0].reshape(rows, -1)], axis=1)
        frames = inputs[0].size // rows // a.step
        made = np.stack([stream[:, f * a.step :][:, : a.size] for f in range(frames)], axis=1)
        made[:, : max(0, a.missing - seen)] = 0
        after = np.array([min(a.missing, seen + frames)], np.int16)
        last = stream[:, frames * a.step :].reshape(-1)
        return made.reshape(node.output.shape), np.array(seen >= a.missing), np.concatenate([after, last])

    def c_call(self, node: Node) -> CCall:
        require_types(DType.INT16, (node.input(0), node.output))
        require_types(DType.BOOL, node.outputs[1:])
        a, rows = node.attributes, _rows(node)
        values = {
            "rows": rows,
            "frames": node.input(0).elems // rows // a.step,
            "size": a.size,
            "step": a.step,
            "kept": a.kept,
            "missing": a.missing,
        }
        return kernel_call("signal_framer", values, (node.input(0), node.input(1), *node.outputs))

    def sample(self, name: str, draw: Draw) -> Node:
        """Steps of any part of a frame, or longer than one."""
        step, prefill = draw.integer(1, 6), int(draw.boolean())
        framer = Framer(draw.integer(step if prefill else 1, 14), step, prefill)
        data = activation((*draw.many(0, 2, draw.small), step * draw.small()), DType.INT16)
        return remembering(self, node_of(self, name, framer, [data], (DType.INT16, DType.BOOL)))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        found: Array = rng.integers(-(2**15), 2**15, tensor.shape)
        if position:
            found[0] = rng.integers(0, node.attributes.missing + 1)
        return found


def _rows(node: Node) -> int:
    return math.prod(node.input(0).shape[:-1])


KIND = FramerKind()
