"""Tensors in one piece whose rows come and go one by one: which bytes of them matter at each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diagmem.model.schedule import PUSH
from diagmem.planning.plan import Plan
from diagmem.planning.rows import row_graph
from diagmem.planning.schedulers.lives import Life, row_lives

Edge = tuple[tuple[float, float], ...]
"""Points (byte of the tensor, step), both ascending; none where the tensor is there at once, or to the end."""


@dataclass(frozen=True, slots=True)
class RowWindow:
    """`made`: where what has been made ends. `needed`: where what is still needed starts."""

    made: Edge
    needed: Edge


def row_windows(plan: Plan) -> Mapping[int, RowWindow]:
    """Tensor -> its window, for those of a plan that runs row by row which are in one piece and have several rows."""
    rows = row_graph(plan.graph, plan.options.library)
    steps = [(step.op, step.turn or 0) for step in plan.schedule.steps]
    lives: dict[int, list[Life]] = {}
    for life in row_lives(rows, steps):
        lives.setdefault(life.tensor, []).append(life)
    given = plan.graph.inputs if all(op != PUSH for op, _ in steps) else ()
    kept = {*plan.graph.outputs, *(plan.graph.inputs if plan.options.keep_inputs else ())}
    return {
        tensor: RowWindow(
            () if tensor in given else _stairs([(life.row, life.first) for life in found], rows.row_bytes[tensor]),
            () if tensor in kept else _stairs([(life.row, life.end) for life in found], rows.row_bytes[tensor]),
        )
        for tensor, found in lives.items()
        if tensor in plan.offsets and rows.rows[tensor] > 1
    }


def _stairs(steps_of_rows: list[tuple[int, int]], size: int) -> Edge:
    """Row r is passed at a step, or at that of a row before it if that is later."""
    points: list[tuple[float, float]] = []
    latest = 0
    for row, step in steps_of_rows:
        latest = max(latest, step)
        points += [(row * size, latest), ((row + 1) * size, latest)]
    return tuple(points)
