"""Why a tensor lies where it does: chains whose links are separations, and add up to offsets."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import diagmem
from diagmem.backends.json import from_json, to_json
from diagmem.frontends import zoo
from diagmem.model.errors import PlanError
from diagmem.planning.plan import Plan
from diagmem.reports.why import ARENA, Chain, Reasons
from tests.cli.calling import call
from tests.networks import random_net
from tests.profiles import examples
from tests.row_networks import image_net

KWS = "zoo:kws_dscnn_int8"
LAYERS = ("--schedule", "best")


def check(reasons: Reasons, chain: Chain) -> None:
    """Each link's distance is a separation of the problem, asked for at a step at which both live; distances and free
    bytes add up to the offset; and nothing hangs in the air."""
    problem, links = reasons.problem, chain.links
    number = {id(buffer): n for n, buffer in enumerate(problem.buffers)}
    for link, below in pairwise(links):
        assert link.distance_bytes == problem.separation(number[id(below.buffer)], number[id(link.buffer)])
        assert link.step is not None
        assert all(b.first_step <= link.step < b.end_step for b in (link.buffer, below.buffer))
        assert link.offset - below.offset == link.distance_bytes + link.free_bytes
        assert link.free_bytes >= 0
    assert links[-1].step is None
    assert links[-1].is_pinned or links[-1].free_bytes == links[-1].offset
    assert len({id(link.buffer) for link in links}) == len(links)


def check_plan(plan: Plan) -> None:
    reasons = Reasons(plan)
    for n, buffer in enumerate(reasons.problem.buffers):
        chain = reasons.of_buffer(n)
        assert chain.links[0].buffer is buffer
        check(reasons, chain)
    highest = [chain.end_bytes for chain in reasons.of_arena()]
    for chain in reasons.of_arena():
        check(reasons, chain)
    if not plan.pools:
        unit = reasons.problem.unit_bytes
        assert -(-highest[0] // unit) * unit == plan.arena_bytes


@given(st.integers(0, 2**32), st.sampled_from([{}, {"align": 16}, {"kernels": "tflm-reference"}, {"schedule": "file"}]))
@examples(30)
def test_links_are_separations_that_add_up(seed: int, options: dict[str, Any]) -> None:
    """Of whole tensors, with any alignment and kernels."""
    check_plan(diagmem.plan(random_net(seed), effort="quick", **options).plan)


@given(st.integers(0, 2**32))
@examples(8)
def test_rows_too(seed: int) -> None:
    """Row by row, with rings and tables."""
    check_plan(diagmem.plan(image_net(seed), schedule="rows", effort="quick").plan)


@given(st.integers(0, 2**32), st.integers(20, 80))
@examples(10)
def test_within_a_pool(seed: int, percent: int) -> None:
    """What holds a buffer up lies in the same memory, whose start is 0."""
    graph = random_net(seed)
    size = diagmem.plan(graph, effort="quick").arena_bytes
    pools = [f"fast:{max(1, size * percent // 100)}", f"slow:{4 * size + 64}:3"]
    plan = diagmem.plan(graph, effort="quick", pools=pools).plan
    check_plan(plan)
    for chain in Reasons(plan).of_arena():
        assert chain.pool in ("fast", "slow")


def test_a_pin_ends_a_chain() -> None:
    """What is pinned needs nothing below it, and what lies on it is held by it."""
    plan = diagmem.plan(KWS, buffers=["input=@4096"]).plan
    reasons = Reasons(plan)
    (chain,) = reasons.asked("input")
    assert [(link.offset, link.is_pinned) for link in chain.links] == [(4096, True)]
    check_plan(plan)


def test_drift_sets_the_arena_of_kws() -> None:
    """No single op needs the arena: four times 440 bytes of drift lie below the last of its buffers."""
    plan = diagmem.plan(KWS, schedule="best").plan
    (chain,) = Reasons(plan).of_arena()
    assert max(plan.pressure) < plan.arena_bytes == chain.end_bytes
    assert [link.distance_bytes for link in chain.links] == [384, 56] * 4 + [0]
    assert not any(link.free_bytes for link in chain.links)


def test_slack_is_told() -> None:
    """A buffer that nothing holds up has free bytes below it."""
    plan = from_json(_moved_up(to_json(diagmem.plan(KWS, schedule="best")), "input", 3), zoo.build("kws_dscnn_int8"))
    reasons = Reasons(plan)
    (chain,) = reasons.asked("input")
    check(reasons, chain)
    assert any(link.free_bytes == 3 for link in chain.links)


def _moved_up(plan: Any, name: str, size: int) -> Any:
    for tensor in plan["tensors"]:
        tensor["offset"] += size if tensor["name"] == name else 0
    return {**plan, "arena_bytes": plan["arena_bytes"] + size}


def test_a_plan_from_a_file_gives_the_same_reasons() -> None:
    """Nothing is needed that JSON does not hold."""
    made = diagmem.plan(KWS)
    again = from_json(to_json(made), zoo.build("kws_dscnn_int8"))
    own, read = ([chain.to_json() for chain in Reasons(plan).asked(ARENA)] for plan in (made.plan, again))
    assert own == read


def test_names_and_indices() -> None:
    """A tensor is found by either, a row by what its buffer is called, and a typo is told."""
    plan = diagmem.plan(KWS).plan
    reasons = Reasons(plan)
    tensor = next(t for t in plan.graph.tensors if t.name == "conv_2d_4")
    assert reasons.asked("conv_2d_4") == reasons.asked(str(tensor.index))
    with pytest.raises(PlanError, match=r"nothing in RAM is called 'conv2d_4'; did you mean 'conv_2d_4'"):
        reasons.asked("conv2d_4")
    rows = Reasons(diagmem.plan(KWS, schedule="rows").plan)
    assert rows.asked("conv_2d_0[3]")[0].links[0].buffer.name == "conv_2d_0[3]"


def test_the_command_tells_the_chain() -> None:
    """`--why` with a tensor, without, with a typo, and in JSON; and the peak says where a chain sets the arena."""
    assert (
        "a chain of 9 buffers sets the arena, from conv_2d_8 at 0 to conv_2d_0 at 1760"
        in call("plan", KWS, *LAYERS, "--verbose").stdout
    )
    told = call("plan", KWS, *LAYERS, "--verbose", "--why").stdout
    assert "1,376  8,000  depthwise_conv_2d_1          56  op 2 CONV_2D\n" in told
    assert "Why conv_2d_0 ends at 9,760 B of the arena:\n   at  bytes  buffer" in told
    named = call("plan", KWS, *LAYERS, "--verbose", "--why", "conv_2d_4").stdout
    assert "Why conv_2d_4 ends at 8,880 B" in named
    assert "\n880  8,000  conv_2d_4" in named
    typo = call("plan", KWS, *LAYERS, "--why", "conv2d_4")
    assert typo.returncode == 2
    why = json.loads(call("plan", KWS, *LAYERS, "--why", "--json", "-").stdout)["why"]
    assert [link["offset"] for link in why[0]["links"]] == [1760, 1376, 1320, 936, 880, 496, 440, 56, 0]
    assert call("plan", KWS, "zoo:resnet8_int8", "--why").returncode == 2
