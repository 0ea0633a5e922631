"""How several cores share a plan: no byte more, few barriers, and a table that serves any number of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from diagmem import pipeline
from diagmem.backends.json import from_json, to_json
from diagmem.model.errors import PlanError
from diagmem.model.schedule import Along, Cut, How, Multicore, Phases, Split, Step
from diagmem.planning.cores.multicore import estimated_speedup, most_held_bytes, running_steps
from diagmem.planning.cores.split import SharedOp, critical_path
from diagmem.planning.plan import Storage
from tests.networks import Net

MODELS = ("vww_96_int8", "kws_dscnn_int8", "resnet8_int8", "mobilenet_v1_0.25_128_int8", "autoencoder_int8")


@pytest.mark.parametrize("model", MODELS)
def test_two_cores_take_no_byte_more(model: str) -> None:
    """In plain C, and are nearly twice as fast; four nearly four times."""
    alone = pipeline.plan(f"zoo:{model}", schedule="best")
    for cores, least in ((2, 1.95), (4, 3.3)):
        plan = pipeline.plan(f"zoo:{model}", cores=cores).plan
        assert plan.arena_bytes == alone.arena_bytes
        assert plan.multicore is not None
        assert estimated_speedup(plan, plan.multicore, cores) > least


def test_without_cores_nothing_is_said_of_them() -> None:
    """Neither in the plan, nor in its JSON."""
    made = pipeline.plan("zoo:kws_dscnn_int8")
    assert made.plan.multicore is None
    assert "cores" not in to_json(made)


def test_phases_are_written_and_read_again() -> None:
    """All that the plan says of cores; and what makes no sense is refused."""
    made = pipeline.plan("zoo:kws_dscnn_int8", cores=3)
    text = json.loads(json.dumps(to_json(made)))
    assert from_json(text, made.model).multicore == made.plan.multicore
    assert text["cores"]["barriers"] > len(text["cores"]["phases"])
    assert text["cores"]["held_bytes"] == most_held_bytes(made.plan.graph, made.plan.multicore) // 2 > 0
    first = text["cores"]["phases"][0]
    for damage in ({"op": 99}, {"along": "rows"}, {"units": 7}, {"phases": [{"end": 1, "step": 1, "how": "so"}]}):
        damaged = {**text, "cores": {**text["cores"], "phases": [{**first, **damage}]}}
        with pytest.raises(PlanError):
            from_json(damaged, made.model)


def conv(apart: int, channels: int = 4) -> SharedOp:
    """A pointwise convolution of 8x8 pixels whose input lies so many bytes above its output."""
    net = Net()
    plan = pipeline.plan(net.graph(net.conv(net.input(1, 8, 8, 4), channels, kernel=1)), cores=2, skip="all").plan
    source, target = plan.graph.nodes[0].input(0), plan.graph.nodes[0].output
    storage = {
        target.index: Storage.linear(0, target.rows, target.row_bytes),
        source.index: Storage.linear(apart, source.rows, source.row_bytes),
    }
    return SharedOp(replace(plan, storage=storage), plan.graph.nodes[0], 2, barrier=0)


PIXELS = Cut(Along.PIXELS, 64, can_hold=True)


def phases_of(op: SharedOp) -> tuple[Phases, ...]:
    split = op.split(PIXELS)
    assert split is not None
    return split.phases


def test_phases_are_as_long_as_the_distance_allows() -> None:
    """Pixels of 4 bytes, 32 bytes apart: eight at a time. Apart, or in place, all at once."""
    assert phases_of(conv(32)) == (Phases(64, 8, How.SHARED),)
    assert phases_of(conv(0)) == (Phases(64, 64, How.SHARED),)
    assert phases_of(conv(256)) == (Phases(64, 64, How.SHARED),)


def test_phases_shrink_where_the_output_is_faster() -> None:
    """Twice as many channels at the least distance: each phase has half of what is left, to the last pixel."""
    found = phases_of(conv(256, 8))
    phases = list(Split(0, PIXELS, found).each_phase())
    assert [phase.end for phase in phases][:5] == [32, 48, 56, 60, 62]
    assert all(phase.how is How.SHARED for phase in phases[:5])


def test_barriers_are_counted() -> None:
    """One at the start, one after each phase, one more where the last is held; none between ops that one core does
    alone."""
    held, shared = (Split(op, PIXELS, (Phases(64, 16, how),)) for op, how in enumerate((How.HELD, How.SHARED)))
    assert (held.barriers, shared.barriers) == (5, 4)
    team = Multicore(2, (held, shared))
    steps = [Step(op) for op in range(4)]
    assert team.barriers_after(steps) == [True, True, False, True]
    assert team.barriers(steps) == 1 + 5 + 4 + 1
    assert critical_path(shared, 6400.0, 2) == 3200 + 4 * 100


def test_ops_that_move_nothing_need_no_barrier() -> None:
    """A reshape in place."""
    net = Net()
    graph = net.graph(net.reshape(net.conv(net.input(1, 8, 8, 4), 4), 1, 256))
    assert running_steps(pipeline.plan(graph, cores=2, skip="all").plan) == [Step(0)]


def test_what_cores_cannot_do_is_refused() -> None:
    for options in ({"cores": 0}, {"cores": 99}, {"cores": 2, "kernels": "tflm-reference"}):
        with pytest.raises(PlanError, match="cores"):
            pipeline.plan("zoo:kws_dscnn_int8", **options)
