"""Which channels are needed: those that a caller sees, and from there backwards those that make a difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from diagmem.kernels import ONE_BY_ONE, ChannelBlock
from diagmem.model.graph import ABSENT, DType, Graph, Node, Op
from diagmem.ops import kind_of
from diagmem.transforms.channels.analysis import ranges_of
from diagmem.transforms.channels.links import Link, links_of
from diagmem.transforms.channels.parts import PARTS
from diagmem.transforms.channels.ranges import Range
from diagmem.transforms.channels.sums import Array, Sums
from diagmem.transforms.drop_dead import has_effect

MOST_BIAS = {DType.INT32: 2**31, DType.INT64: 2**53}
"""A bias below that fits its type, and is held exactly by a 64-bit real number."""


Choice = Callable[[Op], bool]


def _any(op: Op) -> bool:
    return True


def is_needed(node: Node, kept: dict[int, Array]) -> bool:
    """Whether an op stays. One whose outputs are empty does: none of their channels can say that they are needed."""
    return has_effect(node) or any(kept[t].any() or not kept[t].size for t in node.op.outputs)


@dataclass(frozen=True)
class Keeping:
    """`kept`: tensor -> of each of its channels, whether it is needed. An op none of whose output channels is needed
    goes as a whole. `ranges`: what values the channels can have."""

    graph: Graph
    kept: dict[int, Array]
    ranges: dict[int, Range]

    def is_live(self, node: Node) -> bool:
        return is_needed(node, self.kept)

    def is_whole(self, tensor: int) -> bool:
        return bool(self.kept[tensor].all())

    @cached_property
    def is_complete(self) -> bool:
        """Whether everything stays."""
        nodes = [node for node in self.graph.nodes if self.is_live(node)]
        touched = {t for node in nodes for t in (*node.op.inputs, *node.op.outputs) if t != ABSENT}
        return len(nodes) == len(self.graph.ops) and all(self.is_whole(t) for t in touched)


def keeping_of(graph: Graph, choice: Choice = _any, block: ChannelBlock = ONE_BY_ONE) -> Keeping:
    """The smallest sets of channels that are closed: what is needed has all that it is made of, and channels that
    cannot go without each other stay together. `choice`: ops whose outputs may get narrower. `block`: convolutions get
    some channels back to fill it."""
    closure = _Closure(graph, ranges_of(graph), choice)
    found = closure.result()
    return closure.filled(block) if block.size > 1 and not found.is_complete else found


class _Closure:
    def __init__(self, graph: Graph, ranges: dict[int, Range], choice: Choice) -> None:
        self.graph, self.ranges = graph, ranges
        self.kept = {t.index: np.zeros(t.shape[-1] if t.shape else 1, bool) for t in graph.tensors}
        self.sums = {node.op.index: _full_sums(node) for node in graph.nodes}
        self.reads = {op: sums.reads() for op, sums in self.sums.items() if sums is not None}
        self.links = {node.op.index: links_of(node) if self._may_change(node) else None for node in graph.nodes}
        for tensor in (*graph.inputs, *graph.outputs, *(t.index for t in graph.tensors if t.is_variable)):
            self.kept[tensor][:] = True
        for node in graph.nodes:
            if not choice(node.op) or has_effect(node):
                self._keep_all(node.op.outputs)

    def result(self) -> Keeping:
        count = -1
        while count != (count := sum(int(mask.sum()) for mask in self.kept.values())):
            for node in reversed(self.graph.nodes):
                if is_needed(node, self.kept):
                    self._close(node)
        return Keeping(self.graph, self.kept, self.ranges)

    def filled(self, block: ChannelBlock) -> Keeping:
        """With so many more channels that blocks are whole, of each layer those that ask for the fewest inputs."""
        for node in self.graph.nodes:
            sums = self.sums[node.op.index]
            if sums is None or (sums.is_real and not block.of_reals):
                continue
            made = self.kept[node.output.index]
            needed = int(made.sum())
            missing = min(block.filled(needed), len(made)) - needed
            if not needed or not missing:
                continue
            known = foldable(sums, ~made, self.ranges[node.input(0).index]) | self.kept[node.input(0).index]
            asked = (self.reads[node.op.index] & ~known).sum(axis=1) + np.where(made, len(known) + 1, 0)
            made[np.argsort(asked, kind="stable")[:missing]] = True
            self.result()
        return self.result()

    def _may_change(self, node: Node) -> bool:
        is_plain = all(t is None or (t.view is None and not t.is_variable) for t in (*node.inputs, *node.outputs))
        return is_plain and kind_of(node.op.kind) is not None

    def _keep_all(self, tensors: tuple[int, ...]) -> None:
        for tensor in tensors:
            if tensor != ABSENT:
                self.kept[tensor][:] = True

    def _close(self, node: Node) -> None:
        sums, links = self.sums[node.op.index], self.links[node.op.index]
        if sums is not None and self._may_change(node):
            self._needed_by(node, sums)
        elif links is not None:
            self._tied(node, links)
        else:
            self._keep_all((*node.op.inputs, *node.op.outputs))

    def _tied(self, node: Node, links: tuple[Link, ...]) -> None:
        tied = set()
        if node.op.kind in PARTS:
            self._even_out(node)
        for link in links:
            given, made = self.kept[link.tensor.index], self.kept[link.made.index]
            np.logical_or.at(given, link.inputs, made[link.outputs])
            made[link.outputs] |= given[link.inputs]
            tied.add(link.tensor.index)
        self._keep_all(tuple(t for t in node.op.inputs if t not in tied))

    def _even_out(self, node: Node) -> None:
        """Every part has a channel at least; those of a SPLIT along channels have as many each."""
        made = [self.kept[t] for t in node.op.outputs]
        widths = {len(kept) for kept in made}
        is_even = node.op.kind == "SPLIT" and widths != {node.input(1).shape[-1]}
        most = max(1, *(int(kept.sum()) for kept in made)) if is_even else 1
        for kept in made:
            kept[np.flatnonzero(~kept)[: max(0, most - int(kept.sum()))]] = True

    def _needed_by(self, node: Node, sums: Sums) -> None:
        """Of the input: what a needed output that varies reads, unless its part of the sum is known. At least one is
        read."""
        varying = self.kept[node.output.index] & ~self.ranges[node.output.index].is_constant
        given = self.kept[node.input(0).index]
        reads = self.reads[node.op.index][varying].any(axis=0)
        folded = reads & foldable(sums, varying, self.ranges[node.input(0).index])
        given |= reads & ~folded
        if not given.any():
            given[0] = True
        self._keep_all(node.op.inputs[1:])


def _full_sums(node: Node) -> Sums | None:
    """Those that add up all channels."""
    sums = Sums.of(node)
    return sums if sums is not None and sums.sources is None else None


def foldable(sums: Sums, made: Array, given: Range) -> Array:
    """Input channels whose part of every sum of the outputs `made` is one number, wherever the window lies: it can be
    part of the bias. None of them, if a bias would not fit."""
    fixed = given.is_constant
    is_zero: Array = fixed & (given.low == sums.zero)
    if sums.is_real:
        return is_zero
    adding = np.flatnonzero(fixed & (given.low != sums.zero))
    parts = sums.added(made, adding, given.low)
    is_same = (parts == parts[:1]).all(axis=(0, 1))
    found: Array = fixed.copy()
    found[adding[~is_same]] = False
    largest = np.abs(parts[0][:, is_same].sum(axis=1) + sums.bias[made]).max(initial=0)
    return found if largest < MOST_BIAS[sums.bias_dtype] else is_zero
