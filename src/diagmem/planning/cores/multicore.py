"""How several cores share a run: phases for each step of a plan, what they cost, and how much faster they are.

An op whose output lies near its input is done in many phases; further apart they are longer, and where the two share
nothing there is one. So the ops that lose most time are spread, one after the other, as far as the arena allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from diagmem.model.errors import PlanError
from diagmem.model.graph import Graph, Node
from diagmem.model.schedule import PUSH, Multicore, Split, Step
from diagmem.ops import kind_of
from diagmem.planning.cores.split import (
    BARRIER_INSTRUCTIONS,
    SharedOp,
    SharedTurns,
    critical_path,
    estimated_work,
    op_path,
    stays,
)
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place import optimal
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.rings import with_rings
from diagmem.planning.plan import Plan

Known = dict[tuple[int, ...], Split | None]
"""An op, and how its tensors lie to each other -> how cores share it: nothing else matters."""


def multicore(plan: Plan, cores: int, known: Known | None = None) -> Multicore:
    """How up to so many cores share the work of a plan. `known`: from other plans of the same graph."""
    found: list[Split] = []
    known = {} if known is None else known
    whole = {step.op for step in plan.schedule.steps if step.turn is None}
    for op in dict.fromkeys(step.op for step in running_steps(plan) if step.op != PUSH):
        node = plan.graph.nodes[op]
        if op not in whole:
            found += SharedTurns(plan, node, cores).splits()
            continue
        touched = (*(t.index for _, t in node.activations()), *node.op.outputs)
        places = [plan.offsets[t] for t in touched if t in plan.offsets]
        key = op, *(place - min(places) for place in places)
        if key not in known:
            known[key] = SharedOp(plan, node, cores).best()
        best = known[key]
        found += [best] if best is not None else []
    return Multicore(cores, tuple(found))


def running_steps(plan: Plan) -> list[Step]:
    """The steps in their order, without those that move nothing."""
    steps, nodes = plan.schedule.steps, plan.graph.nodes
    return [step for step in steps if step.turn is not None or not stays(plan.offsets, nodes[step.op])]


def most_held_bytes(graph: Graph, shared: Multicore | None) -> int:
    """The most bytes that all cores together defer in a phase; with two cores, each defers half of it."""
    found = 0
    for split in () if shared is None else shared.splits:
        grains = -(-split.most_held // split.cut.grain)
        found = max(found, 2 * -(-grains // 2) * split.cut.grain * unit_bytes(graph, split))
    return found


def unit_bytes(graph: Graph, split: Split) -> int:
    """Of the output."""
    out = graph.nodes[split.op].output
    return (out.size_bytes if split.turns is None else out.row_bytes) // split.cut.units


def estimated_speedup(plan: Plan, shared: Multicore, cores: int) -> float:
    """How much faster so many cores are than one, roughly: by the critical path in instructions."""
    steps = running_steps(plan)
    return speedup(shared, steps, {step: step_work(plan.graph, step) for step in set(steps)}, cores)


def step_work(graph: Graph, step: Step) -> float:
    """Instructions of a step, roughly."""
    if step.op == PUSH:
        return graph.tensors[graph.inputs[0]].row_bytes / 4
    node = graph.nodes[step.op]
    return estimated_work(node) / (1 if step.turn is None else _turns(node))


def _turns(node: Node) -> int:
    """What sums up its input takes a row of that in each."""
    kind = kind_of(node.op.kind)
    sums = kind is not None and kind.accumulator_bytes(node) is not None
    return node.input(0).rows if sums else node.output.rows


def speedup(shared: Multicore, steps: Sequence[Step], works: Mapping[Step, float], cores: int) -> float:
    """From the instructions of each step on one core."""
    calls = max(1, sum(step.op == PUSH for step in steps))
    path = float(BARRIER_INSTRUCTIONS * calls)
    for step, waits in zip(steps, shared.barriers_after(steps), strict=True):
        split = shared.by_step.get(step)
        if split is None:
            path += works[step] + BARRIER_INSTRUCTIONS * waits
        else:
            path += critical_path(split, works[step], cores)
    alone = sum(works[step] for step in steps)
    return alone / path if path else 1.0


SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""How far apart to try: of the way from the least distance to none that is shared."""

MOST_TRIES = 40
"""Placements that are looked for."""

LEAST_GAIN = 1e-5
"""Of a run: an op that loses less is left where it is."""

_EFFORT = 0.02
"""Of what one placement may take, for each of these."""


