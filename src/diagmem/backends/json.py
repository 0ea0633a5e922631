"""Plans as JSON: the one place that writes them, reads them back, and knows their schema (plan.schema.json).

Whoever wrote what is read is not trusted: every value is looked at before it is used, and whether the plan is safe is
for the validator to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from diagmem.kernels import library
from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph, Tensor
from diagmem.model.pools import Pool, PoolLayout
from diagmem.model.schedule import PUSH, How, Multicore, Phases, Schedule, Split, Step
from diagmem.planning.needs.problem import Buffer
from diagmem.planning.options import Options
from diagmem.planning.plan import Plan, Storage
from diagmem.planning.planner import Planned
from diagmem.transforms import TRANSFORMS, Removal, transformed_again
from diagmem.transforms.asked import as_asked

SCHEMA_VERSION = 1

LARGEST = 1 << 40
"""No offset or size that anybody means is larger."""

MOST_STEPS = 1 << 20
LARGEST_TEXT_BYTES = 1 << 28
OTHER_MODEL = "is it another model's?"


def schema_text() -> str:
    """The JSON Schema of a plan."""
    return files("diagmem.backends").joinpath("plan.schema.json").read_text(encoding="utf-8")


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
        **({"target": options.target} if options.target else {}),
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
        **({"not_streamed": made.not_streamed} if made.not_streamed else {}),
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
    view = tensor.view
    return {
        "name": tensor.name,
        "index": tensor.index,
        **_place_in_pool(plan, offset),
        "bytes": buffer.size_bytes,
        "first_step": buffer.first_step,
        "last_step": buffer.end_step - 1,
        **({"state": True} if tensor.is_variable else {}),
        **({} if buffer.rows is None else {"rows": [buffer.rows.start, buffer.rows.stop]}),
        **(
            {"view": {"base": view.base, "offset_elems": view.offset_elems, "strides": [*view.strides]}} if view else {}
        ),
    }


def from_text(text: str | bytes, model: Graph) -> Plan:
    """The plan of `model` in what `diagmem plan --json` wrote."""
    if len(text) > LARGEST_TEXT_BYTES:
        raise PlanError(f"a plan of {len(text)} characters is too large; {LARGEST_TEXT_BYTES} can be read")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError, UnicodeDecodeError) as error:
        raise PlanError("not JSON; write a plan with `diagmem plan --json`") from error
    return from_json(value, model)


def from_json(value: Any, model: Graph) -> Plan:
    """The plan of `model` from plain values; PlanError says what is wrong with them, or that they are not its plan."""
    found = _Fields(value, "the plan")
    if found.get("plans") is not None:
        found = _one_of(found.rows("plans"), model)
    version = found.integer("schema_version", 0, default=SCHEMA_VERSION)
    if version > SCHEMA_VERSION:
        raise PlanError(f"the plan has version {version} of the format, and {SCHEMA_VERSION} is known: update diagmem")
    try:
        return _plan(found, model)
    except PlanError as error:
        named = found.get("model")
        if isinstance(named, str) and named != model.name:
            message = f"the plan is one of '{one_line(named)}', and the model is '{one_line(model.name)}': {error}"
            raise PlanError(message) from error
        raise


def _one_of(plans: list[_Fields], model: Graph) -> _Fields:
    """The plan of the model in a file that holds several, as `diagmem plan` writes it for several models."""
    own = [plan for plan in plans if plan.get("model") == model.name] if len(plans) > 1 else plans
    if len(own) == 1:
        return _Fields(own[0].value, "the plan")
    held = ", ".join(f"'{one_line(str(plan.get('model')), 40)}'" for plan in plans[:4])
    raise PlanError(
        f"the file holds {len(plans)} plans ({held}), and {len(own)} of them are of a model called "
        f"'{one_line(model.name, 40)}': plan it by itself"
    )


def _plan(found: _Fields, model: Graph) -> Plan:
    options = _options(found)
    model = as_asked(model, options.keep, options.double_buffer, options.apart)
    removed = [_removal(row) for row in found.rows("removed", default=[])]
    graph = transformed_again(model, removed, options.library.channel_block)
    schedule = _schedule(found, graph)
    pools = _pools(found, options)
    return Plan(
        graph,
        replace(options, pools=tuple(use.pool for use in pools.uses)),
        schedule,
        _storage(found, graph, pools),
        _by_op(found, "scratch", graph, pools),
        found.integer("arena_bytes", 0),
        found.integer("lower_bound_bytes", 0, default=0),
        found.get("lower_bound_over") == "all orders",
        found.number("recompute", 1.0),
        pools=pools,
        multicore=_multicore(found, graph, options),
        weight_copies=_by_op(found, "weights", graph, pools),
        copies_ahead=_Fields(found.value.get("weights_traffic", {}), "'weights_traffic'").boolean("ahead"),
    )


def _multicore(found: _Fields, graph: Graph, options: Options) -> Multicore | None:
    if found.get("cores") is None:
        return None
    rows = _Fields(found.get("cores"), "'cores'").rows("phases")
    return Multicore(options.cores, tuple(_split(row, graph, options) for row in rows))


def _split(row: _Fields, graph: Graph, options: Options) -> Split:
    number, along, index_of = row.integer("op", 0), row.text("along"), _index_of(graph)
    if number not in index_of:
        raise PlanError(f"the plan splits op {number}, which the model does not have; {OTHER_MODEL}")
    node, turns = graph.nodes[index_of[number]], _turns(row)
    cuts = options.library.cuts(node) if turns is None else options.library.row_cuts(node)
    cut = next((cut for cut in cuts if cut.along.value == along), None)
    if cut is None or cut.units != row.integer("units", 1):
        raise PlanError(f"the plan splits op {number} along {one_line(along)}, which its kernel cannot do")
    phases = tuple(
        Phases(phase.integer("end", 1), phase.integer("step", 1), _how(phase)) for phase in row.rows("phases")
    )
    return Split(node.op.index, cut, phases, turns)


def _turns(row: _Fields) -> tuple[int, ...] | None:
    """The turns of an op that are shared; None where it runs whole."""
    if row.get("turns") is None:
        return None
    found: list[int] = []
    for stretch in row.values("turns"):
        is_pair = isinstance(stretch, list) and len(stretch) == 2 and all(type(at) is int for at in stretch)
        if not is_pair or not 0 <= stretch[0] < stretch[1] <= MOST_STEPS:
            raise PlanError(f"{row.what}: 'turns' must be pairs [first, end)")
        found += range(*stretch)
    return tuple(found)


def _how(phase: _Fields) -> How:
    found = next((how for how in How if how.value == phase.text("how")), None)
    if found is None:
        raise PlanError(f"{phase.what}: 'how' must be one of {', '.join(how.value for how in How)}")
    return found


def _pools(found: _Fields, options: Options) -> PoolLayout:
    """The memories of a plan for several. What is said of traffic is for people: nothing here relies on it."""
    rows = found.rows("pools", default=[])
    pools = [
        Pool(r.text("name"), r.integer("capacity_bytes", 1), r.number("cost", 1.0), r.boolean("external")) for r in rows
    ]
    used = [row.integer("used_bytes", 0) for row in rows]
    traffic = [row.integer("traffic_bytes", 0, default=0) for row in rows]
    own = sum(size for pool, size in zip(pools, used, strict=True) if not pool.is_external)
    if rows and own != found.integer("arena_bytes", 0):
        raise PlanError(f"the plan's pools take {own} bytes, and its arena {found.integer('arena_bytes', 0)}")
    single_bytes = found.integer("single_pool_bytes", 0, default=0) if rows else 0
    return replace(PoolLayout.of(pools, used, traffic, options.pool_align_bytes), single_bytes=single_bytes)


def _address(row: _Fields, pools: PoolLayout) -> int:
    """Where an entry lies: an offset in the arena, or in one of several pools."""
    offset = row.integer("offset")
    if not pools:
        return offset
    name, names = row.text("pool"), [use.pool.name for use in pools.uses]
    if name not in names:
        raise PlanError(f"{row.what} is in pool '{one_line(name, 40)}', which the plan does not have")
    return pools.address(names.index(name), offset)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The values of a JSON object, each looked at before it is handed out. `what`: how messages name the object."""

    value: Any
    what: str

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            raise PlanError(f"{self.what} is not an object; write a plan with `diagmem plan --json`")

    def get(self, key: str) -> Any:
        return self.value.get(key)

    def _of_type(self, key: str, kind: type, name: str, default: Any) -> Any:
        found = self.value.get(key, default)
        if found is None or not isinstance(found, kind) or (kind is not bool and isinstance(found, bool)):
            problem = "has none" if key not in self.value else f"has {one_line(json.dumps(found), 40)}"
            raise PlanError(f"{self.what} {problem} for '{key}', which must be {name}")
        return found

    def integer(self, key: str, least: int = -LARGEST, default: int | None = None) -> int:
        found: int = self._of_type(key, int, "a whole number", default)
        if not least <= found <= LARGEST:
            raise PlanError(f"{self.what} has a number for '{key}' that is not between {least} and {LARGEST}")
        return found

    def number(self, key: str, default: float) -> float:
        found = self.value.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 1 <= found <= LARGEST:
            raise PlanError(f"{self.what} has {one_line(json.dumps(found), 40)} for '{key}', which must be 1 or more")
        return float(found)

    def boolean(self, key: str) -> bool:
        return bool(self._of_type(key, bool, "true or false", False))

    def text(self, key: str) -> str:
        return str(self._of_type(key, str, "a text", None))

    def values(self, key: str, default: list[Any] | None = None) -> list[Any]:
        found: list[Any] = self._of_type(key, list, "a list", default)
        if len(found) > MOST_STEPS:
            raise PlanError(f"{self.what} has {len(found)} values in '{key}', and {MOST_STEPS} can be read")
        return found

    def rows(self, key: str, default: list[Any] | None = None) -> list[_Fields]:
        return [_Fields(row, f"entry {n} of '{key}'") for n, row in enumerate(self.values(key, default))]

    def integers(self, key: str) -> list[int]:
        found = self.values(key)
        if any(isinstance(v, bool) or not isinstance(v, int) or not -LARGEST <= v <= LARGEST for v in found):
            raise PlanError(f"{self.what}: '{key}' must hold whole numbers only")
        return found


