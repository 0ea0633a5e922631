"""Several cores and rows: a step's row is shared, at no byte more, and all wait for each other behind it."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.backends.json import from_json, to_json
from diagmem.model.errors import PlanError
from diagmem.model.schedule import PUSH, Along, Cut, How, Multicore, Phases, Split, Step
from diagmem.planning.cores.multicore import estimated_speedup, multicore, running_steps
from diagmem.planning.plan import findings_of
from diagmem.planning.planner import Planned
from tests.networks import Net


@cache
def made(model: str, input_rows: bool, cores: int = 2) -> Planned:
    return pipeline.plan(f"zoo:{model}", schedule="rows", input_rows=input_rows, cores=cores)


@pytest.mark.parametrize("input_rows", [False, True])
@pytest.mark.parametrize("model", ["kws_dscnn_int8", "resnet8_int8"])
def test_cores_take_no_byte_more(model: str, input_rows: bool) -> None:
    """Than one that runs row by row, and are nearly twice as fast; four nearly four times."""
    plan = made(model, input_rows).plan
    assert plan.runs_by_rows
    assert plan.arena_bytes == pipeline.plan(f"zoo:{model}", schedule="rows", input_rows=input_rows).arena_bytes
    assert plan.multicore is not None
    assert findings_of(plan) == []
    assert estimated_speedup(plan, plan.multicore, 2) > 1.95
    assert estimated_speedup(plan, multicore(plan, 4), 4) > 3.5


def test_rows_are_shared_and_sums_are_not() -> None:
    """Every row that a convolution makes; what takes rows into sums, and the caller's rows, one core does alone."""
    plan = made("kws_dscnn_int8", True).plan
    assert plan.multicore is not None
    alone = {plan.graph.ops[step.op].kind if step.op != PUSH else "" for step in running_steps(plan)} - {
        plan.graph.ops[step.op].kind for step in plan.multicore.by_step
    }
    assert {"", "AVERAGE_POOL_2D"} <= alone
    assert not {"CONV_2D", "DEPTHWISE_CONV_2D"} & alone


def test_a_row_that_lies_on_what_it_is_made_of_is_made_in_phases() -> None:
    """Others in one, so that an op has turns of several sorts."""
    shared = made("resnet8_int8", False).plan.multicore
    assert shared is not None
    by_op: dict[int, list[Split]] = {}
    for split in shared.splits:
        by_op.setdefault(split.op, []).append(split)
    assert any(len(splits) > 1 for splits in by_op.values())
    assert any(split.barriers > 1 for split in shared.splits)
    assert all(split.turns is None or [*split.turns] == sorted({*split.turns}) for split in shared.splits)


def test_barriers_are_counted() -> None:
    """One before the first step, or before each row of the caller's, and one when it is taken; one after each phase;
    none between steps that one core does alone."""
    cut = Cut(Along.PIXELS, 8)
    shared = Multicore(2, (Split(0, cut, (Phases(8, 4, How.SHARED),), (0, 1)),))
    rows = [Step(0, 0), Step(0, 1), Step(1, 0), Step(1, 1)]
    assert shared.barriers(rows) == 1 + 2 + 2 + 1
    streamed = [Step(PUSH, 0), *rows[:1], Step(PUSH, 1), *rows[1:]]
    assert shared.barriers(streamed) == 2 + 2 + 2 + 2 + 1


@pytest.mark.parametrize("input_rows", [False, True])
def test_turns_are_written_and_read_again(input_rows: bool) -> None:
    """As stretches; and what makes no sense is refused."""
    planned = made("resnet8_int8", input_rows)
    text = json.loads(json.dumps(to_json(planned)))
    assert from_json(text, planned.model).multicore == planned.plan.multicore
    first = next(row for row in text["cores"]["phases"] if "turns" in row)
    damages: list[dict[str, Any]] = [
        {"turns": turns} for turns in ([3], [[4, 2]], [[-1, 2]], [[0, 1 << 50]], [["", 2]])
    ]
    for damage in (*damages, {"units": 7}, {"op": 99}):
        damaged = {**text, "cores": {**text["cores"], "phases": [{**first, **damage}]}}
        with pytest.raises(PlanError):
            from_json(damaged, planned.model)


def test_rows_that_are_recomputed_are_shared_each_time() -> None:
    net = Net()
    x = net.input(1, 30, 8, 8)
    for _ in range(2):
        x = net.conv(net.depthwise(net.conv(x, 64, kernel=1)), 8, kernel=1)
    graph = net.graph(net.mean(x))
    plan = pipeline.plan(graph, schedule="rows", allocator="greedy", input_rows=True, recompute=2.0, cores=2).plan
    assert plan.multicore is not None
    again = [step for step, times in Counter(running_steps(plan)).items() if times > 1]
    assert again
    assert {*again} <= {*plan.multicore.by_step}
