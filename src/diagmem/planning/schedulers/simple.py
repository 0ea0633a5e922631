"""Orders that look only at the graph: as the file has it, eager, lazy."""

from __future__ import annotations

from collections import deque

from diagmem.model.schedule import Schedule
from diagmem.planning.footprint import Footprint


def file_order(footprint: Footprint) -> Schedule:
    """As the file has it."""
    return Schedule.whole(range(len(footprint.after)), "file")


def eager(footprint: Footprint) -> Schedule:
    """Each op as soon as its inputs are there: breadth first."""
    missing = [len(before) for before in footprint.after]
    ready = deque(op for op, count in enumerate(missing) if not count)
    order = []
    while ready:
        op = ready.popleft()
        order.append(op)
        for later in footprint.followers[op]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    return Schedule.whole(order, "eager")


def lazy(footprint: Footprint) -> Schedule:
    """Each op only when its result is asked for, from the graph's outputs back: depth first."""
    graph = footprint.graph
    order: dict[int, None] = {}
    wanted = [op for t in graph.outputs for op in graph.writers(t)]
    stack = [*reversed(range(len(graph.ops))), *reversed(wanted)]
    while stack:
        op = stack[-1]
        asked = [p for p in footprint.after[op] if p not in order]
        if op in order or not asked:
            order[op] = None
            stack.pop()
        else:
            stack.append(asked[0])
    return Schedule.whole(order, "lazy")