def _removal(row: _Fields) -> tuple[str, list[int]]:
    name = row.text("transform")
    if name not in TRANSFORMS:
        raise PlanError(f"transform '{one_line(name)}' is not known; known: {', '.join(TRANSFORMS)}")
    return name, row.integers("ops")


def _options(found: _Fields) -> Options:
    options = Options(
        target="" if found.get("target") is None else found.text("target"),
        buffers=[
            f"{name}={how}"
            for how, key in (("keep", "keep"), ("double", "double_buffer"))
            for name in _names(found, key)
        ],
        input_align=found.integer("input_align_bytes", 1, default=1) if found.get("input_align_bytes") else None,
        kernels=found.text("kernels"),
        align=found.integer("align_bytes", 1, default=1),
        keep_inputs=found.boolean("keep_inputs"),
        external_io=found.boolean("external_io"),
        cores=1 if found.get("cores") is None else _Fields(found.get("cores"), "'cores'").integer("most", 2),
    )
    library(options.kernels)
    return options


def _names(found: _Fields, key: str) -> tuple[str, ...]:
    names = found.values(key, default=[])
    if not all(isinstance(name, str) for name in names):
        raise PlanError(f"the plan's '{key}' must hold names only")
    return tuple(names)


def _schedule(found: _Fields, graph: Graph) -> Schedule:
    index_of = _index_of(graph)
    numbers = found.integers("schedule")
    turns = found.values("rows", default=[None] * len(numbers))
    if len(turns) != len(numbers):
        raise PlanError(f"the plan has {len(numbers)} steps in 'schedule' and {len(turns)} in 'rows'")
    steps = []
    for number, turn in zip(numbers, turns, strict=True):
        is_turn = turn is None or (isinstance(turn, int) and not isinstance(turn, bool) and 0 <= turn <= LARGEST)
        if not is_turn or (number == PUSH and turn is None):
            raise PlanError(f"the plan has {one_line(json.dumps(turn), 40)} in 'rows', which must be rows or null")
        if number not in index_of:
            raise PlanError(f"the plan runs op {number}, which the model does not have; {OTHER_MODEL}")
        steps.append(Step(index_of[number], turn))
    return Schedule(tuple(steps), "given")


