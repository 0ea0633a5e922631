"""Why a tensor lies where it does: the chain of buffers that holds it there, down to the start of its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph
from diagmem.model.schedule import PUSH
from diagmem.planning.needs.build_problem import Built
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.needs.problem import Buffer, Problem
from diagmem.planning.plan import Plan

ARENA = "arena"
"""Asks for what sets the size of the whole arena."""

LONGEST_NAME = 22
"""Letters of a buffer's name, so that a table of them fits a terminal."""

_FLOOR = -1
"""Stands for the start of a memory."""


@dataclass(frozen=True, slots=True)
class Link:
    """A buffer at `offset` of its memory. It starts at least `distance_bytes` above the buffer of the next link, as
    `step` asks for; None: nothing is below it. `free_bytes`: what the placement leaves free besides. `is_pinned`: it
    lies there because somebody said so."""

    buffer: Buffer
    offset: int
    distance_bytes: int = 0
    step: int | None = None
    free_bytes: int = 0
    is_pinned: bool = False


@dataclass(frozen=True)
class Chain:
    """`links`: from a buffer down to one at the start of the memory, or to one that is pinned. Distances and free bytes
    add up to the offset. `pool`: the memory, where there are several."""

    plan: Plan
    links: tuple[Link, ...]
    pool: str | None = None

    @property
    def end_bytes(self) -> int:
        """Where the first buffer ends."""
        return self.links[0].offset + self.links[0].buffer.size_bytes

    @property
    def title(self) -> str:
        where = f"pool {self.pool}" if self.pool else "the arena"
        return f"Why {short_name(self.plan.graph, self.links[0].buffer)} ends at {self.end_bytes:,} B of {where}:"

    @property
    def ends(self) -> str:
        """The buffers at its ends, the lower one first."""
        ends = (self.links[-1], self.links[0])
        return " to ".join(f"{short_name(self.plan.graph, link.buffer)} at {link.offset}" for link in ends)

    def step_text(self, step: int) -> str:
        """What runs at a step."""
        steps = self.plan.schedule.steps
        if not 0 <= step < len(steps):
            return "before the run" if step < 0 else "after the run"
        op, turn = steps[step].op, steps[step].turn
        row = "" if turn is None else f", row {turn}"
        run = None if op == PUSH else self.plan.graph.ops[op]
        return f"the input{row}" if run is None else f"op {run.number} {one_line(run.kind)}{row}"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """A row for each link, from the top down: offset, size, name, how far above the next, what asks for that."""
        for link in self.links:
            notes = [self.step_text(link.step)] if link.step is not None else []
            notes += [f"{link.free_bytes:,} B free below"] if link.free_bytes else []
            notes += ["pinned there"] if link.is_pinned else []
            distance = "" if link.step is None else f"{link.distance_bytes:,}"
            name = short_name(self.plan.graph, link.buffer)
            yield f"{link.offset:,}", f"{link.buffer.size_bytes:,}", name, distance, ", ".join(notes)

    def to_json(self) -> dict[str, Any]:
        ops, steps = self.plan.graph.ops, self.plan.schedule.steps

        def op_at(step: int | None) -> int | None:
            is_op = step is not None and 0 <= step < len(steps) and steps[step].op != PUSH
            return ops[steps[step].op].number if step is not None and is_op else None

        return {
            **({} if self.pool is None else {"pool": self.pool}),
            "end_bytes": self.end_bytes,
            "links": [
                {
                    "name": link.buffer.name,
                    "tensors": list(link.buffer.tensors),
                    "offset": link.offset,
                    "bytes": link.buffer.size_bytes,
                    "distance_bytes": link.distance_bytes,
                    "step": link.step,
                    "op": op_at(link.step),
                    "free_bytes": link.free_bytes,
                    **({"pinned": True} if link.is_pinned else {}),
                }
                for link in self.links
            ],
        }


def short_name(graph: Graph, buffer: Buffer) -> str:
    """Of a buffer: the op whose scratch it is, or the short name of its tensor with the row that it holds."""
    if buffer.scratch_of is not None:
        return buffer.name.partition(" '")[0]
    tensor = next((graph.tensors[t] for t in buffer.tensors), None)
    if tensor is None or not buffer.name.startswith(tensor.label):
        return one_line(buffer.name, LONGEST_NAME)
    row = buffer.name.removeprefix(tensor.label)
    return one_line(graph.short_names[tensor.index], LONGEST_NAME - len(row)) + row


