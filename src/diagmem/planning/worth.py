"""What planning hands on: a plan, and what it is worth beside other plans of the same model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from diagmem.model.graph import Graph
from diagmem.planning.plan import Plan
from diagmem.transforms import Removal


class Rung(NamedTuple):
    """A step from whole tensors towards a plan, and what the arena takes with it and all before it."""

    step: str
    arena_bytes: int


@dataclass(frozen=True)
class Planned:
    """A plan, and what it is worth beside other plans of the same model.

    `baseline` is the best plan of the model without any overlap, in its file's order. `ladder`: what each step from
    there to the plan is worth. `removals`: what made the plan's graph from the model's.
    """

    plan: Plan
    baseline: Plan
    ladder: tuple[Rung, ...] = ()
    removals: tuple[Removal, ...] = ()

    def __repr__(self) -> str:
        return f"{repr(self.plan)[:-1]}, {self.baseline_bytes} without overlap>"

    @property
    def model(self) -> Graph:
        """The graph as its file has it."""
        return self.baseline.graph

    @property
    def baseline_bytes(self) -> int:
        return self.baseline.arena_bytes

    @property
    def arena_bytes(self) -> int:
        return self.plan.arena_bytes

    @property
    def lower_bound_bytes(self) -> int:
        return self.plan.lower_bound_bytes

    @property
    def optimal(self) -> bool:
        """Proven: see Plan.optimal."""
        return self.plan.optimal

    @property
    def saved_bytes(self) -> int:
        return self.baseline_bytes - self.plan.arena_bytes
