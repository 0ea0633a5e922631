"""Less memory for more work: rows that are dropped after use, and made again when they are needed again.

A tensor under a sliding window is held for as many rows as the window overlaps itself. Dropped, it costs nothing while
other ops work; instead some of its rows are made several times, and of what they are made more rows must be held. The
larger the pieces in which its readers' rows are made, the fewer are made again, and the more of the readers' are held.
"""

from __future__ import annotations

from collections.abc import Iterable

from diagmem.planning.rows import RowGraph
from diagmem.planning.schedulers.rows import RowOrders, RowSchedule
from diagmem.planning.schedulers.segments import Dropped

MOST_TRIED = 8
"""Tensors that are tried each time: those that hold most bytes from one row of their reader to the next."""

PIECES = (2, 4, 8)
"""Rows that are made at once, other than one by one."""

MOST_CUT = 4
"""Choices of tensors, of all that are tried, for which the ops are cut into segments anew."""

MOST_ORDERS = 8


def recomputing_orders(rows: RowGraph, input_rows: bool, most: float) -> list[RowSchedule]:
    """Orders with ever smaller peaks, for ever more multiply-accumulates, up to `most` times those of the first one,
    which computes everything once."""
    orders = RowOrders(rows, input_rows, most)
    once = orders.best()
    found = [orders.improved(once)]
    tried = _tried(orders, once, most) if most > 1 else []
    is_worth_it = (made for made in tried if made.peak_bytes < once.peak_bytes and made.macs <= most * once.macs)
    for made in _thinned(is_worth_it):
        better = orders.improved(made)
        if better.peak_bytes < found[-1].peak_bytes:
            found.append(better)
    return found


def _tried(orders: RowOrders, once: RowSchedule, most: float) -> list[RowSchedule]:
    """All that is found on the way down. Each step drops one more tensor, or a few, whatever lowers the peak most; then
    it is tried with larger pieces."""
    dropped: Dropped = frozenset()
    best, pool = once, []
    while True:
        tensors = _candidates(orders.rows, best, {tensor for tensor, _ in dropped})
        # Where several tensors are held alike, dropping one of them alone may bring nothing.
        sets = [tensors[n : n + 1] for n in range(len(tensors))] + [tensors[:n] for n in range(2, len(tensors) + 1)]
        more = [dropped.union((tensor, 1) for tensor in some) for some in sets]
        # A new cut is looked for only where the old one already tells that it may be worth while, and for all at once.
        promising = sorted(more, key=lambda some: (orders.peak_within(best.segments, some), len(some)))[:MOST_CUT]
        trials = [(orders.best(some), some) for some in dict.fromkeys([*promising, *more[-1:]])]
        affordable = [(made, some) for made, some in trials if made.macs <= most * once.macs]
        pool += [made for made, _ in affordable]
        better = [(made, some) for made, some in affordable if made.peak_bytes < best.peak_bytes]
        if not better:
            return pool
        best, dropped = min(better, key=lambda trial: (trial[0].peak_bytes, trial[0].macs))
        pool += [orders.best(frozenset((tensor, rows) for tensor, _ in dropped)) for rows in PIECES]


def _thinned(tried: Iterable[RowSchedule]) -> list[RowSchedule]:
    """Those of which none else takes less memory for no more work, and of many that are close only a few."""
    front: list[RowSchedule] = []
    for made in sorted(tried, key=lambda made: (made.macs, made.peak_bytes)):
        if not front or made.peak_bytes < front[-1].peak_bytes:
            front.append(made)
    while len(front) > MOST_ORDERS:
        # What the loss of each would cost: the memory that it saves for the work to the next.
        worth = [
            (front[n - 1].peak_bytes - front[n].peak_bytes) * (front[n + 1].macs - front[n].macs)
            for n in range(1, len(front) - 1)
        ]
        del front[1 + worth.index(min(worth))]
    return front


def _candidates(rows: RowGraph, made: RowSchedule, dropped: set[int]) -> list[int]:
    """Tensors that could be dropped too: with one reader, in the same segment, that reads some rows more than once."""
    held = {t: _held_bytes(rows, t) for op in rows.ops if op.makes_rows for t in op.makes if t not in dropped}
    inside = [t for t, size in held.items() if size and _is_inside(rows, t, made)]
    return sorted(inside, key=lambda t: (-held[t], t))[:MOST_TRIED]


def _is_inside(rows: RowGraph, tensor: int, made: RowSchedule) -> bool:
    ends = (rows.graph.producer[tensor], rows.graph.consumers[tensor][0])
    return any(begin <= min(ends) and max(ends) < end for begin, end in made.segments)


def _held_bytes(rows: RowGraph, tensor: int) -> int:
    """The most that one row of its reader leaves to the next; 0 where it cannot be dropped."""
    readers = rows.graph.consumers.get(tensor, ())
    if (
        len(readers) != 1
        or tensor in rows.graph.outputs
        or tensor in rows.graph.sharing
        or not rows.ops[readers[0]].makes_rows
    ):
        return 0
    (need,) = (need for need in rows.ops[readers[0]].needs if need.tensor == tensor)
    overlap = max((end - first for end, first in zip(need.end, need.first[1:], strict=False)), default=0)
    return max(0, overlap) * rows.row_bytes[tensor]
