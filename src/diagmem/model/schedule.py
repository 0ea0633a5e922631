"""In what order a graph runs, and how several cores share the work where they run it in one arena.

The work of an op is cut into *units* of its output, and these into *phases*. Within a phase any core may do any unit in
any order; cores wait for each other between phases. One table of phases serves any number of cores.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

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


class Along(enum.Enum):
    """What a unit of an output is."""

    PIXELS = "pixels"
    """So many neighbouring elements: a pixel with all its channels or, of an operation that knows no pixels, what one
    index of its outermost axis holds. Units follow each other as the elements do."""

    ROWS = "rows"
    """A row of an image, made by the kernel for one row. They too follow each other as the elements do."""

    CHANNELS = "channels"
    """One index of the last axis, all over the output."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A way in which a kernel's work can be cut: into `units`, which cores take by whole multiples of `grain`.
    `can_hold`: units are neighbours in memory, and the kernel can make them elsewhere than where they belong."""

    along: Along
    units: int
    grain: int = 1
    can_hold: bool = False


class How(enum.Enum):
    """Who does the units of a phase."""

    SHARED = "shared"
    """Each core some, in any order."""

    HELD = "held"
    """The same, but what a core has made it keeps until all have read what they need: then all write."""

    ALONE = "alone"
    """The first core all of them, in the kernel's own order."""


@dataclass(frozen=True, slots=True)
class Phases:
    """Units up to `end`, from where the phases before end, `step` of them in each phase; the last may have fewer."""

    end: int
    step: int
    how: How


class Phase(NamedTuple):
    """Units [first, end)."""

    first: int
    end: int
    how: How

    @property
    def units(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class Split:
    """How cores share an op: its units, all of them, in phases. `turns`: those of an op that runs by turns which they
    share so; the units are then those of one row."""

    op: int
    cut: Cut
    phases: tuple[Phases, ...]
    turns: tuple[int, ...] | None = None

    def each_phase(self) -> Iterator[Phase]:
        first = 0
        for phases in self.phases:
            while first < phases.end:
                end = min(first + phases.step, phases.end)
                yield Phase(first, end, phases.how)
                first = end

    @cached_property
    def barriers(self) -> int:
        """One after each phase; one that is held has it in its middle, and needs none behind it but at the end."""
        found = list(self.each_phase())
        return len(found) + (1 if found and found[-1].how is How.HELD else 0)

    @property
    def most_held(self) -> int:
        """Units of the longest phase that is held."""
        return max((phases.step for phases in self.phases if phases.how is How.HELD), default=0)


@dataclass(frozen=True)
class Multicore:
    """How up to `cores` cores run a model: the steps that they share; any other the first core does alone."""

    cores: int
    splits: tuple[Split, ...]

    @cached_property
    def by_step(self) -> dict[Step, Split]:
        return {Step(s.op, turn): s for s in self.splits for turn in ((None,) if s.turns is None else s.turns)}

    def of_op(self, op: int) -> Split | None:
        """How they share an op that runs whole."""
        return self.by_step.get(Step(op))

    def barriers_after(self, steps: Sequence[Step]) -> list[bool]:
        """For steps in the order in which they run whether all cores wait for each other behind each: not between two
        that the first core does alone. A row that the caller hands over all wait for."""
        following = [*(step in self.by_step for step in steps[1:]), True]
        return [
            step in self.by_step or step.op == PUSH or is_shared
            for step, is_shared in zip(steps, following, strict=False)
        ]

    def barriers(self, steps: Sequence[Step]) -> int:
        """Of a run of these steps, with those before the first: one, or one for each row that the caller hands over."""
        waits = zip(steps, self.barriers_after(steps), strict=True)
        alone = sum(is_after and step not in self.by_step for step, is_after in waits)
        calls = max(1, sum(step.op == PUSH for step in steps))
        return calls + alone + sum(self.by_step[step].barriers for step in steps if step in self.by_step)
