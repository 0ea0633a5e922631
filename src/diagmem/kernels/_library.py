"""What a kernel library is: where its loop orders differ from those of our own kernels, and what its kernels take from
the arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from diagmem.model.graph import Node
from diagmem.model.schedule import Cut
from diagmem.ops import InstructionSet, OpKind, Unsupported, Variant, kind_of
from diagmem.ops.accesses import Accesses
from diagmem.ops.c_call import CCall, WeightCopies, weight_copies
from diagmem.ops.orders import Order

OrderRule = Order | Callable[[Node], Order | None] | None
"""A loop order, or a function that picks it for a node. None: it has no such kernel, or its kernel may not overlap."""

ScratchRule = Callable[[Node], int]


def own_order(node: Node) -> Order | None:
    """The order of our own kernel."""
    kind = kind_of(node.op.kind)
    return None if kind is None else kind.default_order(node)


class ChannelBlock(NamedTuple):
    """Output channels that kernels compute together, `size` of them. Where at least `least_rest` are left over behind
    the last whole block, a whole block more is faster, though it computes channels that nobody needs: measured.
    `of_float32`: for float32 too; without an FPU, every channel costs the same number of instructions."""

    size: int = 1
    least_rest: int = 1
    of_float32: bool = True

    def filled(self, channels: int) -> int:
        """How many channels to compute where so many are needed."""
        rest = channels % self.size
        return channels if rest < self.least_rest else channels - rest + self.size


ONE_BY_ONE = ChannelBlock()
"""Of kernels to which all numbers of channels are alike, or of which nothing is known."""

LEAN = "/"
"""Stands between the name of a library and those of its ops that are run without scratch."""


def lean_name(name: str, lean: frozenset[int] | None) -> str:
    """`diagmem-dsp/3,7`: that library, ops 3 and 7 without scratch; `diagmem-dsp/all`."""
    base = name.partition(LEAN)[0]
    ops = "all" if lean is None else ",".join(map(str, sorted(lean)))
    return f"{base}{LEAN}{ops}" if ops else base


def _known(node: Node) -> OpKind:
    kind = kind_of(node.op.kind)
    if kind is None:
        raise Unsupported("diagmem does not know this operation")
    return kind


@dataclass(frozen=True, slots=True)
class Library:
    """`exceptions`: TFLite's name of an operation -> the order that this library's kernel has. `otherwise`: what gives
    the order of all other operations. `scratch`: an operation -> what its kernel takes from the arena while it runs.
    `align_bytes`: the alignment that its tensors get unless told otherwise. `keeps_variables`: its runtime holds
    variables elsewhere than among the tensors that are planned. `addresses_views`: its kernels can read and write a
    part of a tensor. `is_own`: its kernels are ours, so that C can be emitted. `instructions`: what they use beyond
    plain C. `scratch_align_bytes`: the alignment of what kernels take from the arena. `lean`: ops of the model, by
    their numbers in its file, that are run by a kernel that takes nothing from the arena, though there be a faster
    one; None: all of them. `channel_block`: how many channels its convolutions should have."""

    name: str
    summary: str
    exceptions: Mapping[str, OrderRule] = field(default_factory=dict)
    otherwise: Callable[[Node], Order | None] = own_order
    scratch: Mapping[str, ScratchRule] = field(default_factory=dict)
    align_bytes: int = 1
    keeps_variables: bool = False
    addresses_views: bool = False
    is_own: bool = False
    instructions: InstructionSet | None = None
    scratch_align_bytes: int = 4
    lean: frozenset[int] | None = frozenset()
    channel_block: ChannelBlock = ONE_BY_ONE

    def order(self, node: Node) -> Order | None:
        """The loop order that this library uses for the node, one of its kind's. None: not known, or not looked at; may
        not overlap."""
        kind = kind_of(node.op.kind)
        if kind is None or node.is_huge:
            return None
        variant = self.variant(node)
        if variant is not None:
            return variant.order
        rule = self.exceptions.get(node.op.kind, self.otherwise)
        found = rule(node) if callable(rule) else rule
        return found if found in kind.orders else None

    def variant(self, node: Node) -> Variant | None:
        """The fastest kernel of ours for its instructions, or the fastest of those that take no scratch; None where
        that is the one in plain C."""
        kind = kind_of(node.op.kind)
        if kind is None or self.instructions is None:
            return None
        is_lean = self.lean is None or node.op.number in self.lean
        found = kind.variants(node, self.instructions)
        return next((variant for variant in found if not (is_lean and variant.scratch_bytes)), None)

    def leaner(self, op: int) -> Library:
        """The same with one more op, by its number, run without scratch."""
        lean = None if self.lean is None else self.lean | {op}
        return replace(self, name=lean_name(self.name, lean), lean=lean)

    def call(self, node: Node) -> CCall:
        """How the operation is called in C; raises Unsupported."""
        variant = self.variant(node)
        return _known(node).c_call(node) if variant is None else variant.call(node)

    def row_call(self, node: Node) -> CCall:
        """How one row of it is."""
        kind, variant = _known(node), self.variant(node)
        return kind.c_row_call(node) if variant is None else kind.by_rows(node, variant.row_call or variant.call)

    def weight_copies(self, node: Node, by_turns: bool) -> WeightCopies | None:
        """The constants of an operation that may be copied to RAM before it runs; None where it has none, or no kernel
        of ours. The model must hold their values."""
        if not self.is_own:
            return None
        try:
            return weight_copies(self.row_call(node) if by_turns else self.call(node))
        except Unsupported:
            return None

    def cuts(self, node: Node) -> tuple[Cut, ...]:
        """The ways in which several cores can share its kernel for the node."""
        kind = kind_of(node.op.kind)
        is_known = kind is not None and self.is_own and kind.lists_all_reads(node) and not node.is_huge
        return kind.cuts(node, self.variant(node)) if kind is not None and is_known else ()

    def row_cuts(self, node: Node) -> tuple[Cut, ...]:
        """The same of its kernel that makes one row. What sums up rows is not shared."""
        kind, variant = kind_of(node.op.kind), self.variant(node)
        if kind is None or not self.is_own or kind.accumulator_bytes(node) is not None or not kind.has_row_kernel(node):
            return ()
        return kind.row_cuts(node, None if variant is None else replace(variant, order=variant.row_order))

    def accesses(self, node: Node) -> Accesses | None:
        """What its kernel for the node touches; None: not known, may not overlap."""
        kind, order = kind_of(node.op.kind), self.order(node)
        return None if kind is None or order is None else kind.accesses(node, order)

    def row_order(self, node: Node) -> Order | None:
        """The loop order of a run row by row."""
        order, variant = self.order(node), self.variant(node)
        return order if variant is None or order is None else variant.row_order

    def row_accesses(self, node: Node) -> Accesses | None:
        """What is touched in a run row by row."""
        kind, order = kind_of(node.op.kind), self.row_order(node)
        return None if kind is None or order is None else kind.accesses(node, order)

    def separation(self, node: Node, position: int, output: int) -> int | None:
        """separation(output below, input above) in bytes for its kernel; None: not known, may not overlap."""
        kind, order = kind_of(node.op.kind), self.order(node)
        return None if kind is None or order is None else kind.separation(node, position, order, output)

    def scratch_bytes(self, node: Node, cores: int = 1) -> int:
        """Bytes of the arena that the kernel needs while it runs, besides its inputs and outputs. Each of several cores
        that can share its work has its own, aligned."""
        variant, rule = self.variant(node), self.scratch.get(node.op.kind)
        found = variant.scratch_bytes if variant is not None else rule(node) if rule else 0
        if cores == 1 or not found or not self.cuts(node):
            return found
        return self.scratch_of_core(found) * (cores - 1) + found

    def scratch_of_core(self, size_bytes: int) -> int:
        """From the scratch of one core to that of the next."""
        return -(-size_bytes // self.scratch_align_bytes) * self.scratch_align_bytes