def spread(plan: Plan) -> Plan:
    """The plan, or one of its order whose arena is no larger than is allowed, with the phases in which cores share
    it. Rows seldom lie on those that they are made of, so they stay where they are; so does what was pinned, or lies
    with the caller."""
    if not plan.options.library.is_own:
        raise PlanError("several cores run our own kernels: plan with kernels 'diagmem', or without cores")
    is_given = plan.options.pinned_at or plan.options.external or plan.options.pools
    return shared_as_placed(plan) if plan.runs_by_rows or is_given else _Search(plan).best()


def shared_as_placed(plan: Plan, known: Known | None = None) -> Plan:
    """The plan with the phases in which cores share it, where several are asked for."""
    cores = plan.options.cores
    return plan if cores == 1 else replace(plan, multicore=multicore(plan, cores, known))


@dataclass
class _Search:
    plan: Plan
    known: Known = field(default_factory=dict)

    @cached_property
    def needs(self) -> Footprint:
        return footprint(self.plan.graph, self.plan.options)

    @cached_property
    def problem(self) -> Problem:
        return build_problem(self.needs, self.plan.schedule)

    @cached_property
    def step_of(self) -> dict[int, int]:
        return {step.op: number for number, step in enumerate(self.plan.schedule.steps)}

    @property
    def limit_bytes(self) -> int:
        unit = self.problem.unit_bytes
        return int(self.plan.arena_bytes * (1 + self.plan.options.cores_cost / 100)) // unit * unit

    def best(self) -> Plan:
        best = shared_as_placed(self.plan, self.known)
        effort = Effort.named(self.plan.options.effort, self.plan.options.time_limit).for_whole_tensors.times(_EFFORT)
        overlaps, tries = dict(self.problem.overlaps), 0
        least = max(BARRIER_INSTRUCTIONS, LEAST_GAIN * self._path(best))
        for op in sorted(_ops(self.plan), key=lambda op: -self._lost(best, op)):
            if self._lost(best, op) <= least:
                continue
            for further in self._further(op, overlaps):
                if tries >= MOST_TRIES or effort.is_late:
                    break
                tries += 1
                found = self._placed({**overlaps, **further}, effort)
                if found is not None and self._path(found) < self._path(best):
                    best = found
                    overlaps |= further
                    break
        return best

    def _further(self, op: int, overlaps: Mapping[tuple[int, int], int]) -> Iterator[dict[tuple[int, int], int]]:
        """The op's output ever nearer to its inputs, from where they share nothing."""
        node, buffers = self.plan.graph.nodes[op], self.problem.buffers
        of = {tensor: n for n, buffer in enumerate(buffers) for tensor in buffer.tensors}
        pairs = {
            (of[node.output.index], of[tensor.index])
            for _, tensor in node.activations()
            if node.output.index in of and tensor.index in of
        }
        near = {pair: overlaps[pair] for pair in pairs if pair in overlaps}
        for share in SHARES if near else ():
            found = {pair: apart + int(share * (buffers[pair[0]].size_bytes - apart)) for pair, apart in near.items()}
            added = sum(found.values()) - sum(near.values())
            # What the only pair that overlaps no longer shares, the arena must have besides.
            if len(near) > 1 or self.problem.pressure[self.step_of[op]] + added <= self.limit_bytes:
                yield found

    def _placed(self, overlaps: Mapping[tuple[int, int], int], effort: Effort) -> Plan | None:
        problem = replace(self.problem, overlaps=overlaps)
        placement = optimal(problem, effort, self.limit_bytes)
        if placement.arena_bytes > self.limit_bytes:
            return None
        offsets = with_rings(problem, placement.offsets)
        found = self.plan.with_buffers(problem.buffers, offsets, arena_bytes=placement.arena_bytes)
        return shared_as_placed(found, self.known)

    def _lost(self, plan: Plan, op: int) -> float:
        """Instructions that the op takes beyond an even share and one barrier."""
        node, cores = plan.graph.nodes[op], plan.options.cores
        return self._op_path(plan, op) - op_path(node, None, 1) / cores if plan.options.library.cuts(node) else 0.0

    def _op_path(self, plan: Plan, op: int) -> float:
        assert plan.multicore is not None
        return op_path(plan.graph.nodes[op], plan.multicore.of_op(op), plan.options.cores)

    def _path(self, plan: Plan) -> float:
        return sum(self._op_path(plan, op) for op in _ops(plan))


def _ops(plan: Plan) -> list[int]:
    """Those that move something, in the order in which they run."""
    return [step.op for step in running_steps(plan)]
