"""Fewer barriers in an arena that is no larger, or only as much as may be."""

from __future__ import annotations

import pytest

from diagmem import pipeline
from diagmem.model.errors import PlanError
from diagmem.planning.cores.multicore import multicore, running_steps
from diagmem.planning.plan import Plan, findings_of


def barriers(plan: Plan) -> int:
    assert plan.multicore is not None
    return plan.multicore.barriers(running_steps(plan))


@pytest.mark.parametrize(("model", "most"), [("vww_96_int8", 45), ("kws_dscnn_int8", 80), ("resnet8_int8", 50)])
def test_fewer_barriers_take_no_byte(model: str, most: int) -> None:
    """Than where tensors lie as for one core."""
    alone = pipeline.plan(f"zoo:{model}", schedule="best").plan
    plan = pipeline.plan(f"zoo:{model}", cores=2).plan
    assert plan.arena_bytes == alone.arena_bytes
    assert barriers(plan) <= min(most, multicore(alone, 2).barriers(running_steps(alone)))
    assert findings_of(plan) == []
    assert plan.offsets.keys() == alone.offsets.keys()


def test_bytes_buy_fewer_barriers() -> None:
    """Up to what they may cost, and no more."""
    least = pipeline.plan("zoo:kws_dscnn_int8", cores=2).plan
    more = pipeline.plan("zoo:kws_dscnn_int8", cores=2, cores_cost=60.0).plan
    assert least.arena_bytes < more.arena_bytes <= 1.6 * least.arena_bytes
    assert barriers(more) < barriers(least)
    assert findings_of(more) == []


@pytest.mark.parametrize("cost", [-1.0, 1e9])
def test_costs_that_make_no_sense_are_refused(cost: float) -> None:
    with pytest.raises(PlanError, match=r"cores_cost is .*: it must be 0 to 1000"):
        pipeline.plan("zoo:kws_dscnn_int8", cores=2, cores_cost=cost)
