"""What a model needs if every tensor is kept whole: live bytes at each step, and the op that sets the peak."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from diagmem.model.graph import Graph
from diagmem.model.notebook import ShownAsTable
from diagmem.ops import node_macs
from diagmem.planning.bounds import tensor_buffers
from diagmem.planning.needs.problem import live_bytes
from diagmem.transforms.remove_channels import ChannelCounts, channel_counts


@dataclass(frozen=True, slots=True)
class Inspection(ShownAsTable):
    """`live`: bytes of the tensors that live while op i runs, in file order. `channels`: how many channels of op i's
    output need not exist; none, where the model has no weights."""

    graph: Graph = field(repr=False)
    live: tuple[int, ...]
    macs: tuple[int, ...]
    channels: tuple[ChannelCounts, ...] = field(repr=False)

    @property
    def peak_bytes(self) -> int:
        return max(self.live, default=0)

    @property
    def peak_op(self) -> int | None:
        return self.live.index(self.peak_bytes) if self.live else None

    @property
    def weights_bytes(self) -> int:
        return sum(t.size_bytes for t in self.graph.tensors if t.is_constant)

    @property
    def activations_bytes(self) -> int:
        """All tensors in RAM, were each to have its own place."""
        return sum(t.size_bytes for t in self.graph.tensors if not t.is_constant)

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.graph.name,
            "ops": [
                {
                    "index": op.index,
                    "kind": op.kind,
                    "inputs": list(op.inputs),
                    "outputs": list(op.outputs),
                    "live_bytes": live,
                    "macs": macs,
                    "channels": asdict(channels),
                }
                for op, live, macs, channels in zip(self.graph.ops, self.live, self.macs, self.channels, strict=True)
            ],
            "tensors": [
                {
                    "index": t.index,
                    "name": t.name,
                    "shape": list(t.shape),
                    "dtype": t.dtype.value,
                    "bytes": t.size_bytes,
                    "constant": t.is_constant,
                    "variable": t.is_variable,
                }
                for t in self.graph.tensors
            ],
            "inputs": list(self.graph.inputs),
            "outputs": list(self.graph.outputs),
            "peak_bytes": self.peak_bytes,
            "peak_op": self.peak_op,
            "weights_bytes": self.weights_bytes,
            "activations_bytes": self.activations_bytes,
            "macs": sum(self.macs),
        }


def inspect(graph: Graph) -> Inspection:
    live = live_bytes(tensor_buffers(graph, range(len(graph.ops))).values(), len(graph.ops))
    return Inspection(graph, live, tuple(map(node_macs, graph.nodes)), channel_counts(graph))
