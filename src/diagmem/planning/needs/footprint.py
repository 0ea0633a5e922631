"""What a graph must hold in RAM, whatever the order of its operations: stores, and how far they may share addresses.

Orders are compared, and bounds for all of them proven, on these values alone; `build_problem.py` adds the order.

A variable is live before and after every run. Within a run it is dead from its last read until it is assigned. Where it
is part of a larger window, the rest of the window (new data of this run) is live for part of the run only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from operator import or_

import numpy as np
import numpy.typing as npt

from diagmem.kernels.rows import RowGraph, row_graph
from diagmem.model.graph import Graph, Node, Op, Tensor, places
from diagmem.ops import kind_of
from diagmem.ops.state import changed_variables
from diagmem.planning.options import KEEP_OUTPUTS, Options
from diagmem.transforms.asked import next_frame_name


@dataclass(frozen=True, slots=True)
class Store:
    """`writers`: the ops that write it, none where it is filled before the run. One of several writes some views of a
    tensor; the whole is held from the first of them on. `readers`: the ops that need it. `is_kept`: it must survive the
    run.

    `state_bytes`: how many of its bytes hold state between runs; None: it holds no state. `pinned_bytes`: of these,
    those that are live all the time, in any order. `passing_bytes`: those that live only from a writer to a last
    reader."""

    name: str
    tensors: tuple[int, ...]
    size_bytes: int
    align_bytes: int
    writers: frozenset[int]
    readers: frozenset[int]
    is_kept: bool
    state_bytes: int | None = None
    pinned_bytes: int = 0
    passing_bytes: int = 0

    @property
    def holds_state(self) -> bool:
        return self.state_bytes is not None

    @property
    def is_scratch(self) -> bool:
        return not self.tensors

    @property
    def is_needed_later(self) -> bool:
        """Whether anything touches it after the step that makes it."""
        return self.is_kept or bool(self.readers) or len(self.writers) > 1


SeparationRule = Callable[[Node, int, int], int | None]
"""(node, input position, output number) -> separation(output below, input above) in bytes; None: may not overlap."""


def separations_of(
    node: Node, store_of: Mapping[int, int], stores: Sequence[Store], rule: SeparationRule
) -> dict[tuple[int, int], int]:
    """Separations of an op's outputs and inputs, where they let them overlap; the largest if a pair meets twice.

    A reshape that is a copy stays clear of its source: runtimes use memcpy for it.
    """
    found: dict[tuple[int, int], int] = {}
    kind = kind_of(node.op.kind)
    for number, output in enumerate(node.outputs):
        out = store_of.get(output.index)
        is_first = out is not None and (node.op.index in stores[out].writers or stores[out].holds_state)
        if out is None or not is_first or (kind is not None and kind.is_alias):
            continue
        for position, tensor in node.activations():
            store = store_of.get(tensor.index)
            if store is None or store == out or stores[store].is_kept:
                continue
            separation = rule(node, position, number)
            apart = output.span_bytes if separation is None else separation
            # Between the starts of the stores, in which either tensor may begin further on.
            apart += output.offset_bytes - tensor.offset_bytes
            found[out, store] = max(found.get((out, store), apart), apart)
    return {pair: apart for pair, apart in found.items() if apart < stores[pair[0]].size_bytes}


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


@dataclass(frozen=True)
class Footprint:
    """`separations(op)[out, in]`: bytes, stores by index, for the pairs that may overlap when `in` dies at `op` and
    `op` is the first to write `out`. Worked out when first asked for: bounds need few of them.

    `needs[op]`, `makes[op]`: the stores that an op reads, and those that it writes, scratch included.
    `after[op]`: the ops that must run before it, in the order of its inputs. `given_rows`: the graph seen row by row,
    where ops that could take rows into sums run whole.
    """

    graph: Graph
    options: Options
    stores: tuple[Store, ...]
    needs: tuple[tuple[int, ...], ...]
    makes: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    separations: Callable[[int], Mapping[tuple[int, int], int]]
    given_rows: RowGraph | None = None

    @cached_property
    def rows(self) -> RowGraph:
        """The graph seen row by row; worked out where something runs so."""
        return self.given_rows or row_graph(self.graph, self.options.library)

    def with_whole(self, numbers: Collection[int]) -> Footprint:
        """The same where the ops of these numbers take no rows into sums."""
        return replace(self, given_rows=self.rows.with_whole(numbers)) if numbers else self

    @cached_property
    def unit_bytes(self) -> int:
        """All offsets are multiples of it. No unit holds bytes of two disjoint stores, so they are counted in units."""
        return math.gcd(*(store.align_bytes for store in self.stores)) or 1

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the stores in units: of one that holds state, what comes and goes."""
        unit = self.unit_bytes
        return tuple(
            store.passing_bytes // unit if store.holds_state else -(-store.size_bytes // unit) for store in self.stores
        )

    @cached_property
    def pinned(self) -> int:
        """Units of state that are live all the time."""
        return sum(store.pinned_bytes // self.unit_bytes for store in self.stores)

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """For each op, those that must run after it."""
        found: list[list[int]] = [[] for _ in self.after]
        for op, before in enumerate(self.after):
            for earlier in before:
                found[earlier].append(op)
        return tuple(tuple(ops) for ops in found)

    @cached_property
    def at_start(self) -> tuple[int, ...]:
        """Stores that are filled before the run."""
        return tuple(s for s, store in enumerate(self.stores) if not store.writers)

    @cached_property
    def live_at_start(self) -> int:
        """Units of the stores that are filled before the run and looked at later."""
        return self.pinned + sum(self.sizes[s] for s in self.at_start if self.stores[s].is_needed_later)

    @cached_property
    def _reader_bits(self) -> tuple[int, ...]:
        return tuple(sum(1 << op for op in store.readers) for store in self.stores)

    @cached_property
    def _writer_bits(self) -> tuple[int, ...]:
        return tuple(sum(1 << op for op in store.writers) for store in self.stores)

    @cached_property
    def _touched(self) -> tuple[tuple[int, ...], ...]:
        """The stores that an op reads or writes."""
        return tuple(tuple(sorted({*n, *m})) for n, m in zip(self.needs, self.makes, strict=True))

    @cached_property
    def _users(self) -> tuple[int, ...]:
        """For each op, a bit set of those that touch a store with it: what it costs depends on these alone."""
        users = [w | r for w, r in zip(self._writer_bits, self._reader_bits, strict=True)]
        return tuple(reduce(or_, (users[s] for s in touched), 0) for touched in self._touched)

    @cached_property
    def sharing(self) -> tuple[tuple[int, ...], ...]:
        """For each op, the others that touch a store with it."""
        return tuple(tuple(_bits(users & ~(1 << op))) for op, users in enumerate(self._users))

    @cached_property
    def _moves(self) -> dict[tuple[int, int], tuple[int, int]]:
        """What was asked before: by op, and the users that had run."""
        return {}

    @cached_property
    def _changes(self) -> dict[tuple[int, tuple[int, ...], tuple[int, ...]], tuple[int, int]]:
        """The same by op, stores that it is the first to write, and stores that die."""
        return {}

    def move(self, op: int, done: int) -> tuple[int, int]:
        """What running an op costs after the ops of the bit set `done`: units, relative to those live before.

        First, a lower bound for any placement while it runs; second, what is live after it. Both can only decrease when
        more ops have run before.
        """
        key = op, done & self._users[op]
        found = self._moves.get(key)
        if found is None:
            found = self._moves[key] = self._move(op, done)
        return found

    def _move(self, op: int, done: int) -> tuple[int, int]:
        waiting, writers, readers = ~done & ~(1 << op), self._writer_bits, self._reader_bits
        fresh = tuple(s for s in self.makes[op] if not writers[s] & done)
        dying = tuple(
            s
            for s in self._touched[op]
            if not ((readers[s] | writers[s]) & waiting or self.stores[s].is_kept) and s not in fresh
        )
        found = self._changes.get((op, fresh, dying))
        if found is None:
            left = sum(self.sizes[s] for s in fresh if self.stores[s].is_needed_later)
            found = self.grown(op, fresh, dying), left - sum(self.sizes[s] for s in dying)
            self._changes[op, fresh, dying] = found
        return found

    def pressure(self, ops: Iterable[int]) -> list[int]:
        """For each op in this order, a lower bound in units for any placement while it runs."""
        done, live, found = 0, self.live_at_start, []
        for op in ops:
            grown, change = self.move(op, done)
            found.append(live + grown)
            live += change
            done |= 1 << op
        return found

    @cached_property
    def after_bits(self) -> tuple[int, ...]:
        """`after` as bit sets."""
        return tuple(sum(1 << op for op in before) for before in self.after)

    @cached_property
    def earlier(self) -> tuple[int, ...]:
        """For each op, a bit set of those that run before it in every order."""
        found: list[int] = []
        for before in self.after:
            found.append(reduce(or_, (found[op] | 1 << op for op in before), 0))
        return tuple(found)

    @cached_property
    def later(self) -> tuple[int, ...]:
        """For each op, a bit set of those that run after it in every order."""
        found = [0] * len(self.after)
        for op in reversed(range(len(self.after))):
            found[op] = reduce(or_, (found[follower] | 1 << follower for follower in self.followers[op]), 0)
        return tuple(found)

    @cached_property
    def least_pressure(self) -> int:
        """A lower bound in units over all orders: the most demanding op with everything that must be live then, or what
        is live before or after the run."""
        least = self.least_outside
        # Separations take the time: those of ops that need no more even without overlap are not asked for.
        for op in sorted(range(len(self.after)), key=lambda op: -self.least_apart[op]):
            if self.least_apart[op] <= least:
                break
            least = max(least, self._least_live[op] + self.move(op, self._at_the_latest(op))[0])
        return least

    @cached_property
    def least_outside(self) -> int:
        """Units that are there before or after the run."""
        state = sum((store.state_bytes or 0) // self.unit_bytes for store in self.stores)
        given = sum(self.sizes[s] for s in self.at_start if not self.stores[s].holds_state)
        kept = sum(size for size, store in zip(self.sizes, self.stores, strict=True) if store.is_kept)
        return max(state + max(given, kept), self.pinned)

    @cached_property
    def least_apart(self) -> tuple[int, ...]:
        """For each op, the units that no order can do without while it runs, if no two stores share any."""
        writers, ops = self._writer_bits, range(len(self.after))
        fresh = (sum(self.sizes[s] for s in self.makes[op] if not writers[s] & self._at_the_latest(op)) for op in ops)
        return tuple(live + made for live, made in zip(self._least_live, fresh, strict=True))

    def _at_the_latest(self, op: int) -> int:
        """All ops that may run before an op."""
        return ~(self.later[op] | 1 << op)

    @cached_property
    def _least_live(self) -> tuple[int, ...]:
        """For each op, the units that must be live before it: of stores that always live while it runs, and of inputs
        that may die there."""
        live = [self.pinned] * len(self.after)
        needed_by = [0] * len(self.stores)
        for op, needs in enumerate(self.needs):
            for store in needs:
                needed_by[store] |= 1 << op
        for size, *ops in zip(self.sizes, self._always_live_at, needed_by, strict=True):
            for op in _bits(ops[0] | ops[1]):
                live[op] += size
        return tuple(live)

    @cached_property
    def _always_live_at(self) -> tuple[int, ...]:
        """For each store, the ops that in every order run after one that writes it and before one that touches it, as
        bits."""
        everything = (1 << len(self.after)) - 1
        found = []
        for store in self.stores:
            written_before = reduce(or_, (self.later[op] for op in store.writers), 0) if store.writers else everything
            touched_after = reduce(or_, (self.earlier[op] for op in store.readers | store.writers), 0)
            found.append(written_before & (everything if store.is_kept else touched_after))
        return tuple(found)

    def grown(self, op: int, fresh: Collection[int], dying: Iterable[int]) -> int:
        """Units beyond those live before, that no placement can do without while the op runs.

        They are the stores that the op is the first to write, less the most that the dying inputs can cover of them.
        Inputs do not overlap each other, and input j starts at least separation_j above the output's start. So the
        covered bytes are a one-machine schedule of jobs with release times in [0, size), for which earliest release
        first is optimal.
        """
        gone = set(dying)
        jobs: dict[int, list[Job]] = defaultdict(list)
        for (out, store), separation in self.separations(op).items():
            if store in gone and out in fresh:
                # What passes of a store with state may lie anywhere in it.
                is_whole = not (self.stores[out].holds_state or self.stores[store].holds_state)
                jobs[out].append((-(-separation // self.unit_bytes) if is_whole else 0, self.sizes[store]))
        shared = most_shared(((self.sizes[out], inputs) for out, inputs in jobs.items()), (self.sizes[s] for s in gone))
        return sum(self.sizes[s] for s in fresh) - shared


def _bits(ops: int) -> Iterator[int]:
    """The ops in a bit set."""
    while ops:
        yield (ops & -ops).bit_length() - 1
        ops &= ops - 1


Job = tuple[int, int]
"""An input that dies: its separation from the output, and its size."""


def most_shared(made: Iterable[tuple[int, Iterable[Job]]], dying: Iterable[int]) -> int:
    """The most that what is made can share with what dies. `made`: sizes of outputs, and the inputs that each may lie
    over. `dying`: sizes of all inputs."""
    return min(sum(most_covered(size, inputs) for size, inputs in made), sum(dying))


def most_covered(size: int, inputs: Iterable[Job]) -> int:
    """The most of [0, size) that disjoint stretches (earliest start, length) can cover."""
    covered = end = 0
    for start, length in sorted(inputs):
        begin = max(start, end)
        end = begin + length
        covered += max(0, min(size, end) - begin)
    return covered


def footprint(graph: Graph, options: Options, rule: SeparationRule | None = None) -> Footprint:
    """The stores of a graph. `rule` stands in for the exact separations, to reproduce other methods."""
    lines, _ = lines_of_reshapes(graph, options)
    stores = [_tensor_store(graph, options, line) for line in lines]
    stores += _scratch_stores(graph, options)
    store_of = {tensor: index for index, line in enumerate(lines) for tensor in line}
    makes: list[list[int]] = [[] for _ in graph.ops]
    for index, store in enumerate(stores):
        for op in sorted(store.writers):
            makes[op].append(index)
    chosen = rule or options.library.separation

    @cache
    def separations(op: int) -> dict[tuple[int, int], int]:
        return separations_of(graph.nodes[op], store_of, stores, chosen) if options.overlap else {}

    return Footprint(
        graph,
        options,
        tuple(stores),
        tuple(_needed(op, store_of, stores) for op in graph.ops),
        tuple(tuple(m) for m in makes),
        tuple(predecessors(graph)),
        separations,
    )


def _needed(op: Op, store_of: Mapping[int, int], stores: list[Store]) -> tuple[int, ...]:
    """The stores that an op reads; of one that holds state, what comes and goes."""
    found = {store_of[t] for t in op.inputs if t in store_of}
    return tuple(sorted(s for s in found if not stores[s].holds_state or op.index in stores[s].readers))


def is_alias(node: Node) -> bool:
    """Whether the output is the input's bytes under another shape. A constant's bytes must be copied, and so must a
    variable's, which may change before the copy is read, and those of views, which are not in one piece as a rule."""
    kind = kind_of(node.op.kind)
    if kind is None or not kind.is_alias or len(node.outputs) != 1 or not node.inputs or node.inputs[0] is None:
        return False
    source, target = node.inputs[0], node.outputs[0]
    movable = not (source.is_constant or source.is_variable or target.is_variable or source.view or target.view)
    return movable and source.size_bytes == target.size_bytes


def lines_of_reshapes(graph: Graph, options: Options) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The tensors in the arena, and those with the caller, those together that share their bytes: each line is a tensor
    with its reshapes and views.

    If one tensor of a line is external, the whole line is. If both ends of a reshape are external, in different
    buffers, its output starts a new line and the bytes are copied.
    """
    with_caller = {*graph.inputs, *graph.outputs} if options.external_io else set()
    with_caller |= {tensor.index for tensor in graph.tensors if tensor.name in options.external}
    with_caller |= {*graph.outputs} if options.together == KEEP_OUTPUTS else set()
    if options.together:
        following = {next_frame_name(name) for name in options.double_buffer}
        with_caller |= {tensor.index for tensor in graph.tensors if tensor.name in following}
    made_by = {t: node for node in graph.nodes for t in node.op.outputs}
    lines: dict[int, list[int]] = {}
    line_of: dict[int, int] = {}
    # File order, so that a reshape comes after its source; inputs and variables come first.
    for tensor in sorted(graph.tensors, key=lambda t: graph.producer.get(t.index, -1)):
        if tensor.view is not None or not _is_in_ram(graph, options, tensor):
            continue
        node, own = made_by.get(tensor.index), tensor.index
        source = own
        if node is not None and is_alias(node) and not graph.holds_state(node.op.inputs[0]):
            source = line_of.get(node.op.inputs[0], own)
        if source != own and own in with_caller:
            source = own if source in with_caller else source
            with_caller.add(source)
        line_of[own] = source
        lines.setdefault(source, []).append(own)
    for tensor in graph.tensors:
        if tensor.view is not None and _is_in_ram(graph, options, tensor):
            lines[line_of[tensor.base]].append(tensor.index)
    if options.together:
        with_caller |= {first for first, line in lines.items() if any(graph.tensors[t].is_variable for t in line)}
    in_arena = [tuple(line) for first, line in sorted(lines.items()) if first not in with_caller]
    return in_arena, [tuple(line) for first, line in sorted(lines.items()) if first in with_caller]


def _is_in_ram(graph: Graph, options: Options, tensor: Tensor) -> bool:
    if tensor.is_variable:
        return not options.library.keeps_variables
    index = tensor.index
    used = index in graph.producer or index in graph.consumers or index in graph.inputs or index in graph.families
    return not tensor.is_constant and used


def _tensor_store(graph: Graph, options: Options, line: tuple[int, ...]) -> Store:
    tensors = [graph.tensors[t] for t in line]
    if any(t.is_variable for t in tensors):
        return state_store(graph, options, line)
    is_given = tensors[0].index in graph.inputs
    align_bytes = max(options.align_bytes, options.input_align or 1) if is_given else options.align_bytes
    written = [t.index for t in tensors if t.index == line[0] or t.view is not None]
    return Store(
        tensors[0].label,
        line,
        tensors[0].size_bytes,
        max(align_bytes, *(t.dtype.size_bytes for t in tensors)),
        frozenset() if is_given else frozenset(graph.producer[t] for t in written if t in graph.producer),
        frozenset(op for t in line for op in graph.consumers.get(t, ())),
        any(t.index in graph.outputs for t in tensors) or (options.keep_inputs and tensors[0].index in graph.inputs),
    )


def _scratch_stores(graph: Graph, options: Options) -> Iterator[Store]:
    align_bytes = max(options.align_bytes, options.library.scratch_align_bytes)
    for node in graph.nodes:
        size_bytes = options.library.scratch_bytes(node, options.cores)
        if size_bytes:
            name = f"scratch of {node.label}"
            yield Store(name, (), size_bytes, align_bytes, frozenset([node.op.index]), frozenset(), is_kept=False)
