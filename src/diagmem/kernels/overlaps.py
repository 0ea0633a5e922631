"""O_s, the safe overlap of an operation's output and input, by each method side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from diagmem.kernels import Library
from diagmem.model.graph import Graph, Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.accesses import replayed_separation

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
