"""How several cores share a run: phases for each step of a plan, what they cost, and how much faster they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagmem.model.graph import Graph, Node
from diagmem.model.schedule import PUSH, Step
from diagmem.model.teamwork import Sharing, Teamwork
from diagmem.ops import kind_of
from diagmem.planning.plan import Plan
from diagmem.planning.shared_turns import SharedTurns
from diagmem.planning.sharing import BARRIER_INSTRUCTIONS, SharedOp, critical_path, estimated_work, stays


def teamwork(plan: Plan, cores: int) -> Teamwork:
    """How up to so many cores share the work of a plan."""
    found: list[Sharing] = []
    whole = {step.op for step in plan.schedule.steps if step.turn is None}
    for op in dict.fromkeys(step.op for step in running_steps(plan) if step.op != PUSH):
        node = plan.graph.nodes[op]
        if op in whole:
            best = SharedOp(plan, node, cores).best()
            found += [best] if best is not None else []
        else:
            found += SharedTurns(plan, node, cores).sharings()
    return Teamwork(cores, tuple(found))


def running_steps(plan: Plan) -> list[Step]:
    """The steps in their order, without those that move nothing."""
    steps, nodes = plan.schedule.steps, plan.graph.nodes
    return [step for step in steps if step.turn is not None or not stays(plan, nodes[step.op])]


def most_held_bytes(graph: Graph, shared: Teamwork | None) -> int:
    """The most that all cores hold back together in a phase: two of them half of it each."""
    found = 0
    for sharing in () if shared is None else shared.sharings:
        grains = -(-sharing.most_held // sharing.cut.grain)
        found = max(found, 2 * -(-grains // 2) * sharing.cut.grain * unit_bytes(graph, sharing))
    return found


def unit_bytes(graph: Graph, sharing: Sharing) -> int:
    """Of the output."""
    out = graph.nodes[sharing.op].output
    return (out.size_bytes if sharing.turns is None else out.row_bytes) // sharing.cut.units


def estimated_speedup(plan: Plan, shared: Teamwork, cores: int) -> float:
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


def speedup(shared: Teamwork, steps: Sequence[Step], works: Mapping[Step, float], cores: int) -> float:
    """From the instructions of each step on one core."""
    calls = max(1, sum(step.op == PUSH for step in steps))
    path = float(BARRIER_INSTRUCTIONS * calls)
    for step, waits in zip(steps, shared.barriers_after(steps), strict=True):
        sharing = shared.by_step.get(step)
        if sharing is None:
            path += works[step] + BARRIER_INSTRUCTIONS * waits
        else:
            path += critical_path(sharing, works[step], cores)
    alone = sum(works[step] for step in steps)
    return alone / path if path else 1.0
