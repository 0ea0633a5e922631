"""In what order a graph runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagmem.model.graph import Graph

PUSH = -1
"""Stands for an op where the caller hands over the next row of a streamed input."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an operation's kernel: one `turn` of it, or all of it at once (None).

    As a rule turn y makes row y of the output. An operation that sums up its input takes row y of that in turn y, and
    the caller (op PUSH) hands over row y of the streamed input.
    """

    op: int
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in the order in which they run. `name` says who made it."""

    steps: tuple[Step, ...]
    name: str = "given"

    @classmethod
    def whole(cls, ops: Iterable[int], name: str = "given") -> Schedule:
        """Every operation run whole, in this order."""
        return cls(tuple(Step(op) for op in ops), name)

    @property
    def ops(self) -> tuple[int, ...]:
        return tuple(step.op for step in self.steps)

    @property
    def has_turns(self) -> bool:
        """Whether any operation runs a row at a time."""
        return any(step.turn is not None for step in self.steps)

    @property
    def is_streamed(self) -> bool:
        """Whether the caller hands the input over a row at a time."""
        return any(step.op == PUSH for step in self.steps)

    def begins(self, ahead: bool = False) -> dict[int, int]:
        """Op -> its first step; if `ahead`, the last step of another op before that, where there is one."""
        found: dict[int, int] = {}
        before: int | None = None
        for at, step in enumerate(self.steps):
            if step.op != PUSH:
                found.setdefault(step.op, before if ahead and before is not None else at)
                before = at
        return found


@dataclass(frozen=True, slots=True)
class PushState:
    """What a run remembers while it waits for the caller's next row: how many steps it has done, in `at_bytes`, and
    then for each of the model's `ops`, and for the caller's rows, how many turns, in `turn_bytes` each."""

    ops: int
    at_bytes: int
    turn_bytes: int
    size_bytes: int

    @classmethod
    def of(cls, graph: Graph, ops_of_steps: Sequence[int]) -> PushState:
        most_turns = max(Counter(ops_of_steps).values(), default=0)
        at_bytes, turn_bytes = 2 if len(ops_of_steps) < 1 << 16 else 4, 1 if most_turns < 1 << 8 else 2
        ops = 1 + max((op.number for op in graph.ops), default=-1)
        size = at_bytes + turn_bytes * (ops + 1)
        return cls(ops, at_bytes, turn_bytes, -(-size // at_bytes) * at_bytes)
