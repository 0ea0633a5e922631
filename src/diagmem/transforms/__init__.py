"""Operations that need not exist: graphs that compute the same with fewer ops, and fewer bytes.

Each transform is a function of a graph and of which ops it may remove. All are made for kernels that can address a part
of a tensor: those of the C backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from diagmem.model.graph import Graph, Op
from diagmem.ops import kind_of
from diagmem.transforms._editing import Choice
from diagmem.transforms.drop_dead import drop_dead
from diagmem.transforms.drop_no_ops import drop_no_ops
from diagmem.transforms.fold_constants import fold_constants
from diagmem.transforms.fold_pad import fold_pad
from diagmem.transforms.fuse_activation import fuse_activation
from diagmem.transforms.merge_duplicates import merge_duplicates
from diagmem.transforms.remove_concat import remove_concat
from diagmem.transforms.remove_slices import remove_slices
from diagmem.transforms.state_in_place import state_in_place
from diagmem.transforms.time_as_rows import time_as_rows

__all__ = [
    "FOR_ROWS",
    "ONCE_CALLED",
    "ONLY_FOR_ROWS",
    "SOMETIMES_WORSE",
    "TRANSFORMS",
    "Choice",
    "Removal",
    "Transform",
    "transformed",
    "transformed_again",
]

Transform = Callable[[Graph, Choice], Graph]

TRANSFORMS: Mapping[str, Transform] = {
    "fold-constants": fold_constants,
    "drop-dead": drop_dead,
    "fuse-activation": fuse_activation,
    "fold-pad": fold_pad,
    "time-as-rows": time_as_rows,
    "drop-no-ops": drop_no_ops,
    "merge-duplicates": merge_duplicates,
    "state-in-place": state_in_place,
    "remove-slices": remove_slices,
    "remove-concat": remove_concat,
}
"""In the order in which they are applied."""

ONCE_CALLED = {"stand-upright": "time-as-rows"}
"""Names that plans and commands may still use."""

FOR_ROWS = ("fold-constants", "drop-dead", "fuse-activation", "fold-pad", "time-as-rows")
"""Those that make no tensor part of another one, which has rows of its own."""

ONLY_FOR_ROWS = ("time-as-rows",)
"""Those that bring nothing to ops that run whole."""

SOMETIMES_WORSE = ("merge-duplicates", "state-in-place", "remove-slices", "remove-concat")
"""Those that make a tensor, or the whole that it is part of, live longer, so that a plan may grow; they come last."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What a transform did. `ops`: those that are gone, by their number in the model's file. `bytes_changed`: of
    tensors with bytes of their own in RAM. `macs_changed`: of multiply-accumulates."""

    transform: str
    ops: tuple[int, ...]
    bytes_changed: int
    macs_changed: int


def transformed(
    graph: Graph, names: Collection[str], may_go: Callable[[str, Op], bool] = lambda name, op: True
) -> tuple[Graph, tuple[Removal, ...]]:
    """The graph after some transforms, and what each of them removed. `may_go`: which ops a transform may remove."""
    removals = []
    for name, transform in TRANSFORMS.items():
        if name in names:
            before, graph = graph, transform(graph, partial(may_go, name))
            if graph is not before:
                removals.append(_removal(name, before, graph))
    return graph, tuple(removals)


def transformed_again(graph: Graph, removed: Iterable[tuple[str, Collection[int]]]) -> Graph:
    """The graph from which the same ops are removed as once before: transforms, and the numbers of the ops."""
    gone = {name: set(ops) for name, ops in removed}
    return transformed(graph, gone, lambda name, op: name not in SOMETIMES_WORSE or op.number in gone[name])[0]


def _removal(name: str, before: Graph, after: Graph) -> Removal:
    kept = {op.number for op in after.ops}
    gone = tuple(op.number for op in before.ops if op.number not in kept)
    return Removal(name, gone, _held_bytes(after) - _held_bytes(before), _macs(after) - _macs(before))


def _held_bytes(graph: Graph) -> int:
    used = {t for op in graph.ops for t in (*op.inputs, *op.outputs)} | {*graph.inputs, *graph.outputs}
    held = {graph.tensors[t].base for t in used if t >= 0}
    return sum(graph.tensors[t].size_bytes for t in held if not graph.tensors[t].is_constant)


def _macs(graph: Graph) -> int:
    return sum(_macs_of(graph, op) for op in graph.ops)


def _macs_of(graph: Graph, op: Op) -> int:
    kind = kind_of(op.kind)
    return 0 if kind is None else kind.macs(graph.nodes[op.index])
