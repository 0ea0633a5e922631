"""How many channels of each operation need not exist, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import Graph, Node
from diagmem.transforms.channels.keeping import Keeping, keeping_of
from diagmem.transforms.channels.links import links_of
from diagmem.transforms.channels.sums import Array, Sums


@dataclass(frozen=True, slots=True)
class ChannelCounts:
    """Of an operation's outputs. `of_constants`: those that depend on nothing that varies, as where all weights are 0.
    `one_value`: those that always come out the same though something varies, after rounding and clamping. `unread`:
    others that make no difference to any output of the model. `removable`: those of all these that can go; some cannot,
    since an operation needs them beside others."""

    channels: int = 0
    of_constants: int = 0
    one_value: int = 0
    unread: int = 0
    removable: int = 0

    @property
    def constant(self) -> int:
        return self.of_constants + self.one_value


def channel_counts(graph: Graph) -> tuple[ChannelCounts, ...]:
    """For each operation of a graph as its file has it."""
    if any(tensor.view is not None for tensor in graph.tensors):
        return (ChannelCounts(),) * len(graph.ops)
    keeping = keeping_of(graph)
    return tuple(_counts(node, keeping) for node in graph.nodes)


def _counts(node: Node, keeping: Keeping) -> ChannelCounts:
    if not node.outputs:
        return ChannelCounts()
    if len(node.outputs) != 1:
        kept = np.concatenate([keeping.kept[t] for t in node.op.outputs])
        return ChannelCounts(len(kept), removable=int((~kept).sum()))
    fixed, kept = keeping.ranges[node.output.index].is_constant, keeping.kept[node.output.index]
    moved = _varying(node, keeping) if fixed.any() else fixed
    return ChannelCounts(
        len(kept),
        int((fixed & ~moved).sum()),
        int((fixed & moved).sum()),
        int((~fixed & ~kept).sum()),
        int((~kept).sum()),
    )


def _varying(node: Node, keeping: Keeping) -> Array:
    """Output channels that depend on something that varies."""
    sums, data = Sums.of(node), keeping.ranges[node.input(0).index]
    if sums is not None:
        reads = sums.reads()
        sources = np.arange(reads.shape[1])[None] if sums.sources is None else sums.sources[:, None]
        found: Array = np.any(reads & ~data.is_constant[sources], axis=1)
        return found
    varying = np.zeros(len(keeping.kept[node.output.index]), bool)
    for link in links_of(node) or ():
        np.logical_or.at(varying, link.outputs, ~keeping.ranges[link.tensor.index].is_constant[link.inputs])
    return varying
