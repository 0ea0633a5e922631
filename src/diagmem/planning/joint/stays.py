"""Which bytes of a store hold something when, said by operations and not by steps, so that it holds in every order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from diagmem.planning.footprint import Footprint
from diagmem.planning.state import Hull, bytes_of_any, hull_of, live_hulls
from diagmem.planning.store import Store

Ops = frozenset[int]

AT_ONCE: Ops = frozenset()
"""Of a stay's beginning: only after the run. Of its end: even before it."""


class Stay(NamedTuple):
    """Bytes [low, high) of a store that hold something, from when the first of the ops `begin` runs (None: before the
    run) until the last of the ops `end` has run (None: after it, too)."""

    begin: Ops | None
    end: Ops | None
    low_bytes: int
    high_bytes: int


def stays_of(needs: Footprint, store: Store) -> tuple[Stay, ...]:
    """A store is there from its first writer to its last reader, all of it; one with state in parts."""
    if store.holds_state:
        return tuple(_of_state(needs, store))
    begin = store.writers or None
    end = None if store.is_kept else store.writers | store.readers
    return (Stay(begin, end, 0, store.size_bytes),)


def _of_state(needs: Footprint, store: Store) -> Iterator[Stay]:
    """Where all that touch a store run in one sequence in every order, so do its live windows: what every window from
    one of these moments to another has in common."""
    graph, inside = needs.graph, {*store.tensors}
    touching = [op.index for op in graph.ops if not inside.isdisjoint((*op.inputs, *op.outputs))]
    if not all(needs.earlier[b] >> a & 1 for a, b in pairwise(touching)):
        yield from _in_any_sequence(needs, store, touching)
        return
    # Between any two of them others may run.
    run = [None, *(step for op in touching for step in (op, None))]
    hulls = live_hulls(graph, store, run, needs.options.keep_inputs)
    common = _common(hulls)
    begins = [None, *(frozenset([op]) for op in touching), AT_ONCE]
    ends = [AT_ONCE, *(frozenset([op]) for op in touching), None]
    for (first, last), hull in common.items():
        # What also holds for longer is said there.
        if hull is not None and hull not in (common.get((first - 1, last)), common.get((first, last + 1))):
            yield from _stay(begins[first], ends[last], hull)


def _common(hulls: list[Hull | None]) -> dict[tuple[int, int], Hull | None]:
    """Moments (first, last) -> the bytes that live at both and all the time between; every second hull is that of a
    moment, the others lie between."""
    found: dict[tuple[int, int], Hull | None] = {}
    for first in range(0, len(hulls), 2):
        shared: Hull | None = hulls[first]
        found[first // 2, first // 2] = shared
        for last in range(first + 2, len(hulls), 2):
            for hull in hulls[last - 1 : last + 1]:
                shared = None if shared is None or hull is None else (max(shared[0], hull[0]), min(shared[1], hull[1]))
            found[first // 2, last // 2] = shared
    return found


def _in_any_sequence(needs: Footprint, store: Store, touching: Sequence[int]) -> Iterator[Stay]:
    """What an op touches, while it runs; and what one op writes, or the caller, and another one reads, where none that
    may run between the two writes it again."""
    graph, earlier, joined = needs.graph, needs.earlier, bytes_of_any(needs.graph, store)
    state = [t for t in store.tensors if graph.tensors[t].is_variable]
    kept = graph.inputs if needs.options.keep_inputs else ()
    given, wanted = joined([*state, *graph.inputs]), joined([*state, *graph.outputs, *kept])
    written = {op: joined(graph.ops[op].outputs) for op in touching}
    read = {op: joined(graph.ops[op].inputs) for op in touching}
    yield from _stay(None, AT_ONCE, hull_of(given))
    yield from _stay(AT_ONCE, None, hull_of(wanted))
    for op in touching:
        yield from _stay(frozenset([op]), frozenset([op]), hull_of(read[op] | written[op]))
    for first, last in product((None, *touching), (*touching, None)):
        if first is not None and last is not None and not earlier[last] >> first & 1:
            continue
        held = (given if first is None else written[first]) & (wanted if last is None else read[last])
        for op in touching:
            is_before = op == first or (first is not None and earlier[first] >> op & 1)
            is_after = op == last or (last is not None and earlier[op] >> last & 1)
            held = held if is_before or is_after else held & ~written[op]
        begin, end = (None if op is None else frozenset([op]) for op in (first, last))
        yield from _stay(begin, end, hull_of(held))


def _stay(begin: Ops | None, end: Ops | None, hull: Hull | None) -> Iterator[Stay]:
    if hull is not None and hull[0] < hull[1]:
        yield Stay(begin, end, *hull)
