"""Which bytes of a store hold something when, said by operations and not by steps, so that it holds in every order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from diagmem.planning.footprint import Footprint
from diagmem.planning.state import Hull, live_hulls
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
    one of these moments to another has in common. Where they do not, only what is there before and after the run."""
    graph, inside = needs.graph, {*store.tensors}
    touching = [op.index for op in graph.ops if not inside.isdisjoint((*op.inputs, *op.outputs))]
    is_chain = all(needs.earlier[b] >> a & 1 for a, b in pairwise(touching))
    # Between any two of them others may run.
    run = [None, *(step for op in touching for step in (op, None))]
    hulls = live_hulls(graph, store, run, needs.options.keep_inputs)
    if not is_chain:
        yield from _stay(None, AT_ONCE, hulls[0])
        yield from _stay(AT_ONCE, None, hulls[-1])
        return
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


def _stay(begin: Ops | None, end: Ops | None, hull: Hull | None) -> Iterator[Stay]:
    if hull is not None and hull[0] < hull[1]:
        yield Stay(begin, end, *hull)
