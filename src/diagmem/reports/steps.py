"""What the report's script shows for a step: the operation, its tensors, its overlaps by every method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from diagmem.kernels import Library
from diagmem.model.graph import Node
from diagmem.model.schedule import PUSH
from diagmem.ops import kind_of
from diagmem.planning.overlaps import METHODS, overlaps
from diagmem.reports.blocks import Picture
from diagmem.reports.fronts import Fronts, sort_of

MOST_TOUCHES = 1_000_000
"""Loops that touch more are not replayed for the page, which is to be there in seconds."""


def steps_data(pictures: tuple[Picture, Picture]) -> dict[str, Any]:
    """For the plans before and after. Operations that are alike share their fronts and figures (`sorts`)."""
    before, after = (picture.plan for picture in pictures)
    step_before = {before.graph.ops[op].number: step for step, op in enumerate(before.schedule.ops)}
    # The caller hands over rows of the input before the first op of the file needs them whole.
    steps = [0 if op == PUSH else step_before[after.graph.ops[op].number] for op in after.schedule.ops]
    sorts: dict[Hashable, int] = {}
    figures: list[dict[str, Any]] = []
    for node in after.graph.nodes:
        if sort_of(node) not in sorts:
            sorts[sort_of(node)] = len(figures)
            figures.append(_figures(node, after.options.library, pictures[1].fronts[node.op.index]))
    turns = Counter(step.op for step in after.schedule.steps if step.turn is not None)
    return {
        "schedule": list(after.schedule.ops),
        "needed": list(after.pressure),
        "words": [[picture.step_words(step) for step in range(picture.rows)] for picture in pictures],
        "whole": [pictures[0].live[step] for step in steps],
        "before": steps,
        "tensors": {
            t.index: [t.label, "×".join(map(str, t.shape)), t.dtype.value, t.size_bytes, after.offsets.get(t.index)]
            for t in after.graph.tensors
            if not t.is_constant
        },
        "ops": [
            [
                node.op.kind,
                [t.index for _, t in node.activations()],
                list(node.op.outputs),
                sorts[sort_of(node)],
                node.op.number,
                turns.get(node.op.index, 0),
            ]
            for node in after.graph.nodes
        ],
        "sorts": figures,
        "spans": [[[b.first_step, b.end_step] for b in picture.plan.buffers] for picture in pictures],
    }


def _figures(node: Node, library: Library, found: Fronts | None) -> dict[str, Any]:
    """O_s in bytes by method for each input in RAM and each output, in that order, and the fronts of each."""
    methods = METHODS if _touches(node, library) <= MOST_TOUCHES else tuple(m for m in METHODS if m != "algorithmic")
    return {
        "pairs": [
            {key: row[key] for key in (*METHODS, "paper_unsafe")}
            for row in (overlap.to_json() for overlap in overlaps(node, library, methods))
        ],
        "written": [_rounded(front) for front in found.written] if found else [],
        "needed": [_rounded(found.needed[position] or ()) for position, _ in node.activations()] if found else [],
    }


def _rounded(front: tuple[tuple[float, int], ...]) -> list[tuple[float, int]]:
    return [(round(done, 4), at) for done, at in front]


def _touches(node: Node, library: Library) -> int:
    kind, order = kind_of(node.op.kind), library.order(node)
    if kind is None or order is None:
        return 0
    return sum(int(runs.length.sum()) for runs in kind.accesses(node, order).reads if runs is not None)
