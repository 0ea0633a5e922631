"""How the tests draw the operations of `signal/frames.py`."""

from __future__ import annotations

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.kind import Array
from diagmem.ops.signal.frames import (
    _TYPES,
    Delay,
    DelayKind,
    Framer,
    FramerKind,
    OverlapAdd,
    OverlapAddKind,
    Stacker,
    StackerKind,
    Window,
    WindowKind,
)
from tests.ops.sampling import Draw, Fitting, Samples, activation, constant_of, node_of, remembering


class StreamSamples(Samples):
    """Of what keeps samples from run to run, and may count what has come in: that is the first of its state."""

    needs = Fitting(is_drawn_whole=True)

    def most_counted(self, node: Node) -> int | None:
        """Of what the kind counts in its state; None where it does not count."""
        return None

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        most = self.most_counted(node)
        if most is None:
            return None
        found: Array = rng.integers(-(2**15), 2**15, tensor.shape)
        if position:
            found[0] = rng.integers(0, most + 1)
        return found


class DelaySamples(StreamSamples, of=DelayKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Shorter and longer than a row."""
        shape = (*draw.many(0, 3, draw.small), draw.integer(1, 12))
        delay = Delay(draw.integer(0, 20))
        return remembering(self.kind, node_of(self.kind, name, delay, [activation(shape, DType.INT16)], (DType.INT16,)))


class FramerSamples(StreamSamples, of=FramerKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Steps of any part of a frame, or longer than one."""
        step, prefill = draw.integer(1, 6), int(draw.boolean())
        framer = Framer(draw.integer(step if prefill else 1, 14), step, prefill)
        data = activation((*draw.many(0, 2, draw.small), step * draw.small()), DType.INT16)
        return remembering(self.kind, node_of(self.kind, name, framer, [data], (DType.INT16, DType.BOOL)))

    def most_counted(self, node: Node) -> int:
        return int(node.attributes.missing)


class OverlapAddSamples(StreamSamples, of=OverlapAddKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Frames that overlap by less and by more than half, or not at all."""
        size, dtype = draw.integer(1, 10), draw.choice(_TYPES)
        shape = (*draw.many(0, 2, draw.small), draw.small(), size)
        step = OverlapAdd(draw.integer(1, size + 1))
        return remembering(self.kind, node_of(self.kind, name, step, [activation(shape, dtype)], (dtype,)))


class StackerSamples(StreamSamples, of=StackerKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """With and without frames before and after."""
        channels, left, right = draw.integer(1, 8), draw.integer(0, 4), draw.integer(0, 3)
        stacker = Stacker(channels, left, right, draw.integer(1, left + right + 2))
        data = activation((channels,), DType.INT16)
        return remembering(self.kind, node_of(self.kind, name, stacker, [data], (DType.INT16, DType.BOOL)))

    def most_counted(self, node: Node) -> int:
        return int(node.attributes.frames)


class WindowSamples(Samples, of=WindowKind):
    needs = Fitting(is_drawn_whole=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """One frame or several, any weights."""
        size = draw.integer(1, 40)
        weights = constant_of(draw.numbers(np.int16, (size,)))
        frames = activation((*draw.many(0, 2, draw.small), size), DType.INT16)
        return node_of(self.kind, name, Window(draw.integer(8, 17)), [frames, weights], (DType.INT16,))
