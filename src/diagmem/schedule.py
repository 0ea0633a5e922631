"""In what order a graph runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PUSH = -1
"""Stands for an op where the caller hands over the next row of a streamed input."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an operation's kernel. `rows`: the output rows that it computes; None: all of them.

    An operation that sums up its input a row at a time has a step for each input row: then `rows` are those.
    """

    op: int
    rows: range | None = None


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
