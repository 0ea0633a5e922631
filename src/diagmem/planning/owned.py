"""What the firmware owns: tensors that it holds itself, and values that it wants to find after a run.

A tensor that the firmware holds is an address space of its own: it becomes a pool whose memory the caller gives, and
everything that knows pools knows it. A value that is to be found after the run is an output of the model.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace

from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph, Tensor
from diagmem.planning.footprint import lines_of_reshapes
from diagmem.planning.plan import Plan
from diagmem.planning.pools import WIDEST, Pool, PoolUse
from diagmem.planning.problem import BEFORE_RUN, Buffer
from diagmem.planning.storage import Storage

ARENA = "arena"
"""What the arena is called as a pool, beside those of the caller."""


def with_kept(model: Graph, names: Sequence[str]) -> Graph:
    """The model with more outputs: the values of these tensors survive the run, and have an accessor in C."""
    kept = (tensor_named(model, name).index for name in names)
    outputs = tuple(dict.fromkeys((*model.outputs, *kept)))
    return model if outputs == model.outputs else replace(model, outputs=outputs)


def tensor_named(graph: Graph, name: str) -> Tensor:
    """The tensor of that name that lies in RAM; PlanError names those that are spelled alike."""
    held = [tensor for tensor in graph.tensors if not tensor.is_constant and tensor.view is None]
    found = [tensor for tensor in held if tensor.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise PlanError(f"{len(found)} tensors are called '{one_line(name, 60)}': this cannot say which")
    near = difflib.get_close_matches(name, [tensor.name for tensor in held], n=3, cutoff=0.5)
    names = near or [tensor.name for tensor in held[:3]]
    hint = " or ".join(f"'{one_line(known, 60)}'" for known in names)
    raise PlanError(f"no tensor in RAM is called '{one_line(name, 60)}'; did you mean {hint}?")


def check_external(graph: Graph, names: Sequence[str]) -> None:
    """Only what comes from the caller, or goes there, can lie with it."""
    for name in names:
        if tensor_named(graph, name).index not in (*graph.inputs, *graph.outputs):
            raise PlanError(f"'{one_line(name, 60)}' is no input or output of the model: it cannot lie with the caller")


def with_owned(plan: Plan) -> Plan:
    """The plan with a pool for each tensor that the caller holds."""
    _, lines = lines_of_reshapes(plan.graph, plan.options)
    uses = list(plan.pools.uses) or [PoolUse(Pool(ARENA, max(1, plan.arena_bytes), 1.0), 0, plan.arena_bytes)]
    storage, taken = dict(plan.storage), {use.pool.name.lower() for use in uses}
    buffers, offsets, after_run = list(plan.buffers), list(plan.buffer_offsets), len(plan.schedule.steps) + 1
    for line in lines:
        owner = plan.graph.tensors[line[0]]
        start = -(-uses[-1].end // WIDEST) * WIDEST
        pool = Pool(_pool_name(owner, taken), owner.size_bytes, uses[-1].pool.cost, is_external=True)
        uses.append(PoolUse(pool, start, owner.size_bytes))
        buffers.append(Buffer(owner.label, owner.size_bytes, BEFORE_RUN, after_run, tensors=line))
        offsets.append(start)
        for index in line:
            tensor = plan.graph.tensors[index]
            if tensor.view is None:
                storage[index] = Storage.linear(start, tensor.rows, tensor.row_bytes)
    _check_owned(plan, {t for line in lines for t in line})
    layout = replace(plan.pools, uses=tuple(uses), single_bytes=plan.pools.single_bytes or plan.arena_bytes)
    placed = replace(plan, storage=dict(sorted(storage.items())), pools=layout)
    return replace(placed, buffers=tuple(buffers), buffer_offsets=tuple(offsets))


def _check_owned(plan: Plan, owned: set[int]) -> None:
    for tensor in plan.graph.tensors:
        if tensor.name in plan.options.external and tensor.index not in owned:
            raise PlanError(
                f"'{tensor.label}' has become part of another tensor, and cannot lie with the caller alone: plan again "
                "with --no-remove-concat --no-remove-slices"
            )


def _pool_name(tensor: Tensor, taken: set[str]) -> str:
    """The tensor's, as far as C can have it, and no other pool's."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", tensor.name).strip("_")[:24]
    base = plain if plain[:1].isalpha() else f"tensor_{plain}".rstrip("_")
    name = next(n for n in (base, *(f"{base}_{k}" for k in range(1, 1000))) if n.lower() not in taken)
    taken.add(name.lower())
    return name
