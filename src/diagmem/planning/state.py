"""State in a plan: in which order it may be touched, how much of a store holds it, and which bytes of it live when.

A variable lives before and after every run. Within a run it is dead from the last look at it until it is assigned; and
where it is part of a window, together with what is new in this run, the window's other bytes come and go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import Graph, Tensor
from diagmem.model.views import places
from diagmem.ops.state import changed_variables
from diagmem.planning.options import Options
from diagmem.planning.store import Store

Bytes = npt.NDArray[np.bool_]
"""For each byte of a store, whether it is one of these."""

Hull = tuple[int, int]
"""From the first to the end of the last of some bytes."""


def predecessors(graph: Graph) -> Iterator[tuple[int, ...]]:
    """For each op, those that must run before it: the writers of its inputs; of a variable that it touches, the op that
    changed it last; before it changes one, those that look at it until then; and if it has no result, the op before it
    that has none."""
    last_effect: list[int] = []
    last_change: dict[int, int] = {}
    looked: dict[int, list[int]] = defaultdict(list)
    for node in graph.nodes:
        op = node.op.index
        before = [maker for t in node.op.inputs for maker in graph.writers(t)]
        before += last_effect if not node.outputs else []
        touched = {v for t in (*node.op.inputs, *node.op.outputs) for v in graph.variables_in(t)}
        before += [last_change[v] for v in sorted(touched) if v in last_change]
        changed = changed_variables(node)
        for v in changed:
            before += looked.pop(v, [])
            last_change[v] = op
        for v in touched:
            looked[v].append(op)
        yield tuple(dict.fromkeys(earlier for earlier in before if earlier < op))
        last_effect = last_effect if node.outputs else [op]


def state_store(graph: Graph, options: Options, line: tuple[int, ...]) -> Store:
    """The store of a tensor that is a variable or holds some. What comes and goes of it is counted where it is sure to
    live: what is new of a window until the last op that reads all of the window, or a variable of its own until the
    last look at it before it is assigned."""
    tensors = [graph.tensors[t] for t in line]
    whole = tensors[0]
    writers = frozenset(graph.producer[t.index] for t in tensors if not t.is_variable and t.index in graph.producer)
    of_all = frozenset(op for t in tensors if t.elems == whole.elems for op in graph.consumers.get(t.index, ()))
    variables = [t for t in tensors if t.is_variable]
    pinned = sum(_always_live(graph, variable, bool(of_all)) for variable in variables)
    passing = 0
    if not pinned and whole.is_variable:
        passing = whole.size_bytes
    elif of_all and len(writers) + sum(t.index in graph.inputs for t in tensors) == 1:
        passing = whole.size_bytes - pinned
    return Store(
        whole.label,
        line,
        whole.size_bytes,
        max(options.align_bytes, *(t.dtype.size_bytes for t in tensors)),
        writers,
        of_all if passing else frozenset(),
        is_kept=False,
        state_bytes=sum(t.size_bytes for t in variables),
        pinned_bytes=pinned,
        passing_bytes=passing,
    )


def _always_live(graph: Graph, variable: Tensor, is_read_whole: bool) -> int:
    """Bytes that hold a variable, as it was or as it will be, at all times. `is_read_whole`: some op reads all of what
    it lies in. Until then all of the variable is needed; after that all of what it will be, if that lies there too."""
    index = variable.index
    if index not in graph.producer:
        return variable.size_bytes
    node = graph.nodes[graph.producer[index]]
    value = node.input(0) if node.op.kind == "ASSIGN_VARIABLE" else None
    if value is None or value.base != variable.base or sum(index in op.outputs for op in graph.ops) > 1:
        return 0
    if is_read_whole:
        return variable.size_bytes
    size = graph.tensors[variable.base].size_bytes
    return int((bytes_of(variable, size) & bytes_of(value, size)).sum())


def bytes_of(tensor: Tensor, store_bytes: int) -> Bytes:
    """Those of a tensor in the store that it lies in."""
    found = np.zeros(store_bytes, dtype=np.bool_)
    size = tensor.dtype.size_bytes
    if tensor.is_in_one_piece:
        found[tensor.offset_bytes : tensor.offset_bytes + tensor.size_bytes] = True
    else:
        starts = tensor.offset_bytes + places(tensor.shape, tensor.strides) * size
        found[(starts[:, None] + np.arange(size)).reshape(-1)] = True
    return found


def bytes_of_any(graph: Graph, store: Store) -> Callable[[Sequence[int]], Bytes]:
    """Tensors -> those bytes of a store that any of them holds."""
    held = {t: bytes_of(graph.tensors[t], store.size_bytes) for t in store.tensors}
    nothing = np.zeros(store.size_bytes, dtype=np.bool_)

    def joined(tensors: Sequence[int]) -> Bytes:
        found: Bytes = np.logical_or.reduce([nothing, *(held[t] for t in tensors if t in held)])
        return found

    return joined


def live_hulls(graph: Graph, store: Store, ops: Sequence[int | None], keep_inputs: bool) -> list[Hull | None]:
    """The hull of what lives of a store before the run, at each step of it (None: of an op that does not touch it), and
    after it; None where nothing does."""
    joined = bytes_of_any(graph, store)
    state = [t for t in store.tensors if graph.tensors[t].is_variable]
    live = joined([*state, *graph.outputs, *(graph.inputs if keep_inputs else ())])
    found = [hull_of(live)]
    for op in reversed(ops):
        written, after = joined(() if op is None else graph.ops[op].outputs), live
        live = (after & ~written) | joined(() if op is None else graph.ops[op].inputs)
        found.append(hull_of(live | after | written))
    # State that nobody looks at is state all the same, until the run begins.
    found.append(hull_of(joined([*state, *graph.inputs])))
    return found[::-1]


def hull_of(found: Bytes) -> Hull | None:
    """None if there are none."""
    at = np.flatnonzero(found)
    return (int(at[0]), int(at[-1]) + 1) if len(at) else None
