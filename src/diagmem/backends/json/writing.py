"""Writes a plan as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagmem.model.graph import View
from diagmem.model.schedule import PUSH
from diagmem.planning.needs.problem import Buffer
from diagmem.planning.plan import Plan
from diagmem.planning.planner import Planned
from diagmem.transforms import Removal

SCHEMA_VERSION = 1


def to_json(made: Planned) -> dict[str, Any]:
    """All of it as plain values, the same for the same input and options. Steps are counted from 0, ops as in the
    model's file; `last_step` is the last one at which the tensor is needed. A tensor with a `view` lies inside its
    base; one with `state` lives from run to run. Row by row, `rows` says which turn of its op each step is (None: all
    of it), op -1 stands for a row that the caller hands over, `storage` tells how the rows of tensors lie, and
    `tensors` lists rows."""
    plan, options = made.plan, made.plan.options
    return {
        "schema_version": SCHEMA_VERSION,
        "model": plan.graph.name,
        "kernels": options.kernels,
        "align_bytes": options.align_bytes,
        "keep_inputs": options.keep_inputs,
        "external_io": options.external_io,
        "overlap": options.overlap,
        **({"keep": list(options.keep)} if options.keep else {}),
        **_double_buffer_json(plan),
        **({"input_align_bytes": options.input_align} if options.input_align else {}),
        "arena_bytes": plan.arena_bytes,
        **({"state_bytes": plan.state_bytes} if plan.graph.variables else {}),
        "baseline_bytes": made.baseline_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "lower_bound_over": "all orders" if plan.is_over_all_orders else "this order",
        "optimal": plan.optimal,
        "scheduler": plan.schedule.name,
        "allocator": options.allocator,
        "effort": _effort_json(plan),
        "peak_op": None if plan.peak_op is None else _number(plan, plan.peak_op),
        "peak_step": plan.peak_step,
        "schedule": [_number(plan, op) for op in plan.schedule.ops],
        **(_rows_json(plan) if plan.runs_by_rows else {}),
        **_cores_json(plan),
        "pressure": list(plan.pressure),
        "tensors": tensors_json(plan),
        "scratch": [
            {"op": _number(plan, buffer.scratch_of), **_place_in_pool(plan, offset), "bytes": buffer.size_bytes}
            for buffer, offset in zip(plan.buffers, plan.buffer_offsets, strict=True)
            if buffer.scratch_of is not None
        ],
        "overlaps": overlaps_json(plan),
        "removed": [
            {
                "transform": removal.transform,
                "ops": list(removal.ops),
                "bytes_changed": removal.bytes_changed,
                "macs_changed": removal.macs_changed,
                **_channels_json(removal),
            }
            for removal in made.removals
        ],
        "ladder": list(_ladder_json(made)),
        **_pools_json(plan),
        **_weights_json(plan),
    }


def _double_buffer_json(plan: Plan) -> dict[str, Any]:
    """Inputs with a place for their next frame, and what that costs."""
    if not plan.options.double_buffer:
        return {}
    return {"double_buffer": list(plan.options.double_buffer), "double_buffer_bytes": plan.next_frames_bytes}


def _pools_json(plan: Plan) -> dict[str, Any]:
    """What lies in which memory, where there are several; offsets are then those in a pool."""
    pools = plan.pools
    if not pools:
        return {}
    return {
        "pools": [
            {
                "name": use.pool.name,
                "capacity_bytes": use.pool.capacity_bytes,
                "cost": use.pool.cost,
                "used_bytes": use.used_bytes,
                "traffic_bytes": use.traffic_bytes,
                **({"external": True} if use.pool.is_external else {}),
            }
            for use in pools.uses
        ],
        "traffic": {
            "cost": round(pools.cost, 3),
            "lower_bound": round(pools.lower_bound, 3),
            "optimal": pools.is_optimal,
        },
        "single_pool_bytes": pools.single_bytes,
        "missing_bytes": pools.missing_bytes,
    }


def _weights_json(plan: Plan) -> dict[str, Any]:
    """The copies of weights, and what they are worth, where that was asked for."""
    found, buffers = plan.weights, {buffer.weights_of: buffer for buffer in plan.buffers}
    if found is None:
        return {}
    ops = {weights.op: weights for weights in found.ops}
    return {
        "weights": [
            {
                "op": _number(plan, op),
                **_place_in_pool(plan, address),
                "bytes": ops[op].size_bytes,
                "read_bytes": ops[op].read_bytes,
                "first_step": buffers[op].first_step,
                "last_step": buffers[op].end_step - 1,
            }
            for op, address in plan.weight_copies.items()
        ],
        "weights_traffic": {
            "pool": found.pool,
            "flash_cost": found.flash_cost,
            **({"ahead": True} if plan.copies_ahead else {}),
            "copied_bytes": sum(ops[op].size_bytes for op in plan.weight_copies),
            "flash_bytes": plan.pools.flash_bytes,
            "read_bytes": found.read_bytes,
            "cost_without": round(found.plain_cost, 3),
        },
    }


def _place_in_pool(plan: Plan, address: int) -> dict[str, Any]:
    use = plan.pools.at(address)
    return {"offset": address} if use is None else {"offset": address - use.start, "pool": use.pool.name}


def _channels_json(removal: Removal) -> dict[str, int]:
    """Where a transform has made tensors narrower."""
    if not removal.channels:
        return {}
    return {"channels": removal.channels, "weights_changed": removal.weights_changed}


def _effort_json(plan: Plan) -> dict[str, Any]:
    """How hard it was looked for, and whether it might have been found smaller with more."""
    return {
        "level": plan.options.effort,
        "time_limit_seconds": plan.options.time_limit,
        "is_bounded": plan.is_bounded,
        "gap_bytes": plan.gap.bytes,
    }


def tensors_json(plan: Plan) -> list[dict[str, Any]]:
    return [_place_json(plan, *placed) for placed in plan.places]


def overlaps_json(plan: Plan) -> list[dict[str, Any]]:
    return [
        {"op": _number(plan, o.op), "input": o.input, "output": o.output, "bytes": o.size_bytes} for o in plan.overlaps
    ]


def _ladder_json(made: Planned) -> Any:
    """What each step is worth, of the first one's bytes."""
    for rung in made.ladder:
        saved = 100 * (1 - rung.arena_bytes / made.baseline_bytes) if made.baseline_bytes else 0.0
        yield {"step": rung.step, "arena_bytes": rung.arena_bytes, "saved_percent": round(saved, 2)}


