"""Dense layers over images, and windows as tall as them, take rows into sums as they come, where that pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from diagmem import pipeline
from diagmem.model.graph import DType, Graph
from diagmem.planning.options import Options
from diagmem.planning.plan import Plan, findings_of
from diagmem.planning.planner import planned
from tests.row_networks import digits, eegnet, flat_net


def by_turns(plan: Plan) -> set[str]:
    """The kinds of the ops that run row by row."""
    return {plan.graph.ops[step.op].kind for step in plan.schedule.steps if step.turn is not None and step.op >= 0}


@pytest.mark.parametrize(
    ("net", "kind", "largest"),
    [(digits, "FULLY_CONNECTED", (1_352, 756)), (eegnet, "DEPTHWISE_CONV_2D", (5_632, 5_644))],
)
def test_rows_are_taken_into_sums(net: Callable[[DType], Graph], kind: str, largest: tuple[int, int]) -> None:
    """A fraction of what the image takes, with the input in the arena and with it handed over row by row."""
    for input_rows, most in zip((False, True), largest, strict=True):
        plan = pipeline.plan(net(DType.INT8), schedule="rows", input_rows=input_rows).plan
        assert plan.arena_bytes <= most
        assert kind in by_turns(plan)


@pytest.mark.parametrize("input_rows", [False, True])
def test_sums_that_take_more_than_the_image_are_not(input_rows: bool) -> None:
    """600 sums of 4 bytes beside 2,028 bytes of an image: the layer runs whole, in a plan as small as without the
    transform, which the validator passes."""
    graph = digits(DType.INT8, units=600)
    made, before = (
        planned(graph, Options(schedule="rows", input_rows=input_rows, skip=s)) for s in ((), ("drop-flatten",))
    )
    assert "FULLY_CONNECTED" not in by_turns(made.plan)
    assert made.arena_bytes <= before.arena_bytes
    assert findings_of(made.plan) == []


@pytest.mark.parametrize("seed", range(12))
def test_plans_do_not_grow(seed: int) -> None:
    """Random networks: no plan is larger than that of ops that run whole."""
    graph = flat_net(seed)
    for input_rows in (False, True):
        options = Options(schedule="rows", input_rows=input_rows)
        assert (
            planned(graph, options).arena_bytes <= planned(graph, replace(options, skip=("drop-flatten",))).arena_bytes
        )
