"""Row by row: an order of single rows in which only a few rows of each tensor exist at once.

The ops are cut into segments of consecutive ones. Within a segment rows are made on demand: the last tensor asks for
one row after the other, and each row asks for what it needs. Between segments whole tensors exist. The cut with the
smallest peak of live bytes is found by dynamic programming over segments; then steps move across its borders where
that lowers the peak. Nothing is computed twice, unless tensors are named whose rows are dropped after use and made
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.planning.compiled import machine
from diagmem.planning.rows import RowGraph
from diagmem.planning.schedulers.demand import Demand
from diagmem.planning.schedulers.interleaving import interleaved
from diagmem.planning.schedulers.lives import RowStep
from diagmem.planning.schedulers.segments import Dropped, Segment

MOST_SEGMENTS = 12_000
"""Segments that are tried, about: all of them in networks of up to 109 ops; in larger ones only shorter ones."""

LEAST_LONGEST = 24


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """`peak_bytes`: the most that lives at a step. `segments`: ops [begin, end) that are streamed together. `macs`:
    multiply-accumulates of a run. `plain`: the order before it was improved, which has a higher peak, but may be easier
    to place."""

    schedule: Schedule
    peak_bytes: int
    segments: tuple[tuple[int, int], ...]
    macs: Fraction
    plain: Schedule | None = None

    @property
    def steps(self) -> tuple[RowStep, ...]:
        return tuple((step.op, step.turn or 0) for step in self.schedule.steps)


@dataclass
class RowOrders:
    """Orders of a graph. `input_rows`: the caller supplies the input row by row, when it is asked for. `again`: how
    often rows may be made, on average. Peaks of segments are kept: from one choice of dropped tensors to the next most
    stay the same."""

    rows: RowGraph
    input_rows: bool = False
    again: float = 1.0
    _peaks: dict[tuple[int, int, Dropped], int] = field(default_factory=dict)

    @cached_property
    def _demand(self) -> Demand:
        count, turns = len(self.rows.ops), sum(op.turns for op in self.rows.ops)
        return Demand(self.rows, self.input_rows, machine(count * min(count, self._longest) * turns // 4), self.again)

    @property
    def _longest(self) -> int:
        """Ops that a segment may have."""
        return max(LEAST_LONGEST, MOST_SEGMENTS // max(1, len(self.rows.ops)))

    def best(self, dropped: Dropped = frozenset()) -> RowSchedule:
        """The best cut, on demand."""
        cuts = self._cuts(dropped)
        steps = [step for cut in cuts for step in self._demand.best(self._segment(*cut, dropped))[1]]
        if self.input_rows:
            # Rows that nobody asks for are taken too, so that a run ends with the caller's last row.
            pushed = sum(op == PUSH for op, _ in steps)
            steps += [(PUSH, row) for row in range(pushed, self.rows.rows[self.rows.graph.inputs[0]])]
        return self._scheduled(steps, self.peak_within(cuts, dropped), cuts)

    def peak_within(self, cuts: Sequence[tuple[int, int]], dropped: Dropped) -> int:
        """The peak if the ops are cut like this."""
        return max((self._peak(*cut, dropped) for cut in cuts), default=0)

    def improved(self, made: RowSchedule) -> RowSchedule:
        """The order with a better interleaving, if there is one."""
        peak, steps = interleaved(self.rows, made.steps, frozenset(self.rows.graph.outputs))
        if peak >= made.peak_bytes:
            return made
        return replace(self._scheduled(steps, peak, made.segments), plain=made.schedule)

    def _scheduled(self, steps: Sequence[RowStep], peak: int, cuts: tuple[tuple[int, int], ...]) -> RowSchedule:
        schedule = Schedule(tuple(_step(self.rows, *step) for step in steps), "rows")
        return RowSchedule(schedule, peak, cuts, self.rows.macs(op for op, _ in steps))

    def _cuts(self, dropped: Dropped) -> tuple[tuple[int, int], ...]:
        """By dynamic programming: the best cut of the first ops, for more and more of them."""
        count = len(self.rows.ops)
        best: list[tuple[int, int]] = [(0, 0)]
        for end in range(1, count + 1):
            best.append((1 << 62, 0))
            for begin in range(end - 1, max(0, end - self._longest) - 1, -1):
                if best[begin][0] < best[end][0]:
                    best[end] = min(best[end], (max(best[begin][0], self._peak(begin, end, dropped)), begin))
        cuts: list[tuple[int, int]] = []
        end = count
        while end:
            cuts.append((best[end][1], end))
            end = best[end][1]
        return tuple(reversed(cuts))

    def _peak(self, begin: int, end: int, dropped: Dropped) -> int:
        segment = self._segment(begin, end, dropped)
        key = begin, end, frozenset(segment.dropped.items())
        if key not in self._peaks:
            self._peaks[key] = self._demand.peak(segment)
        return self._peaks[key]

    def _segment(self, begin: int, end: int, dropped: Dropped) -> Segment:
        return Segment(self.rows, begin, end, self.input_rows, dropped, self.again)


def _step(rows: RowGraph, op: int, turn: int) -> Step:
    is_whole = op != PUSH and rows.ops[op].is_whole
    return Step(op, None if is_whole else turn)