def _index_of(graph: Graph) -> dict[int, int]:
    """From numbers in the model's file to indices."""
    return {PUSH: PUSH, **{op.number: op.index for op in graph.ops}}


def _by_op(found: _Fields, key: str, graph: Graph, pools: PoolLayout) -> dict[int, int]:
    """Op -> where something of its own lies: scratch, or a copy of its weights."""
    index_of, places = _index_of(graph), {}
    for row in found.rows(key, default=[]):
        number = row.integer("op")
        if number not in index_of:
            raise PlanError(f"the plan has {key} for op {number}, which the model does not have; {OTHER_MODEL}")
        if index_of[number] in places:
            raise PlanError(f"the plan has {key} for op {number} twice")
        places[index_of[number]] = _address(row, pools)
    return places


def _storage(found: _Fields, graph: Graph, pools: PoolLayout) -> dict[int, Storage]:
    whole: dict[int, int] = {}
    tables: dict[int, dict[int, int]] = {}
    for row in found.rows("tensors"):
        tensor = _tensor(row, graph)
        is_whole = row.get("rows") is None
        is_placed = tensor.index in (tables if is_whole else whole)
        taken = whole if is_whole else tables.setdefault(tensor.index, {})
        key = tensor.index if is_whole else _row(row, tensor)
        if is_placed or key in taken:
            raise PlanError(f"the plan has two places for tensor {tensor.index} '{tensor.label}'")
        taken[key] = _address(row, pools)
    _check_views(whole, graph)
    kept = {t: _linear(graph.tensors[t], at) for t, at in whole.items() if graph.tensors[t].view is None}
    forms = found.get("storage")
    for index, table in tables.items():
        kept[index] = _table(graph.tensors[index], table, forms if isinstance(forms, dict) else {})
    return dict(sorted(kept.items()))


