"""What values each channel of each tensor of a graph can have, by exact interval arithmetic on stored integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, Graph, Node, Tensor
from diagmem.ops import Unsupported, kind_of
from diagmem.transforms.channels.parts import PARTS, parts_of
from diagmem.transforms.channels.range_rules import outputs_of
from diagmem.transforms.channels.ranges import Range


def ranges_of(graph: Graph) -> dict[int, Range]:
    """Tensor -> what its channels can be."""
    found = {tensor.index: _given(tensor) for tensor in graph.tensors}
    for node in graph.nodes:
        if kind_of(node.op.kind) is None or any(t.is_variable or t.view is not None for t in node.outputs):
            continue
        if node.op.kind in PARTS:
            found.update(_parts(node, found))
            continue
        given = [None if t == ABSENT else found[t] for t in node.op.inputs]
        try:
            made = outputs_of(node, given)
        except (Unsupported, ModelError):
            continue
        if made is not None:
            found[node.output.index] = _checked(node, made)
    return found


def _parts(node: Node, found: Mapping[int, Range]) -> Iterator[tuple[int, Range]]:
    """What parts of a tensor can be: what it can be there."""
    parts = parts_of(node)
    if parts is None:
        return
    whole = found[parts.source.index]
    for output, channels in zip(node.outputs, parts.channels, strict=True):
        if (output.dtype, output.quantisation) == (parts.source.dtype, parts.source.quantisation):
            yield output.index, Range(whole.low[channels], whole.high[channels])


def _given(tensor: Tensor) -> Range:
    return Range.of_constant(tensor) if tensor.is_constant and not tensor.is_variable else Range.whole(tensor)


def _checked(node: Node, made: Range) -> Range:
    """What is no number says nothing."""
    whole = Range.whole(node.output)
    is_sound = np.isfinite(made.low) & np.isfinite(made.high) & (made.low <= made.high)
    return Range(np.where(is_sound, made.low, whole.low), np.where(is_sound, made.high, whole.high))
