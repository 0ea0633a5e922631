"""What the firmware owns: tensors that it holds, values that it reads after a run, places that it gives."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import diagmem
from diagmem.backends.c.program import Program
from diagmem.backends.json import from_json, to_json
from diagmem.model.errors import PlanError
from diagmem.planning.plan import Storage, findings_of
from diagmem.validation import Fault
from diagmem.verification.host import run_on_host
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, tiny
from tests.streams import stream

INPUT, MIDDLE, OUTPUT = "input", "depthwise_conv_2d_1", "softmax_8"

CASES: dict[str, dict[str, Any]] = {
    "an input with the caller": {"buffers": {INPUT: "external"}},
    "both ends with the caller": {"buffers": {INPUT: "external", OUTPUT: "external"}},
    "beside pools": {"buffers": {INPUT: "external", OUTPUT: "external"}, "pools": ("fast:100", "slow:1K")},
    "by rows": {"buffers": {INPUT: "external"}, "schedule": "rows"},
    "a value that is kept": {"buffers": {MIDDLE: "keep"}},
    "kept of a streamed run": {"buffers": {MIDDLE: "keep"}, "schedule": "rows", "input_rows": True},
    "an aligned input": {"input_align": 32, "buffers": {MIDDLE: "keep"}},
    "pinned": {"buffers": {INPUT: "@40", OUTPUT: "@3"}},
}


@pytest.mark.parametrize("case", CASES)
def test_plans_are_safe_and_read_back(case: str) -> None:
    """As JSON and as C, bit for bit: what the caller holds is in memory of its own, between red zones."""
    graph = tiny()
    made = diagmem.plan(graph, **CASES[case])
    assert findings_of(made.plan) == []
    read = from_json(json.loads(json.dumps(to_json(made))), graph)
    assert findings_of(read) == []
    assert read.storage == made.plan.storage
    compiler("gcc")
    program = Program.of(made)
    assert run_on_host(program, sample_inputs(program.graph, 2)).failure is None


@pytest.mark.parametrize("how", ["double", "external", "@0"])
@pytest.mark.parametrize("seed", [4, 12])
def test_what_is_asked_of_an_input_holds_beside_state(seed: int, how: str) -> None:
    """An input that would become a part of a window over state keeps its own place, and the plan reads back and runs
    as C."""
    graph = stream(seed)
    assert diagmem.plan(graph).plan.graph.tensors[graph.inputs[0]].view is not None
    name = graph.tensors[graph.inputs[0]].name
    made = diagmem.plan(graph, buffers={name: how})
    assert made.plan.graph.tensors[graph.inputs[0]].view is None
    assert findings_of(from_json(json.loads(json.dumps(to_json(made))), graph)) == []
    compiler("gcc")
    program = Program.of(made)
    assert run_on_host(program, sample_inputs(program.graph, 2)).failure is None


def test_what_the_caller_holds_is_not_in_the_arena() -> None:
    """Nor can anything else lie there."""
    graph = tiny()
    made = diagmem.plan(graph, buffers={INPUT: "external", OUTPUT: "external"})
    arena, given, taken = made.plan.pools.uses
    assert (arena.used_bytes, given.used_bytes, taken.used_bytes) == (made.arena_bytes, 192, 5)
    inside = {t for t, at in made.plan.offsets.items() if at >= given.start}
    assert inside == {graph.inputs[0], graph.outputs[0]}
    end = taken.end - 1
    there = {**made.plan.storage, graph.inputs[0]: Storage.linear(end, 8, 24)}
    assert Fault.OUTSIDE in {f.fault for f in findings_of(replace(made.plan, storage=there))}


def test_what_is_kept_survives() -> None:
    """It is an output: lost if something lies on it at the end."""
    graph = tiny()
    made = diagmem.plan(graph, buffers={MIDDLE: "keep"}, skip="all")
    middle = next(t.index for t in graph.tensors if t.name == MIDDLE)
    assert made.plan.graph.outputs == (*graph.outputs, middle)
    onto = {**made.plan.storage, graph.outputs[0]: Storage.linear(made.plan.offsets[middle], 1, 5)}
    assert Fault.RESULT_LOST in {finding.fault for finding in findings_of(replace(made.plan, storage=onto))}


def test_an_input_that_is_not_aligned_is_found() -> None:
    graph = tiny()
    made = diagmem.plan(graph, input_align=32)
    assert made.plan.offsets[graph.inputs[0]] % 32 == 0
    assert Program.of(made).align_bytes == 32
    at = {**made.plan.storage, graph.inputs[0]: Storage.linear(made.plan.offsets[graph.inputs[0]] + 16, 8, 24)}
    assert Fault.MISALIGNED in {f.fault for f in findings_of(replace(made.plan, storage=at, arena_bytes=4096))}


def test_pins_are_kept_to() -> None:
    """And no plan with them is smaller."""
    graph = tiny()
    for at in (0, 64, 500):
        made = diagmem.plan(graph, buffers={INPUT: f"@{at}"})
        assert made.plan.offsets[graph.inputs[0]] == at
        assert made.optimal


def test_a_front_has_what_is_kept() -> None:
    """All plans of less memory for more work keep the value."""
    for made in diagmem.pareto(tiny(), buffers={MIDDLE: "keep"}, recompute=1.5):
        assert MIDDLE in {made.plan.graph.tensors[t].name for t in made.plan.graph.outputs}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"buffers": {"depthwise": "keep"}}, "did you mean 'depthwise_conv_2d_1'"),
        ({"buffers": {MIDDLE: "external"}}, "is not an input or output"),
        ({"buffers": {INPUT: "external"}, "schedule": "rows", "input_rows": True}, "neither kept nor external"),
        ({"buffers": ("input",)}, "is not NAME=HOW"),
        ({"buffers": {"input": "kept"}}, "is not NAME=HOW"),
        ({"buffers": ("input=@x",)}, "is not NAME=HOW"),
        ({"buffers": {"nobody": "@0"}}, "cannot be pinned"),
        ({"buffers": ("input=@0", "conv_2d_0=@0")}, "pinned too close"),
        ({"buffers": ("input=@0",), "pools": ("a:1K",)}, "pools cannot be combined"),
        ({"buffers": ("input=@2",), "align": 4}, "multiple of 4"),
        ({"input_align": 3}, "power of two"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        diagmem.plan(tiny(), **options)


@pytest.mark.parametrize("align", ["align", "input_align"])
@pytest.mark.parametrize(
    "options",
    [
        {"pools": ("a:100", "b:4K")},
        {"buffers": {INPUT: "external"}},
        {"together": "keep-outputs"},
        {"buffers": {INPUT: "double"}, "together": "keep-outputs"},
        {"buffers": {INPUT: "double"}, "pools": ("a:1K", "b:4K")},
    ],
)
def test_wide_alignments_hold_in_all_memories(options: dict[str, Any], align: str) -> None:
    """Also where they are wider than a cache line; a plan that is read again lies where it did."""
    graph = tiny()
    made = diagmem.plan(graph, **{align: 256}, **options)
    assert findings_of(made.plan) == []
    read = from_json(json.loads(json.dumps(to_json(made))), graph)
    assert findings_of(read) == []
    assert read.storage == made.plan.storage
