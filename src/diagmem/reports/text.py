"""The arena as text: addresses across, steps down."""

from __future__ import annotations

import string

from diagmem.model.schedule import PUSH
from diagmem.planning.plan import Plan

MOST_STEPS = 60
"""Beyond this, the steps around the peak are shown."""

_LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits
_SHARED = "▓"
_FREE = "·"
_PEAK = "  <- peak"


def arena_lines(plan: Plan, width: int) -> list[str]:
    """A line for each step: a letter for each tensor where it lies, a block where two tensors share bytes."""
    cells = max(10, width - len(_line_head(0)) - len(_PEAK))
    steps = len(plan.schedule.steps)
    first = 0
    if steps > MOST_STEPS:
        first = min(max(0, (plan.peak_step or 0) - MOST_STEPS // 2), steps - MOST_STEPS)
    shown = range(first, min(steps, first + MOST_STEPS))
    unit = max(1, -(-plan.arena_bytes // cells))
    end = f"{plan.arena_bytes} B"
    lines = [f"{'op':>5}  0{end:>{max(1, -(-plan.arena_bytes // unit) - 1)}}"]
    lines += ["  ..."] if shown.start else []
    lines += [_line(plan, step, unit) for step in shown]
    lines += ["  ..."] if shown.stop < steps else []
    return lines


def _line(plan: Plan, step: int, unit: int) -> str:
    row = [_FREE] * -(-plan.arena_bytes // unit)
    for place in plan.places:
        # What is part of another tensor is shown with that one.
        if not place.first_step <= step < place.end_step or place.tensor.view is not None:
            continue
        letter = _LETTERS[place.tensor.index % len(_LETTERS)]
        for cell in range(place.offset // unit, -(-(place.offset + place.size_bytes) // unit)):
            row[cell] = letter if row[cell] == _FREE else _SHARED
    op = plan.schedule.ops[step]
    head = _line_head(op if op == PUSH else plan.graph.ops[op].number)
    return head + "".join(row) + (_PEAK if step == plan.peak_step else "")


def _line_head(op: int) -> str:
    return f"{op:>5}  "