class Reasons:
    """The chains of a plan. What was placed is worked out again from the plan's order: a plan from a file will do."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._built = Built.of(footprint(plan.graph, plan.options), plan.schedule)

    @cached_property
    def problem(self) -> Problem:
        """With copies of weights, and what the caller holds."""
        found = self._built.problem()
        known = {buffer.tensors for buffer in found.buffers if buffer.tensors}
        more = (b for b in self.plan.buffers if b.weights_of is not None or (b.tensors and b.tensors not in known))
        return replace(found, buffers=(*found.buffers, *more))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Of each buffer, in the line of all memories."""
        return tuple(map(self._offset, self.problem.buffers))

    def _offset(self, buffer: Buffer) -> int:
        if buffer.weights_of is not None:
            return self.plan.weight_copies[buffer.weights_of]
        if buffer.scratch_of is not None:
            return self.plan.scratch[buffer.scratch_of]
        return self.plan.storage[buffer.tensors[0]].offsets[0 if buffer.rows is None else buffer.rows.start]

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """For each buffer, where its memory begins."""
        uses = map(self.plan.pools.at, self.offsets)
        return tuple(0 if use is None else use.start for use in uses)

    @cached_property
    def _pinned(self) -> frozenset[int]:
        names, tensors = self.plan.options.pinned_at, self.plan.graph.tensors
        buffers = enumerate(self.problem.buffers)
        return frozenset(n for n, buffer in buffers if any(tensors[t].name in names for t in buffer.tensors))

    def of_arena(self) -> tuple[Chain, ...]:
        """What sets the size: from the buffer with the highest end, in each memory."""
        highest: dict[int, tuple[int, int]] = {}
        for n, (buffer, offset) in enumerate(zip(self.problem.buffers, self.offsets, strict=True)):
            highest[self._starts[n]] = max((offset + buffer.size_bytes, -n), highest.get(self._starts[n], (0, 1)))
        return tuple(self.of_buffer(-n) for _, (_, n) in sorted(highest.items()))

    def of_tensor(self, tensor: int) -> Chain:
        """Of a tensor whose rows lie in several places, of the one that reaches highest."""
        base = self.plan.graph.tensors[tensor].base
        own = [n for n, buffer in enumerate(self.problem.buffers) if {tensor, base} & {*buffer.tensors}]
        if not own:
            raise PlanError(f"'{self.plan.graph.tensors[tensor].label}' is in no memory of the plan")
        return self.of_buffer(max(own, key=lambda n: (self.offsets[n], -n)))

    def asked(self, what: str) -> tuple[Chain, ...]:
        """By a tensor's name or index, or what a buffer is called, or ARENA; PlanError names what is spelled alike."""
        if what == ARENA:
            return self.of_arena()
        buffers, tensors = self.problem.buffers, self.plan.graph.tensors
        called = {buffer.name: n for n, buffer in reversed([*enumerate(buffers)])}
        if what in called:
            return (self.of_buffer(called[what]),)
        held = [t for buffer in buffers for t in buffer.tensors]
        named = {self.plan.graph.short_names[t]: t for t in held} | {tensors[t].name: t for t in held}
        if what in named:
            return (self.of_tensor(named[what]),)
        if what.isascii() and what.isdecimal() and int(what) < len(tensors):
            return (self.of_tensor(int(what)),)
        known = [*dict.fromkeys((*named, *called))]
        near = get_close_matches(what, known, n=3, cutoff=0.5) or known[:3]
        hint = " or ".join(f"'{one_line(name, 60)}'" for name in near)
        raise PlanError(f"nothing in RAM is called '{one_line(what, 60)}'; did you mean {hint or ARENA}?")

    def of_buffer(self, first: int) -> Chain:
        """The chain with the least that is free in it and, of these, the fewest links."""
        came_from: dict[int, int] = {}
        queue = [(0, 0, first, first)]
        while _FLOOR not in came_from:
            free, links, buffer, above = heappop(queue)
            if buffer in came_from:
                continue
            came_from[buffer] = above
            if buffer != _FLOOR:
                for below, slack in self._below(buffer):
                    heappush(queue, (free + slack, links + 1, below, buffer))
        chain = [came_from[_FLOOR]]
        while chain[-1] != first:
            chain.append(came_from[chain[-1]])
        links_down = zip(chain[::-1], [*chain[-2::-1], _FLOOR], strict=True)
        use = self.plan.pools.at(self.offsets[first])
        return Chain(self.plan, tuple(self._link(*pair) for pair in links_down), None if use is None else use.pool.name)

    def _below(self, buffer: int) -> Iterator[tuple[int, int]]:
        """What a buffer may rest on, and how much is free between the two."""
        own, start = self.offsets[buffer], self._starts[buffer]
        yield _FLOOR, 0 if buffer in self._pinned else own - start
        for other, _, distance in self.problem.neighbours(buffer):
            if self.offsets[other] + distance <= own and self._starts[other] == start:
                yield other, own - self.offsets[other] - distance

    def _link(self, buffer: int, below: int) -> Link:
        own, start = self.offsets[buffer], self._starts[buffer]
        if below == _FLOOR:
            is_pinned = buffer in self._pinned
            return Link(self.problem.buffers[buffer], own - start, 0, None, 0 if is_pinned else own - start, is_pinned)
        distance = self.problem.separation(below, buffer)
        free = own - self.offsets[below] - distance
        return Link(self.problem.buffers[buffer], own - start, distance, self._step(below, buffer), free)

    def _step(self, below: int, above: int) -> int:
        """The step that asks for most between two buffers."""
        windows = len(self._built.windows)
        if below < windows and above < windows:
            return self._built.asked_at((below, above))
        return max(self.problem.buffers[n].first_step for n in (below, above))
