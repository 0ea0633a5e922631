"""Channels that are constant, or that nobody reads."""

from __future__ import annotations

from diagmem.kernels import ONE_BY_ONE, ChannelBlock
from diagmem.model.graph import Graph
from diagmem.transforms._editing import Choice, edited
from diagmem.transforms.channels.keeping import keeping_of
from diagmem.transforms.channels.narrowing import narrowed


def remove_channels(graph: Graph, choice: Choice, block: ChannelBlock = ONE_BY_ONE) -> Graph:
    """Tensors get narrower, layers smaller, and every channel that is left has the bytes that it had: the model's
    tensor of the same index, at the `channels` of the one here. `block`: some stay
    where kernels compute so many together anyway. What the caller sees stays as wide as it was."""
    if any(tensor.view is not None for tensor in graph.tensors):
        return graph
    keeping = keeping_of(graph, choice, block)
    if keeping.is_complete:
        return graph
    less = narrowed(keeping)
    return edited(less.graph, without=less.dead, ops=less.ops)
