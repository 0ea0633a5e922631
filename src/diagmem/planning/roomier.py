"""Among placements that are small enough, one in which several cores seldom wait for each other.

An op whose output lies near its input is done in many phases; further apart they are longer, and where the two share
nothing there is one. So the ops that lose most time are moved apart, one after the other, as far as the arena allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from diagmem.model.errors import PlanError
from diagmem.model.teamwork import Sharing, Teamwork
from diagmem.planning.checked import checked
from diagmem.planning.footprint import Footprint, footprint
from diagmem.planning.place import optimal
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.rings import with_rings
from diagmem.planning.plan import Plan, scratch_of, stored
from diagmem.planning.posing import problem
from diagmem.planning.problem import Problem
from diagmem.planning.sharing import BARRIER_INSTRUCTIONS, SharedOp, op_path
from diagmem.planning.teamwork import running_steps, teamwork

SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""How far apart to try: of the way from the least distance to none that is shared."""

MOST_TRIES = 40
"""Placements that are looked for."""

LEAST_GAIN = 1e-5
"""Of a run: an op that loses less is left where it is."""

_EFFORT = 0.02
"""Of what one placement may take, for each of these."""


def checked_team(plan: Plan, advice: str) -> Plan:
    """The plan with how several cores share it, if it is safe."""
    if not plan.options.library.is_own:
        raise PlanError("several cores run our own kernels: plan with kernels 'diagmem', or without cores")
    return checked(roomier(plan), advice)


def roomier(plan: Plan) -> Plan:
    """The plan, or one of its order whose arena is no larger than is allowed, with the phases in which cores share
    it. Rows seldom lie on those that they are made of, so they stay where they are; so does what was pinned, or lies
    with the caller."""
    is_given = plan.options.pins or plan.options.external or plan.options.pools
    return shared_as_placed(plan) if plan.runs_by_rows or is_given else _Search(plan).best()


def shared_as_placed(plan: Plan) -> Plan:
    """The plan with the phases in which cores share it, where several are asked for."""
    cores = plan.options.cores
    return plan if cores == 1 else replace(plan, teamwork=teamwork(plan, cores))


@dataclass
class _Search:
    """`known`: an op, and how its tensors lie to each other -> how cores share it."""

    plan: Plan
    known: dict[tuple[int, ...], Sharing | None] = field(default_factory=dict)

    @cached_property
    def needs(self) -> Footprint:
        return footprint(self.plan.graph, self.plan.options)

    @cached_property
    def posed(self) -> Problem:
        return problem(self.needs, self.plan.schedule)

    @cached_property
    def step_of(self) -> dict[int, int]:
        return {step.op: number for number, step in enumerate(self.plan.schedule.steps)}

    @property
    def limit_bytes(self) -> int:
        unit = self.posed.unit_bytes
        return int(self.plan.arena_bytes * (1 + self.plan.options.cores_cost / 100)) // unit * unit

    def best(self) -> Plan:
        best = self.shared(self.plan)
        effort = Effort.named(self.plan.options.effort, self.plan.options.time_limit).for_whole_tensors.times(_EFFORT)
        overlaps, tries = dict(self.posed.overlaps), 0
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
        node, buffers = self.plan.graph.nodes[op], self.posed.buffers
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
            if len(near) > 1 or self.posed.pressure[self.step_of[op]] + added <= self.limit_bytes:
                yield found

    def _placed(self, overlaps: Mapping[tuple[int, int], int], effort: Effort) -> Plan | None:
        posed = replace(self.posed, overlaps=overlaps)
        placement = optimal(posed, effort, self.limit_bytes)
        if placement.arena_bytes > self.limit_bytes:
            return None
        offsets = with_rings(posed, placement.offsets)
        return self.shared(
            replace(
                self.plan,
                storage=stored(self.plan.graph, posed.buffers, offsets),
                scratch=scratch_of(posed.buffers, offsets),
                arena_bytes=placement.arena_bytes,
                buffers=posed.buffers,
                buffer_offsets=offsets,
            )
        )

    def shared(self, plan: Plan) -> Plan:
        """The plan with its phases. Those of an op depend only on how its tensors lie to each other."""
        found = (self._sharing(plan, op) for op in dict.fromkeys(_ops(plan)))
        sharings = tuple(sharing for sharing in found if sharing is not None)
        return replace(plan, teamwork=Teamwork(plan.options.cores, sharings))

    def _sharing(self, plan: Plan, op: int) -> Sharing | None:
        node = plan.graph.nodes[op]
        touched = (*(t.index for _, t in node.activations()), *node.op.outputs)
        places = [plan.offsets[t] for t in touched if t in plan.offsets]
        key = op, *(place - min(places) for place in places)
        if key not in self.known:
            self.known[key] = SharedOp(plan, node, plan.options.cores).best()
        return self.known[key]

    def _lost(self, plan: Plan, op: int) -> float:
        """Instructions that the op takes beyond an even share and one barrier."""
        node, cores = plan.graph.nodes[op], plan.options.cores
        return self._op_path(plan, op) - op_path(node, None, 1) / cores if plan.options.library.cuts(node) else 0.0

    def _op_path(self, plan: Plan, op: int) -> float:
        assert plan.teamwork is not None
        return op_path(plan.graph.nodes[op], plan.teamwork.of_op(op), plan.options.cores)

    def _path(self, plan: Plan) -> float:
        return sum(self._op_path(plan, op) for op in _ops(plan))


def _ops(plan: Plan) -> list[int]:
    """Those that move something, in the order in which they run."""
    return [step.op for step in running_steps(plan)]
