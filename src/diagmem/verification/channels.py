"""The ranges by which channels are taken out, held against what operations compute.

Random inputs of a whole model seldom come near the ends of ranges: a channel that varies once in a million would be
taken for a constant. So each operation is run by itself, on inputs that lead each of its channels to both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Graph, Node, Padding
from diagmem.ops import Unsupported, kind_of
from diagmem.transforms.channel_links import Array, Sums
from diagmem.transforms.channel_ranges import Range

MOST_ELEMS = 2**22
"""Of images that are tried together."""

MOST_PLACES = 25
"""Where a window lies partly outside the image: five times five ways and more are tried in part."""

STORED = (DType.INT8, DType.INT16)

RANDOM_RUNS = 2


def range_faults(graph: Graph, ranges: Mapping[int, Range], seed: int = 0) -> Iterator[str]:
    """Channels that an operation leads out of their range, in a line each. What ranges say of an operation's inputs is
    taken for granted, for they are outputs of others, or anything."""
    rng = np.random.default_rng(seed)
    for node in graph.nodes:
        if len(node.outputs) != 1 or not node.output.elems or not node.output.shape:
            continue
        claimed = ranges[node.output.index]
        for values in _outputs(node, ranges, rng):
            found = values.reshape(-1, node.output.shape[-1]).astype(np.float64)
            outside = (found < claimed.low) | (found > claimed.high)
            if outside.any():
                row, channel = (int(i) for i in np.argwhere(outside)[0])
                limits = f"[{claimed.low[channel]:g}, {claimed.high[channel]:g}]"
                yield f"{node.label}: channel {channel} is {found[row, channel]:g}, and not within {limits}"
                break


def _outputs(node: Node, ranges: Mapping[int, Range], rng: np.random.Generator) -> Iterator[Array]:
    kind, sums = kind_of(node.op.kind), Sums.of(node)
    if kind is None or any(t is not None and t.is_variable for t in node.inputs):
        return
    try:
        if sums is not None and node.input(0).dtype in STORED:
            yield from _at_the_ends(node, sums, ranges[node.input(0).index])
        for _ in range(RANDOM_RUNS):
            given = [None if t is None else _drawn(t.data, t.shape, t.dtype, ranges[t.index], rng) for t in node.inputs]
            if any(t is not None and values is None for t, values in zip(node.inputs, given, strict=True)):
                return
            with np.errstate(all="ignore"):
                yield kind.reference(node, given)[0]
    except Unsupported:
        return


def _drawn(
    data: Array | None, shape: tuple[int, ...], dtype: DType, found: Range, rng: np.random.Generator
) -> Array | None:
    """Values within a range: its ends, and some between."""
    if data is not None:
        return data
    if dtype is DType.FLOAT32:
        varied = rng.normal(0, 2, shape)
        return np.where(found.is_constant, found.low, varied).astype(np.float32)
    if dtype not in STORED:
        return None
    low, high = (np.broadcast_to(limit.astype(np.int64), shape) for limit in (found.low, found.high))
    between: npt.NDArray[np.int64] = rng.integers(low, high, endpoint=True)
    drawn: Array = np.choose(rng.integers(0, 4, shape), (low, high, between, between))
    return drawn.astype(dtype.numpy)


def _at_the_ends(node: Node, sums: Sums, found: Range) -> Iterator[Array]:
    """A window for each output channel and end of its range, at each place: inputs of positive weight are largest, or
    least, and those of negative weight the other; what lies outside the image is 0."""
    outputs, taps, _ = sums.weights.shape
    low, high = (limit.astype(np.int64) for limit in (found.low, found.high))
    together = max(1, MOST_ELEMS // max(1, taps * len(low)))
    for first in range(0, outputs, together):
        rows = sums.weights[first : first + together]
        if sums.sources is not None:
            every = np.zeros((len(rows), taps, len(low)), np.int8)
            every[np.arange(len(rows)), :, sums.sources[first : first + together]] = rows[:, :, 0]
            rows = every
        for ends in ((low, high), (high, low)):
            full = np.where(rows > 0, ends[1], ends[0])
            for inside in sums.inside[:: -(-len(sums.inside) // MOST_PLACES)]:
                windows = np.where(inside[:, None], full, sums.zero)
                yield _run(node, windows)


def _run(node: Node, windows: Array) -> Array:
    """What an operation makes of windows [window, tap, channel] that lie inside the image as they are."""
    data, kind = node.input(0), kind_of(node.op.kind)
    assert kind is not None
    if node.op.kind == "FULLY_CONNECTED":
        shape: tuple[int, ...] = (len(windows), windows.shape[1] * windows.shape[2])
        op = replace(node.op, attributes=replace(node.attributes, keep_num_dims=False))
        made: tuple[int, ...] = (len(windows), node.output.shape[-1])
    else:
        height, width = node.input(1).shape[1:3]
        shape = (len(windows), height, width, windows.shape[2])
        plain = replace(node.attributes, padding=Padding.VALID, dilation_h=1, dilation_w=1)
        op = replace(node.op, attributes=plain)
        made = (len(windows), 1, 1, node.output.shape[-1])
    alone = Node(op, (replace(data, shape=shape), *node.inputs[1:]), (replace(node.output, shape=made),))
    values = [
        windows.reshape(shape).astype(data.dtype.numpy),
        *(None if t is None else t.data for t in node.inputs[1:]),
    ]
    return kind.reference(alone, values)[0]
