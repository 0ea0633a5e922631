"""The arena as text: addresses across, steps down."""

from __future__ import annotations

import string
from collections.abc import Iterator

from diagmem.model.schedule import PUSH
from diagmem.planning.plan import Plan

MOST_STEPS = 60
"""Beyond this, the steps around the peak are shown."""

_LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits
_SHARED = "▓"
_FREE = "·"
_WEIGHTS = "#"
_PEAK = "  <- peak"


def arena_lines(plan: Plan, width: int) -> list[str]:
    """A line for each step: a letter for each tensor where it lies, # for copies of weights, a block where two tensors
    share bytes."""
    cells = max(10, width - len(_line_head(0)) - len(_PEAK))
    steps = len(plan.schedule.steps)
    first = 0
    if steps > MOST_STEPS:
        first = min(max(0, (plan.peak_step or 0) - MOST_STEPS // 2), steps - MOST_STEPS)
    shown = range(first, min(steps, first + MOST_STEPS))
    unit = max(1, -(-plan.end_bytes // cells))
    end = f"{plan.end_bytes} B"
    lines = [f"{'op':>5}  0{end:>{max(1, -(-plan.end_bytes // unit) - 1)}}"]
    lines += [_pool_names(plan, unit)] if plan.pools else []
    lines += ["  ..."] if shown.start else []
    lines += [_line(plan, step, unit) for step in shown]
    lines += ["  ..."] if shown.stop < steps else []
    return lines


def _line(plan: Plan, step: int, unit: int) -> str:
    row = [_FREE] * -(-plan.end_bytes // unit)
    for letter, offset, size_bytes in _shown(plan, step):
        for cell in range(offset // unit, -(-(offset + size_bytes) // unit)):
            row[cell] = letter if row[cell] == _FREE else _SHARED
    op = plan.schedule.ops[step]
    head = _line_head(op if op == PUSH else plan.graph.ops[op].number)
    return head + "".join(row) + (_PEAK if step == plan.peak_step else "")


def _pool_names(plan: Plan, unit: int) -> str:
    """Each where its memory begins, as far as there is room."""
    row = [" "] * -(-plan.end_bytes // unit)
    for use in plan.pools.in_use.uses:
        first = use.start // unit
        row[first : -(-use.end // unit)] = f"|{use.pool.name}".ljust(len(row))[: -(-use.end // unit) - first]
    return f"{'':>7}{''.join(row)}".rstrip()


def _shown(plan: Plan, step: int) -> Iterator[tuple[str, int, int]]:
    """What lives at a step: its letter, where it lies, and its size."""
    for place in plan.places:
        # What is part of another tensor is shown with that one.
        if place.first_step <= step < place.end_step and place.tensor.view is None:
            yield _LETTERS[place.tensor.index % len(_LETTERS)], place.offset, place.size_bytes
    for buffer, offset in zip(plan.buffers, plan.buffer_offsets, strict=True):
        if buffer.weights_of is not None and buffer.first_step <= step < buffer.end_step:
            yield _WEIGHTS, offset, buffer.size_bytes


def _line_head(op: int) -> str:
    return f"{op:>5}  "
