"""How far a run has come: what the schedulers that look ahead have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagmem.planning.footprint import Footprint


@dataclass(frozen=True, slots=True)
class State:
    """`done`: the ops that have run, as bits. `ready`: those that may run next. `ran`: the order so far, latest first,
    as (op, those before it)."""

    done: int
    live: int
    ready: tuple[int, ...]
    ran: tuple[int, Any] | None = None

    @property
    def order(self) -> list[int]:
        order, ran = [], self.ran
        while ran is not None:
            order.append(ran[0])
            ran = ran[1]
        return order[::-1]


def start(footprint: Footprint) -> State:
    """Nothing has run."""
    return State(0, footprint.live_at_start, tuple(op for op, before in enumerate(footprint.after) if not before))


def after(footprint: Footprint, state: State, op: int, change: int) -> State:
    """The state when `op` has run too; `change` is what it adds to the live units."""
    done = state.done | 1 << op
    woken = tuple(f for f in footprint.followers[op] if not footprint.after_bits[f] & ~done)
    return State(done, state.live + change, tuple(o for o in state.ready if o != op) + woken, (op, state.ran))
