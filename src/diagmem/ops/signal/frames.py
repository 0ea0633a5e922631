"""Streams of samples: SignalDelay, SignalFramer (cut into frames that overlap), SignalOverlapAdd (frames added up
again), SignalStacker (frames put beside their neighbours), SignalWindow (each sample times its weight)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.accesses import Accesses, Runs, node_reads
from diagmem.ops.c_call import (
    SUFFIXES,
    CCall,
    CTable,
    Unsupported,
    kernel_call,
    require_operands,
    require_types,
    values_of,
)
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, input_at, swept
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Delay:
    """Input: rows of samples. `length`: by how many samples each row lags behind."""

    length: int = 0


class DelayKind(OpKind):
    names = ("CUSTOM:SignalDelay",)
    keeps_state = True
    takes = Signature((1, 2))
    table = CustomTable(Delay, ("delay_length",))

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        """What is still to come out, row by row; one sample, which nobody looks at, where nothing is put off."""
        return (Tensor(0, "delayed", (max(1, _rows(node) * node.attributes.length),), DType.INT16, is_variable=True),)

    def output_shapes(self, name: str, attributes: Delay, inputs: Inputs) -> Shapes:
        shape = input_at(inputs, 0).shape
        if not shape or attributes.length < 0:
            raise ModelError(f"a delay of {list(shape)} by {attributes.length} samples; the file is damaged")
        return (shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        elems = node.output.elems
        return Accesses(elems + 1, node_reads(node, elems + 1, {0: Runs.sweep(elems)}), (Runs.sweep(elems),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        rows, length = _rows(node), node.attributes.length
        if not length:
            return inputs[0], inputs[1]
        both = np.concatenate([inputs[1].reshape(rows, length), inputs[0].reshape(rows, -1)], axis=1)
        size = both.shape[1] - length
        return both[:, :size].reshape(node.output.shape), both[:, size:].reshape(-1)

    def c_call(self, node: Node) -> CCall:
        require_types(DType.INT16, (node.input(0), node.output))
        values = {"rows": _rows(node), "size": node.input(0).shape[-1], "length": node.attributes.length}
        return kernel_call("signal_delay", values, (node.input(0), node.input(1), node.output))


def _rows(node: Node) -> int:
    return math.prod(node.input(0).shape[:-1])


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
    table = CustomTable(Framer, ("frame_size", "frame_step", "prefill"), flags=("prefill",))

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        """How many steps have come in, until there are enough; then what is kept of each row."""
        return (Tensor(0, "kept", (1 + _rows(node) * node.attributes.kept,), DType.INT16, is_variable=True),)

    def output_shapes(self, name: str, attributes: Framer, inputs: Inputs) -> Shapes:
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
        writes = Runs.of(frame * a.size, a.size, frame * step), Runs.of(0, 1, steps - 2)
        return Accesses(steps, node_reads(node, steps, {0: reads}), writes)

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
        require_operands(node, DType.INT16, DType.INT16, DType.INT16, DType.BOOL)
        a, rows = node.attributes, _rows(node)
        sizes = {"size": a.size, "step": a.step, "kept": a.kept, "missing": a.missing}
        values = {"rows": rows, "frames": node.input(0).elems // rows // a.step, **sizes}
        return kernel_call("signal_framer", values, (node.input(0), node.input(1), *node.outputs))


_TYPES = (DType.INT16, DType.FLOAT32)


@dataclass(frozen=True, slots=True)
class OverlapAdd:
    """Input: rows of frames of samples. `step`: from one frame to the next, in samples."""

    step: int = 0


class OverlapAddKind(OpKind):
    names = ("CUSTOM:SignalOverlapAdd",)
    keeps_state = True
    takes = Signature((1, 2))
    table = CustomTable(OverlapAdd, ("frame_step",), has_type=True)

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        """What frames leave over for those that follow, row by row; one sample, which nobody looks at, where they do
        not overlap."""
        *outer, _, size = node.input(0).shape
        left = math.prod(outer) * (size - node.attributes.step)
        return (Tensor(0, "overlap", (max(1, left),), node.input(0).dtype, is_variable=True),)

    def output_shapes(self, name: str, attributes: OverlapAdd, inputs: Inputs) -> Shapes:
        shape, step = input_at(inputs, 0).shape, attributes.step
        if len(shape) < 2 or not 0 < step <= shape[-1]:
            raise ModelError(f"frames {list(shape)} cannot be {step} samples apart; the file is damaged")
        return ((*shape[:-2], shape[-2] * step),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """Frame by frame its samples are read; the first ones are written at once."""
        elems, size, step = node.input(0).elems, node.input(0).shape[-1], node.attributes.step
        frame = np.arange(elems // size)
        reads = node_reads(node, elems + 1, {0: Runs.sweep(elems)})
        return Accesses(elems + 1, reads, (Runs.of(frame * step, step, frame * size),))

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
        tensors, function = (node.input(0), node.input(1), node.output), f"signal_overlap_add_{SUFFIXES[dtype]}"
        return kernel_call("signal_overlap_add", values, tensors, function=function)


def _added(first: Array, second: Array) -> Array:
    """Whole numbers are held within 16 bits."""
    if first.dtype == np.float32:
        return first + second
    found: Array = np.clip(first.astype(np.int32) + second, -(2**15), 2**15 - 1).astype(np.int16)
    return found


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
    table = CustomTable(Stacker, ("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step"))

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        """How many frames of the next stack have come in, and 1 more; 0 before the first. Then the frames before."""
        a = node.attributes
        return (Tensor(0, "stack", (1 + (a.frames - 1) * a.channels,), DType.INT16, is_variable=True),)

    def output_shapes(self, name: str, attributes: Stacker, inputs: Inputs) -> Shapes:
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
        reads = node_reads(node, elems + 2, {0: Runs.of(0, channels, elems - channels)})
        return Accesses(elems + 2, reads, (Runs.sweep(elems), Runs.of(0, 1, elems)))

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
        require_operands(node, DType.INT16, DType.INT16, DType.INT16, DType.BOOL)
        a = node.attributes
        values = {"channels": a.channels, "frames": a.frames, "first": a.left + 1, "step": a.step}
        return kernel_call("signal_stacker", values, (node.input(0), node.input(1), *node.outputs))


@dataclass(frozen=True, slots=True)
class Window:
    """Inputs: frames, a weight for each sample of a frame. `shift`: bits by which products are made smaller."""

    shift: int = 0


class WindowKind(OpKind):
    names = ("CUSTOM:SignalWindow",)
    tflm_agrees = True
    takes = Signature((2, 2), alike=(1,))
    table = CustomTable(Window, ("shift",))

    def output_shapes(self, name: str, attributes: Window, inputs: Inputs) -> Shapes:
        frames, weights = input_at(inputs, 0), input_at(inputs, 1)
        if weights.elems == 0 or frames.elems % weights.elems:
            raise ModelError(f"{weights.elems} weights do not suit {frames.elems} samples; the file is damaged")
        return (frames.shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: Runs.sweep(node.output.elems)})

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        frames, weights = inputs
        products = (frames.astype(np.int64).reshape(-1, weights.size) * weights.reshape(-1)) >> node.attributes.shift
        return (np.clip(products, -(2**15), 2**15 - 1).astype(np.int16).reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        require_types(DType.INT16, (node.input(0), node.input(1), node.output))
        if not 0 <= node.attributes.shift < 32:
            raise Unsupported(f"a shift by {node.attributes.shift} bits; supported: 0 to 31")
        weights = values_of(node.input(1)).reshape(-1)
        fields = {
            "frames": node.output.elems // weights.size,
            "size": weights.size,
            "shift": node.attributes.shift,
            "weights": CTable("weights", weights),
        }
        return kernel_call("signal_window", fields, (node.input(0), node.output))


KINDS = (DelayKind(), FramerKind(), OverlapAddKind(), StackerKind(), WindowKind())
