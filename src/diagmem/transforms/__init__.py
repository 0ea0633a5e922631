"""Removes operations and channels that need not exist: the graph computes the same with fewer ops and fewer bytes.

Each transform is a function of a graph and of which ops it may remove. All but `remove-channels` are made for kernels
that can address a part of a tensor: those of the C backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from diagmem.kernels import ONE_BY_ONE, ChannelBlock
from diagmem.model.graph import Graph, Op, Tensor
from diagmem.ops import node_macs
from diagmem.transforms._editing import Choice
from diagmem.transforms.cleanup import (
    drop_dead,
    drop_identities,
    drop_no_ops,
    fold_constants,
    fold_pad,
    fuse_activation,
    merge_duplicates,
)
from diagmem.transforms.dilation import fold_dilation
from diagmem.transforms.in_place import remove_concat, remove_slices, state_in_place
from diagmem.transforms.narrow_types import narrow_inputs, narrow_integers, narrow_state, narrow_weights
from diagmem.transforms.remove_channels import remove_channels
from diagmem.transforms.tabulate import tabulate
from diagmem.transforms.time_as_rows import drop_flatten, time_as_rows

Transform = Callable[[Graph, Choice], Graph]

TRANSFORMS: Mapping[str, Transform] = {
    "narrow-weights": narrow_weights,
    "fold-constants": fold_constants,
    "drop-dead": drop_dead,
    "fold-dilation": fold_dilation,
    "fuse-activation": fuse_activation,
    "fold-pad": fold_pad,
    "tabulate": tabulate,
    "drop-identities": drop_identities,
    "narrow-state": narrow_state,
    "narrow-inputs": narrow_inputs,
    "narrow-integers": narrow_integers,
    "remove-channels": remove_channels,
    "time-as-rows": time_as_rows,
    "drop-flatten": drop_flatten,
    "drop-no-ops": drop_no_ops,
    "merge-duplicates": merge_duplicates,
    "state-in-place": state_in_place,
    "remove-slices": remove_slices,
    "remove-concat": remove_concat,
}
"""In the order in which they are applied."""

CHANNELS = "remove-channels"
"""The one that makes tensors narrower."""

SOMETIMES_WORSE = ("merge-duplicates", "state-in-place", "remove-slices", "remove-concat")
"""Those that make a tensor, or the one that it is part of, live longer, so that a plan may grow; they come last."""

ONLY_FOR_ROWS = ("time-as-rows", "drop-flatten")
"""Those that do nothing for ops that run whole."""

ALWAYS = tuple(n for n in TRANSFORMS if n not in (*ONLY_FOR_ROWS, "drop-no-ops", *SOMETIMES_WORSE))
"""Those that always help, whether ops run whole or row by row."""

FOR_ROWS = (*ALWAYS, *ONLY_FOR_ROWS)
"""Those that always help ops that run row by row; planning tries whether the others do."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What a transform did. `ops`: those removed, by their number in the model's file. `bytes_changed`: of tensors with
    bytes of their own in RAM. `macs_changed`: multiply-accumulates. `weights_changed`: bytes of constants, as the file
    stores them. `channels`: those removed from tensors that remain."""

    transform: str
    ops: tuple[int, ...]
    bytes_changed: int
    macs_changed: int
    weights_changed: int = 0
    channels: int = 0


def transformed(
    graph: Graph,
    names: Collection[str],
    may_go: Callable[[str, Op], bool] = lambda name, op: True,
    block: ChannelBlock = ONE_BY_ONE,
) -> tuple[Graph, tuple[Removal, ...]]:
    """The graph after some transforms, and what each removed. `may_go`: which ops a transform may remove. `block`: how
    many channels kernels compute together."""
    removals = []
    for name, transform in TRANSFORMS.items():
        if name in names:
            change = partial(remove_channels, block=block) if transform is remove_channels else transform
            before, graph = graph, change(graph, partial(may_go, name))
            if graph is not before:
                removals.append(_removal(name, before, graph))
    return graph, tuple(removals)


def transformed_again(
    graph: Graph, removed: Iterable[tuple[str, Collection[int]]], block: ChannelBlock = ONE_BY_ONE
) -> Graph:
    """The graph with the same ops removed as before: transforms, and the numbers of the ops."""
    gone = {name: set(ops) for name, ops in removed}
    return transformed(graph, gone, lambda name, op: name not in SOMETIMES_WORSE or op.number in gone[name], block)[0]


def _removal(name: str, before: Graph, after: Graph) -> Removal:
    kept = {op.number for op in after.ops}
    gone = tuple(op.number for op in before.ops if op.number not in kept)
    narrow = [tensor for tensor in _used(after) if tensor.channels is not None]
    channels = sum(before.tensors[t.index].shape[-1] - len(t.channels or ()) for t in narrow)
    held, macs, weights = (count(after) - count(before) for count in (_held_bytes, macs_of, weights_of))
    return Removal(name, gone, held, macs, weights, channels)


def _used(graph: Graph) -> Iterator[Tensor]:
    used = {t for op in graph.ops for t in (*op.inputs, *op.outputs)} | {*graph.inputs, *graph.outputs}
    return (graph.tensors[t] for t in sorted(used) if t >= 0)


def _held_bytes(graph: Graph) -> int:
    held = {tensor.base for tensor in _used(graph)}
    return sum(graph.tensors[t].size_bytes for t in held if not graph.tensors[t].is_constant)


def weights_of(graph: Graph) -> int:
    """Bytes of the constants that ops use, as the file stores them."""
    return sum(tensor.size_bytes for tensor in _used(graph) if tensor.is_constant)


def macs_of(graph: Graph) -> int:
    """Multiply-accumulates of one run."""
    return sum(map(node_macs, graph.nodes))
