"""What a run reads of weights, op by op, and the buffers that copies of them would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from diagmem.model.errors import PlanError
from diagmem.model.schedule import Schedule
from diagmem.planning.footprint import Footprint
from diagmem.planning.pools import WeightsPool
from diagmem.planning.posing import Moment
from diagmem.planning.problem import Buffer
from diagmem.planning.staging import OpWeights


def weights_of(needs: Footprint, schedule: Schedule) -> tuple[OpWeights, ...]:
    """Of all ops that have some, in the order of the graph. By turns a kernel goes over them again at each."""
    library, steps = needs.options.library, Counter(schedule.ops)
    by_turns = {step.op for step in schedule.steps if step.turn is not None}
    found = []
    for node in needs.graph.nodes:
        op = node.op.index
        held = library.weight_copies(node, op in by_turns)
        if held is None:
            continue
        share = Fraction(steps[op], needs.rows.ops[op].turns) if op in by_turns else Fraction(1)
        align = max(held.align_bytes, needs.unit_bytes)
        found.append(OpWeights(op, held.size_bytes, align, int(held.size_bytes * held.passes * share)))
    return tuple(found)


def check_staging(needs: Footprint, asked: WeightsPool) -> None:
    """Raises PlanError where nothing can be copied."""
    if not needs.options.library.is_own:
        raise PlanError(
            f"weights are copied to '{asked.name}' before our own kernels run, and not before those of others"
        )
    if any(t is not None and t.is_constant and t.data is None for node in needs.graph.nodes for t in node.inputs):
        raise PlanError("the model does not hold the values of its weights, so it is not known how kernels store them")


def copies(needs: Footprint, schedule: Schedule, weights: Sequence[OpWeights]) -> tuple[Buffer, ...]:
    """A buffer for each, from the step at which it is copied to the last one of the op."""
    last = {step.op: at for at, step in enumerate(schedule.steps)}
    first = schedule.begins(needs.options.weights_ahead)
    return tuple(
        Buffer(
            f"weights of {needs.graph.nodes[w.op].label}",
            w.size_bytes,
            first[w.op],
            last[w.op] + 1,
            w.align_bytes,
            weights_of=w.op,
        )
        for w in weights
    )


def with_copies(moments: Sequence[Moment], buffers: Sequence[Buffer], number: int, unit_bytes: int) -> list[Moment]:
    """What lives at each moment, with copies of weights, whose buffers are counted from `number` on."""
    found = [Moment(dict(moment.live), moment.shared) for moment in moments]
    for index, buffer in enumerate(buffers, number):
        for at in range(buffer.first_step + 1, buffer.end_step + 1):
            found[at].live[index] = -(-buffer.size_bytes // unit_bytes) * unit_bytes
    return found
