"""Less memory for more work: rows that are dropped as soon as they are used, and made again when they are needed again.

A tensor under a sliding window is held for as many rows as the window overlaps itself. Dropped, it costs nothing while
other ops work; instead its rows are made several times, and of what they are made more rows must be held.
"""

from __future__ import annotations

from diagmem.rows import RowGraph
from diagmem.schedulers.rows import RowSchedule, row_order

MOST_TRIED = 8
"""Tensors that are tried each time: those that hold most bytes from one row of their reader to the next."""


def recomputing_orders(rows: RowGraph, input_rows: bool, most: float) -> list[RowSchedule]:
    """Orders with ever smaller peaks, for ever more multiply-accumulates, up to `most` times those of the first one,
    which computes everything once. Each drops one more tensor, or a few, whatever lowers the peak most."""
    dropped: frozenset[int] = frozenset()
    found = [row_order(rows, input_rows)]
    while most > 1:
        limit, peak = most * found[0].macs, found[-1].peak_bytes
        tensors = _candidates(rows, found[-1], dropped)
        # Where several tensors are held alike, dropping one of them alone may bring nothing.
        sets = [dropped.union(some) for some in ([t] for t in tensors)]
        sets += [dropped.union(tensors[:count]) for count in range(2, len(tensors) + 1)]
        trials = [(row_order(rows, input_rows, some), some) for some in sets]
        better = [(made, some) for made, some in trials if made.macs <= limit and made.peak_bytes < peak]
        if not better:
            break
        made, dropped = min(better, key=lambda trial: (trial[0].peak_bytes, trial[0].macs))
        found.append(made)
    return found


def _candidates(rows: RowGraph, made: RowSchedule, dropped: frozenset[int]) -> list[int]:
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
    if len(readers) != 1 or tensor in rows.graph.outputs or not rows.ops[readers[0]].makes_rows:
        return 0
    (need,) = (need for need in rows.ops[readers[0]].needs if need.tensor == tensor)
    overlap = max((end - first for end, first in zip(need.end, need.first[1:], strict=False)), default=0)
    return max(0, overlap) * rows.row_bytes[tensor]
