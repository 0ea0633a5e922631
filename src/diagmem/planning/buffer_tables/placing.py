"""A table of buffers, placed."""

from __future__ import annotations

from diagmem.planning.allocators.effort import Effort
from diagmem.planning.allocators.optimal import optimal
from diagmem.planning.allocators.placement import Placement
from diagmem.planning.buffer_tables.check import conflicts
from diagmem.planning.buffer_tables.posing import table_problem
from diagmem.planning.buffer_tables.table import Table, TableError


def table_placement(table: Table, effort: Effort, capacity: int | None = None) -> tuple[tuple[int, ...], Placement]:
    """Offsets of all rows, and the placement of those that ever live. What the table says itself is kept if nothing
    smaller is found."""
    given = [row.offset for row in table.rows if row.offset is not None]
    wrong = next(conflicts(table, given), None) if len(given) == len(table.rows) else None
    if wrong is not None:
        raise TableError(f"its offsets are no placement: {wrong}; remove the column to have them found")
    posed = table_problem(table)
    if not posed.members:
        return (0,) * len(table.rows), Placement((), 0, 0)
    found = optimal(posed.problem, effort, capacity)
    if len(given) == len(table.rows):
        own = max(given[member] + table.rows[member].size_bytes for member in posed.members)
        if own < found.arena_bytes:
            kept = tuple(given[member] for member in posed.members)
            return tuple(given), Placement(kept, own, min(own, found.lower_bound_bytes))
    return posed.offsets(found.offsets, len(table.rows)), found
