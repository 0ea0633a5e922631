"""What a graph needs at the least: lifetimes and live bytes, the safe overlap of each op, and bounds for any plan.

Bounds take a few milliseconds: for loops that look at thousands of networks. Every op of the graph is counted as it
stands. What transforms could leave out is not looked into: transform first, if that is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from diagmem.kernels import Library
from diagmem.model.graph import Graph, Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.accesses import replayed_separation
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.options import Options
from diagmem.transforms.channels.counting import ChannelCounts, channel_counts


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Steps [first, end) during which a tensor holds bytes that matter."""

    first: int
    end: int


def lifetimes(graph: Graph, order: Sequence[int]) -> dict[int, Lifetime]:
    """Lifetime of each tensor in RAM when the ops run in `order`.

    A graph input lives from the start to its last use, a graph output to the end, a variable always, a tensor that
    nobody reads during its own step. A tensor lives as long as any of its elements does, also under other names.
    """
    step_of = {op: step for step, op in enumerate(order)}
    found = {}
    for tensor in graph.tensors:
        readers = [step_of[op] for op in graph.readers(tensor.index)]
        writers = [step_of[op] for op in graph.writers(tensor.index)]
        is_input = tensor.index in graph.inputs
        if tensor.is_constant or not (writers or is_input or readers or tensor.is_variable):
            continue
        first = 0 if is_input or tensor.is_variable else min(writers, default=0)
        is_kept = tensor.is_variable or any(t in graph.outputs for t in graph.sharing.get(tensor.index, [tensor.index]))
        last = max([first, *readers, *writers])
        found[tensor.index] = Lifetime(first, len(order) if is_kept else min(last + 1, len(order)))
    return found


def live_bytes(graph: Graph, order: Sequence[int]) -> list[int]:
    """Bytes of the tensors that live at each step."""
    change = [0] * (len(order) + 1)
    for index, life in lifetimes(graph, order).items():
        change[life.first] += graph.tensors[index].size_bytes
        change[life.end] -= graph.tensors[index].size_bytes
    live, total = [], 0
    for delta in change[: len(order)]:
        total += delta
        live.append(total)
    return live


@dataclass(frozen=True, slots=True)
class Inspection:
    """`live`: bytes of the tensors that live while op i runs, in file order. `channels`: how many channels of op i's
    output need not exist; none, where the model has no weights."""

    graph: Graph
    live: tuple[int, ...]
    macs: tuple[int, ...]
    channels: tuple[ChannelCounts, ...]

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
    def macs(node: Any) -> int:
        kind = kind_of(node.op.kind)
        return kind.macs(node) if kind else 0

    live = live_bytes(graph, range(len(graph.ops)))
    return Inspection(graph, tuple(live), tuple(macs(node) for node in graph.nodes), channel_counts(graph))


METHODS = ("exact", "algorithmic", "analytical", "paper")


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many bytes of the input's start may lie over the output's end, by method; None where a method has no answer.

    `exact` is what planning uses. `paper` is the published formula as printed; it can be too large. `traced` comes from
    running the compiled kernel, for those who have done so.
    """

    node: Node
    input: Tensor
    output: Tensor
    exact: int | None
    algorithmic: int | None
    analytical: int | None
    paper: Fraction | None
    traced: int | None = None

    @property
    def paper_is_unsafe(self) -> bool:
        return self.paper is not None and self.exact is not None and self.paper > self.exact

    @property
    def share(self) -> float | None:
        """The exact overlap as a part of the smaller buffer, at most 1 (PAD and SLICE may overlap by more)."""
        if self.exact is None:
            return None
        return min(1.0, self.exact / min(self.input.size_bytes, self.output.size_bytes))

    def to_json(self) -> dict[str, Any]:
        return {
            "op": self.node.op.index,
            "kind": self.node.op.kind,
            "input": self.input.index,
            "output": self.output.index,
            "input_bytes": self.input.size_bytes,
            "output_bytes": self.output.size_bytes,
            "exact": self.exact,
            "algorithmic": self.algorithmic,
            "analytical": self.analytical,
            "paper": _number(self.paper),
            "paper_unsafe": self.paper_is_unsafe,
            "traced": self.traced,
        }


def overlaps(node: Node, library: Library, methods: tuple[str, ...] = METHODS) -> Iterator[Overlap]:
    """O_s for each input in RAM and each output of an operation."""
    kind = kind_of(node.op.kind)
    for position, tensor in node.activations():
        for number, output in enumerate(node.outputs):
            separation = library.separation(node, position, number)
            if kind is None or separation is None:
                yield Overlap(node, tensor, output, None, None, None, None)
                continue

            def safe(separation: int, out: Tensor = output) -> int:
                return max(0, out.size_bytes - separation)

            replayed: int | None = None
            accesses = library.accesses(node) if "algorithmic" in methods else None
            if accesses is not None:
                sizes = tensor.dtype.size_bytes, output.dtype.size_bytes
                found = replayed_separation(accesses, position, number, *sizes)
                replayed = safe(max(-tensor.size_bytes, -tensor.size_bytes if found is None else found))
            yield Overlap(
                node,
                tensor,
                output,
                safe(separation) if "exact" in methods else None,
                replayed,
                kind.analytical(node, position) if "analytical" in methods else None,
                kind.paper(node, position) if "paper" in methods else None,
            )


def all_overlaps(graph: Graph, library: Library, methods: tuple[str, ...] = METHODS) -> Iterator[Overlap]:
    for node in graph.nodes:
        yield from overlaps(node, library, methods)


def _number(value: Fraction | None) -> int | float | None:
    if value is None:
        return None
    return int(value) if value.denominator == 1 else float(value)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes that no plan of a graph with all its ops stays below, over all orders and placements.

    `whole_bytes`: without overlap. `overlapped_bytes`: with overlap. `rows_bytes`: row by row, with an input that is
    given whole; `streamed_bytes`: with one that comes a row at a time.
    """

    whole_bytes: int
    overlapped_bytes: int
    rows_bytes: int
    streamed_bytes: int


def bounds(graph: Graph, options: Options) -> Bounds:
    """The bounds of a graph, from what is live at its most demanding op."""
    needs = footprint(graph, replace(options, overlap=True))
    overlapped = needs.least_pressure * needs.unit_bytes
    whole = max(needs.least_outside, *needs.least_apart, 0) * needs.unit_bytes
    # Row by row, a graph's outputs lie whole at the end, and what is given whole lies there at the beginning.
    outputs = sum(graph.tensors[t].size_bytes for t in dict.fromkeys(graph.outputs) if not graph.tensors[t].is_constant)
    inputs = sum(graph.tensors[t].size_bytes for t in dict.fromkeys(graph.inputs))
    row = max((graph.tensors[t].row_bytes for t in graph.inputs), default=0)
    return Bounds(whole, overlapped, min(overlapped, max(inputs, outputs)), min(overlapped, max(row, outputs)))