def _tensor(row: _Fields, graph: Graph) -> Tensor:
    """The tensor that an entry is about, if it is one of the model's."""
    index = row.integer("index", 0)
    if index >= len(graph.tensors):
        raise PlanError(f"the plan has tensor {index}, which the model does not have; {OTHER_MODEL}")
    tensor = graph.tensors[index]
    rows = 1 if row.get("rows") is not None else tensor.rows
    size_bytes = row.integer("bytes", 0, default=tensor.row_bytes * rows)
    is_it = row.value.get("name", tensor.name) == tensor.name and not tensor.is_constant
    if not is_it or size_bytes != tensor.size_bytes // tensor.rows * rows:
        name = one_line(str(row.value.get("name")), 40)
        other = f"the plan's tensor {index} '{name}' of {size_bytes} bytes is not the model's '{tensor.label}'"
        raise PlanError(f"{other}; {OTHER_MODEL}")
    return tensor


def _row(row: _Fields, tensor: Tensor) -> int:
    found = row.integers("rows")
    if len(found) != 2 or not 0 <= found[0] < tensor.rows or found[1] != found[0] + 1:
        raise PlanError(f"tensor {tensor.index} '{tensor.label}' has {tensor.rows} rows; the plan has {found[:3]}")
    return found[0]


def _linear(tensor: Tensor, offset: int) -> Storage:
    return Storage.linear(offset, tensor.rows, tensor.row_bytes)


def _table(tensor: Tensor, table: Mapping[int, int], forms: Mapping[str, Any]) -> Storage:
    """Rows one by one; in a ring, or one behind the other, where that is how they lie and what the plan says."""
    missing = next((row for row in range(tensor.rows) if row not in table), None)
    if missing is not None:
        raise PlanError(f"the plan has no place for row {missing} of tensor {tensor.index} '{tensor.label}'")
    offsets: Sequence[int] = [table[row] for row in range(tensor.rows)]
    form = forms.get(str(tensor.index), "table")
    found = Storage.of(offsets)
    if form == "table":
        return Storage(tensor.rows, 0, 1, 0, tuple(offsets))
    if form != found.form:
        name = one_line(json.dumps(form), 40)
        raise PlanError(
            f"tensor {tensor.index} '{tensor.label}': the plan says {name}, but its rows are not laid out like that"
        )
    return found


def _check_views(whole: Mapping[int, int], graph: Graph) -> None:
    """A tensor that is part of another one lies where that one has it."""
    for index, offset in whole.items():
        tensor = graph.tensors[index]
        if tensor.view is not None and whole.get(tensor.base, -1) + tensor.offset_bytes != offset:
            raise PlanError(f"tensor {index} '{tensor.label}' is part of another one, but does not lie in it")
