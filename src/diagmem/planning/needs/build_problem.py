"""From a graph's footprint and a schedule to the placement problem.

What lives when is said by live windows. What is made may lie over what dies meanwhile, as far as the kernel allows. All
of it becomes separations, and the allocators need not know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from diagmem.model.errors import PlanError
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.planning.needs.footprint import Footprint, most_covered
from diagmem.planning.needs.problem import Problem
from diagmem.planning.needs.windows import LiveWindow, LiveWindows, Row

Pair = tuple[int, int]
"""Two buffers by index: the one below, the one above."""


def build_problem(needs: Footprint, schedule: Schedule) -> Problem:
    """The buffers and separations of a graph that runs in this order."""
    _check_order(needs, schedule)
    return _Posed.of(needs, schedule).problem()


class Moment(NamedTuple):
    """What lives at a step, or before or after the run: the bytes of each buffer, in whole units; and for each pair of
    which the first is made of the second, how many bytes the two may share at the most."""

    live: dict[int, int]
    shared: dict[Pair, int]


def moments(needs: Footprint, schedule: Schedule) -> list[Moment]:
    """Before the run, at each step, and after it: by these, what some of the buffers need among themselves."""
    return _Posed.of(needs, schedule).moments()


class _Met(NamedTuple):
    """A row, or a tensor, that is made of another one that dies: buffers, where in these the two lie, their sizes, and
    the separation of the two."""

    out: int
    out_at: int
    out_bytes: int
    source: int
    source_at: int
    in_bytes: int
    apart: int


@dataclass(frozen=True)
class _Posed:
    """`windows`: one for each buffer. `whole`: store -> buffer, of those in one piece. `home`: (tensor, row) -> its
    buffer, and the offset in it, for the tensors whose rows come and go one by one."""

    needs: Footprint
    steps: tuple[Step, ...]
    windows: tuple[LiveWindow, ...]
    whole: Mapping[int, int]
    home: Mapping[Row, tuple[int, int]]

    @classmethod
    def of(cls, needs: Footprint, schedule: Schedule) -> _Posed:
        found = LiveWindows(needs, schedule)
        for index, store in enumerate(needs.stores):
            found.add(index, store)
        found.windows += map(LiveWindow.still, found.held_by_ops())
        return cls(needs, schedule.steps, tuple(found.windows), found.whole, found.home)

    def problem(self) -> Problem:
        buffers = tuple(window.buffer for window in self.windows)
        near = {pair: apart for pair, met in self.meetings.items() for _, apart in met}
        overlaps = {**near, **dict(self._moving_pairs())}
        during, outside = self._pressure()
        return Problem(buffers, overlaps, self.needs.unit_bytes, during, max(outside, *during) if during else outside)

    @cached_property
    def meetings(self) -> Mapping[Pair, list[tuple[int, int]]]:
        """(output below, input above) -> the steps at which something of the one is made of something of the other that
        dies, and the separation that each asks for."""
        found: dict[Pair, list[tuple[int, int]]] = defaultdict(list)
        for at in range(len(self.steps)):
            asked: dict[Pair, int] = {}
            for met in self._met_at(at):
                apart = met.out_at + met.apart - met.source_at
                asked[met.out, met.source] = max(apart, asked.get((met.out, met.source), apart))
            for pair, apart in asked.items():
                found[pair].append((at, max(apart, *self._beside(pair, at))))
        return found

    def _met_at(self, at: int) -> Iterator[_Met]:
        """What dies while something is made of it."""
        step = self.steps[at]
        if step.op == PUSH or not self.needs.options.overlap:
            return
        if step.turn is None:
            yield from self._met_whole(at, step.op)
            return
        op, turn = self.needs.rows.ops[step.op], step.turn
        for made in op.makes_at(turn) or ():
            out = self.home.get((op.makes[0], made))
            for need in op.needs if out is not None else ():
                size = self.needs.rows.row_bytes[need.tensor]
                for row, apart in enumerate(need.apart[turn], need.first[turn]):
                    source = self.home.get((need.tensor, row))
                    if out is not None and source is not None and self._dies(source[0], source[1] + size, at):
                        yield _Met(*out, self.needs.rows.row_bytes[op.makes[0]], *source, size, apart)

    def _met_whole(self, at: int, op: int) -> Iterator[_Met]:
        """Whole tensors that die while others are made of them."""
        for (made, read), apart in self.needs.separations[op].items():
            out, source = (self.windows[self.whole[store]].buffer for store in (made, read))
            # Of what holds state, parts come and go: what else of it lives is looked at beside.
            is_begun = self.needs.stores[made].holds_state or out.first_step == at
            if is_begun and (self.needs.stores[read].holds_state or source.end_step - 1 == at):
                yield _Met(self.whole[made], 0, out.size_bytes, self.whole[read], 0, source.size_bytes, apart)

    def _dies(self, buffer: int, end: int, at: int) -> bool:
        """Whether the window leaves behind all bytes below `end` after this step."""
        window = self.windows[buffer]
        next_step = at + 1 - window.buffer.first_step
        return next_step >= len(window.low) or int(window.low[next_step]) >= end

    def _beside(self, pair: Pair, at: int) -> Iterator[int]:
        """What other rows of the two ask for at the step: rows made before against rows that die now, and the row made
        now against rows that live on."""
        below, above = (self.windows[index] for index in pair)
        here, there = at - below.buffer.first_step, at - above.buffer.first_step
        yield -above.buffer.size_bytes
        if here > 0:
            yield int(below.high[here - 1] - above.low[there])
        if there + 1 < len(above.low):
            yield int(below.high[here] - above.low[there + 1])

    def _moving_pairs(self) -> Iterator[tuple[Pair, int]]:
        """separation(below, above) for each pair in which a window moves, or is not always there."""
        moving = {n for n, window in enumerate(self.windows) if not window.is_still}
        for index in sorted(moving):
            for other in range(len(self.windows)):
                if other != index and (other not in moving or other > index):
                    yield from self._both_ways(index, other)

    def _both_ways(self, a: int, b: int) -> Iterator[tuple[Pair, int]]:
        first, second = self.windows[a].buffer, self.windows[b].buffer
        steps = slice(max(first.first_step, second.first_step), min(first.end_step, second.end_step))
        if steps.start < steps.stop:
            for pair in ((a, b), (b, a)):
                apart = self.windows[pair[0]].high_at(steps) - self.windows[pair[1]].low_at(steps)
                for at, asked in self.meetings.get(pair, ()):
                    apart[at - steps.start] = asked
                yield pair, int(apart.max())

    def _pressure(self) -> tuple[tuple[int, ...], int]:
        """Bytes that no placement can do without: at each step, and before or after the run. Buffers are counted in
        whole units, windows that move by their bytes, less what is made can share with what dies."""
        unit, steps = self.needs.unit_bytes, len(self.steps)
        live = np.zeros(steps + 2, dtype=np.int64)
        for window in self.windows:
            buffer = window.buffer
            if window.is_still:
                live[buffer.first_step + 1 : buffer.end_step + 1] += -(-buffer.size_bytes // unit) * unit
            else:
                # A unit at the edge of a window that moves may also hold bytes of another buffer.
                live[buffer.first_step + 1 : buffer.end_step + 1] += window.size // unit * unit
        during = live[1:-1].copy()
        for at in range(steps):
            during[at] -= self._shared(at) * unit
        return tuple(during.tolist()), int(max(live[0], live[-1]))

    def moments(self) -> list[Moment]:
        unit = self.needs.unit_bytes
        found = [Moment({}, defaultdict(int)) for _ in range(len(self.steps) + 2)]
        for number, window in enumerate(self.windows):
            sizes = -(-window.size // unit) if window.is_still else window.size // unit
            for at, size in enumerate(sizes.tolist(), window.buffer.first_step + 1):
                found[at].live[number] = size * unit
        for at in range(len(self.steps)):
            for met in self._met_at(at):
                most = min(met.in_bytes, met.out_bytes, met.out_bytes - met.apart)
                found[at + 1].shared[met.out, met.source] += max(0, -(-most // unit) * unit)
        return found

    def _shared(self, at: int) -> int:
        """The most units that what is made at a step can share with what dies."""
        unit = self.needs.unit_bytes
        dying: dict[int, list[_Met]] = defaultdict(list)
        for met in self._met_at(at):
            dying[met.out].append(met)
        covered, gone = 0, {}
        for made in dying.values():
            jobs = [(-(-met.apart // unit), -(-met.in_bytes // unit)) for met in made]
            covered += most_covered(-(-made[0].out_bytes // unit), jobs)
            gone.update({(met.source, met.source_at): -(-met.in_bytes // unit) for met in made})
        return min(covered, sum(gone.values()))


def _check_order(needs: Footprint, schedule: Schedule) -> None:
    """Raises PlanError unless each op runs, and none that runs whole before another one that does and that it depends
    on. A turn may come before ops that it needs nothing of: the first row of a PAD."""
    whole = {step.op: at for at, step in enumerate(schedule.steps) if step.turn is None}
    by_turns = {step.op for step in schedule.steps if step.turn is not None and step.op != PUSH}
    runs_once = len(whole) == sum(step.turn is None for step in schedule.steps) and not whole.keys() & by_turns
    if whole.keys() | by_turns != set(range(len(needs.graph.ops))) or not runs_once:
        raise PlanError(
            f"schedule '{schedule.name}' of {len(schedule.steps)} steps: it must run each of the graph's "
            f"{len(needs.graph.ops)} ops once"
        )
    for op, before in enumerate(needs.after):
        for earlier in before:
            if earlier in whole and op in whole and whole[earlier] > whole[op]:
                raise PlanError(f"schedule '{schedule.name}': op {op} runs before op {earlier}, which it depends on")
