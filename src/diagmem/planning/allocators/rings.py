"""Rows that can follow a rule need no table: tensors moved into rings, or into one piece, where there is space for it.

The arena does not grow. A ring of `period` rows holds row r in slot r % period; no two rows that share a slot may be in
each other's way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagmem.planning.allocators.fit import Offsets, lowest_clear
from diagmem.planning.problem import Problem


def with_rings(problem: Problem, offsets: Offsets) -> Offsets:
    """The placement with as many tensors by a rule as fit, those with most rows first."""
    found, arena_bytes = list(offsets), problem.arena_bytes(offsets)
    for rows in sorted(_tables(problem), key=lambda rows: (-len(rows), rows)):
        period, pitch = _period(problem, rows), _pitch(problem, rows[0])
        base = _lowest_base(problem, rows, period, pitch, found)
        if base + period * pitch <= arena_bytes:
            for number, buffer in enumerate(rows):
                found[buffer] = base + number % period * pitch
    return tuple(found)


def _tables(problem: Problem) -> Iterator[list[int]]:
    """The buffers of each tensor whose rows are placed one by one, by row."""
    tensors: dict[int, list[tuple[int, int]]] = {}
    for index, buffer in enumerate(problem.buffers):
        if buffer.rows is not None:
            tensors.setdefault(buffer.tensors[0], []).append((buffer.rows.start, index))
    for rows in tensors.values():
        yield [index for _, index in sorted(rows)]


def _pitch(problem: Problem, buffer: int) -> int:
    size, align = problem.buffers[buffer].size_bytes, problem.buffers[buffer].align_bytes
    return -(-size // align) * align


def _period(problem: Problem, rows: Sequence[int]) -> int:
    """The least number of slots."""
    number = {buffer: n for n, buffer in enumerate(rows)}
    apart = {
        abs(number[index] - n)
        for n, buffer in enumerate(rows)
        for index, _, _ in problem.neighbours(buffer)
        if index in number
    }
    return next(period for period in range(1, len(rows) + 1) if not any(gap % period == 0 for gap in apart))


def _lowest_base(problem: Problem, rows: Sequence[int], period: int, pitch: int, offsets: Sequence[int]) -> int:
    """The lowest start of a ring that keeps all its rows clear of everything else."""
    own, taken = set(rows), []
    for number, buffer in enumerate(rows):
        slot = number % period * pitch
        for index, below, above in problem.neighbours(buffer):
            if index not in own:
                taken.append((offsets[index] - below - slot, offsets[index] + above - slot))
    return lowest_clear(taken, problem.buffers[rows[0]].align_bytes)
