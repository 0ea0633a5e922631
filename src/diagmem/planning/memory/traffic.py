"""How many bytes a run reads and writes, tensor by tensor, and of weights op by op, counted from what kernels touch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from diagmem.kernels import Library
from diagmem.model.errors import PlanError
from diagmem.model.graph import Node, Tensor
from diagmem.model.pools import OpWeights, WeightsPool
from diagmem.model.schedule import PUSH, Schedule
from diagmem.ops.accesses import Runs
from diagmem.planning.needs.build_problem import Moment
from diagmem.planning.needs.footprint import Footprint, is_alias
from diagmem.planning.needs.problem import Buffer


@dataclass(frozen=True, slots=True)
class Group:
    """Buffers that must lie in one pool: the rows of a tensor, or a single one. `traffic_bytes`: what a run reads and
    writes there. `weights`: those that are copied there, or else read from flash."""

    members: tuple[int, ...]
    traffic_bytes: int
    weights: OpWeights | None = None

    @classmethod
    def of_copy(cls, buffer: int, weights: OpWeights) -> Group:
        """Written once, and read as often as the kernel does."""
        return cls((buffer,), weights.size_bytes + weights.read_bytes, weights)


def groups_of(needs: Footprint, schedule: Schedule, buffers: Sequence[Buffer]) -> tuple[Group, ...]:
    """What is to be put into pools.

    The caller writes each input and reads each output once. What a kernel holds beside its tensors is written and read
    once at each of its steps, for nothing is known of how often.
    """
    steps = Counter(schedule.ops)
    by_tensor = traffic_of_tensors(needs, schedule)
    members: dict[tuple[int, ...], list[int]] = {}
    for number, buffer in enumerate(buffers):
        members.setdefault(buffer.tensors or (PUSH, number), []).append(number)
    found = []
    for tensors, numbers in members.items():
        first = buffers[numbers[0]]
        if first.tensors:
            traffic = sum(by_tensor[t] for t in tensors)
        else:
            traffic = 2 * first.size_bytes * steps[PUSH if first.scratch_of is None else first.scratch_of]
        found.append(Group(tuple(numbers), traffic))
    return tuple(found)


def traffic_of_tensors(needs: Footprint, schedule: Schedule) -> Mapping[int, int]:
    """For each tensor the bytes that a run reads and writes of it, wherever it lies."""
    graph, found, steps = needs.graph, Counter[int](), Counter(schedule.ops)
    for index in (*graph.inputs, *graph.outputs):
        found[index] += graph.tensors[index].size_bytes
    by_turns = {step.op for step in schedule.steps if step.turn is not None}
    for node in graph.nodes:
        op = node.op.index
        share = Fraction(steps[op], needs.rows.ops[op].turns) if op in by_turns else Fraction(1)
        for tensor, size in _touched(node, needs.options.library, op in by_turns):
            found[tensor] += int(size * share)
    return found


def _touched(node: Node, library: Library, by_turns: bool) -> Iterator[tuple[int, int]]:
    """Tensors, and the bytes of them that one run of the op reads or writes. A reshape that stays where it is touches
    none; of an op whose loops nobody knows, each tensor is touched once."""
    if is_alias(node):
        return
    accesses = library.row_accesses(node) if by_turns else library.accesses(node)
    if accesses is None:
        yield from ((t.index, t.size_bytes) for t in (*(t for _, t in node.activations()), *node.outputs))
        return
    read = dict(node.activations())
    for position, runs in enumerate(accesses.reads):
        if runs is not None and position in read:
            yield read[position].index, _bytes(runs, read[position])
    for tensor, runs in zip(node.outputs, accesses.writes, strict=False):
        yield tensor.index, _bytes(runs, tensor)


def _bytes(runs: Runs, tensor: Tensor) -> int:
    return int((runs.length * runs.hold).sum()) * tensor.dtype.size_bytes


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


def check_copy_pool(needs: Footprint, asked: WeightsPool) -> None:
    """Raises PlanError where nothing can be copied."""
    if not needs.options.library.is_own:
        raise PlanError(f"weight copies need diagmem's own kernels: leave out weights_pool={asked.name}, or kernels")
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