def _rows_json(plan: Plan) -> dict[str, Any]:
    return {
        "rows": [step.turn for step in plan.schedule.steps],
        "input_rows": plan.input_rows,
        "recompute": plan.recompute,
        "storage": {str(tensor): storage.form for tensor, storage in plan.storage.items()},
    }


def _cores_json(plan: Plan) -> dict[str, Any]:
    """How several cores share the run, where that was asked for."""
    shared = plan.multicore
    if shared is None:
        return {}
    from diagmem.planning.cores.multicore import estimated_speedup, most_held_bytes, running_steps

    phases = [
        {
            "op": _number(plan, split.op),
            **({} if split.turns is None else {"turns": _stretches(split.turns)}),
            "along": split.cut.along.value,
            "units": split.cut.units,
            "phases": [{"end": p.end, "step": p.step, "how": p.how.value} for p in split.phases],
        }
        for split in shared.splits
    ]
    found = {
        "most": shared.cores,
        "barriers": shared.barriers(running_steps(plan)),
        "held_bytes": most_held_bytes(plan.graph, shared) // 2,
        "speedup": round(estimated_speedup(plan, shared, shared.cores), 3),
        "phases": phases,
    }
    return {"cores": found}


def _stretches(turns: Sequence[int]) -> list[list[int]]:
    """Ascending numbers as stretches [first, end)."""
    found: list[list[int]] = []
    for turn in turns:
        if found and found[-1][1] == turn:
            found[-1][1] += 1
        else:
            found.append([turn, turn + 1])
    return found


def _number(plan: Plan, op: int) -> int:
    """An op's index in the model's file."""
    return op if op == PUSH else plan.graph.ops[op].number


def _place_json(plan: Plan, buffer: Buffer, offset: int) -> dict[str, Any]:
    tensor = plan.graph.tensors[buffer.tensors[0]]
    return {
        "name": tensor.name,
        "index": tensor.index,
        **_place_in_pool(plan, offset),
        "bytes": buffer.size_bytes,
        "first_step": buffer.first_step,
        "last_step": buffer.end_step - 1,
        **({"state": True} if tensor.is_variable else {}),
        **({} if buffer.rows is None else {"rows": [buffer.rows.start, buffer.rows.stop]}),
        **({} if tensor.view is None else {"view": _view_json(tensor.view)}),
    }


def _view_json(view: View) -> dict[str, Any]:
    return {"base": view.base, "offset_elems": view.offset_elems, "strides": list(view.strides)}
