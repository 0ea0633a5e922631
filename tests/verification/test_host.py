"""Running on the host finds what is right, and what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.backends.json import from_json, to_json
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType
from diagmem.planning.plan import Storage
from diagmem.validation import Fault
from diagmem.verification import harness, host
from diagmem.verification.host import run_on_host
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, program, tiny


@pytest.fixture(autouse=True)
def _gcc() -> None:
    compiler("gcc")


@pytest.mark.parametrize("schedule", ["auto", "best"])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.FLOAT32])
def test_a_planned_model_is_right(dtype: DType, schedule: str) -> None:
    """Every operation, bit for bit, float32 too, though tensors overlap."""
    graph = tiny(dtype)
    made = program(graph, schedule=schedule)
    assert made.arena_bytes < sum(t.size_bytes for t in made.tensors)
    run = run_on_host(made, sample_inputs(graph, 6))
    assert (run.ok, run.inputs, run.arena_bytes, run.failure) == (True, 6, made.arena_bytes, None)
    assert run.weights_bytes


def test_a_wrong_plan_is_found_and_its_op_named() -> None:
    """An output moved onto an input that is still needed."""
    graph = tiny()
    made = program(graph, schedule="best")
    residual = next(node for node in graph.nodes if node.op.kind == "ADD")
    first, second = residual.inputs[0], residual.inputs[1]
    assert first is not None
    assert second is not None
    onto = Storage.linear(made.offsets[first.index], second.rows, second.row_bytes)
    broken = replace(made, storage={**made.storage, second.index: onto})
    failure = run_on_host(broken, sample_inputs(graph, 6)).failure
    assert failure is not None
    assert "(ADD)" in failure or f"op {graph.producer[second.index]} " in failure
    assert "should be" in failure


def test_memory_outside_the_arena_is_watched() -> None:
    """An arena that is said to be smaller than it must be is overrun, and the sanitizer says so."""
    graph = tiny()
    made = program(graph)
    short = replace(made, arena_bytes=made.arena_bytes - 1)
    failure = run_on_host(short, sample_inputs(graph, 1)).failure
    assert failure is not None
    assert "AddressSanitizer" in failure


def test_undefined_behaviour_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the sanitizer's words, though the first build ends without any."""
    write, compiled = harness.write_model, list[str]()

    def with_overflow(program: Program, runs: int, directory: Path) -> str:
        weights, model = write(program, runs, directory), directory / "model.c"
        start = "void model_invoke_in(void *arena) {\n"
        text = model.read_text()
        assert start in text
        model.write_text(text.replace(start, f"{start}    volatile int most = 2147483647;\n    most = most + 1;\n"))
        compiled.append(weights)
        return weights

    monkeypatch.setattr(host, "write_model", with_overflow)
    graph = tiny()
    failure = run_on_host(program(graph), sample_inputs(graph, 1)).failure
    assert failure is not None
    assert "runtime error: signed integer overflow" in failure
    assert len(compiled) == 2


def test_plans_from_files_are_checked_for_sense() -> None:
    """A plan's JSON makes the same program; one for other kernels, or a damaged one, is refused, and one that makes no
    sense is found unsafe."""
    graph = tiny()
    planned = pipeline.plan(graph, schedule="best")
    text = to_json(planned)
    read, made = Program.running(from_json(text, graph), graph), Program.of(planned)
    assert (read.graph, read.order, read.offsets) == (made.graph, made.order, made.offsets)
    assert (read.arena_bytes, read.lower_bound_bytes) == (made.arena_bytes, made.lower_bound_bytes)
    damages: list[tuple[str, Any]] = [("arena_bytes", None), ("schedule", ["x"]), ("kernels", "cmsis-nn")]
    for key, damage in damages:
        with pytest.raises(PlanError):
            Program.running(from_json({**text, key: damage}, graph), graph)
    senseless: list[tuple[str, Any, Fault]] = [
        ("schedule", [0], Fault.OP_MISSING),
        ("tensors", [], Fault.NO_PLACE),
        ("arena_bytes", 1, Fault.OUTSIDE),
    ]
    for key, damage, fault in senseless:
        assert fault in {finding.fault for finding in pipeline.check(graph, {**text, key: damage})}


def test_random_inputs_are_not_all_alike() -> None:
    """Edges first: least, largest; then noise. The same for the same seed."""
    graph = tiny()
    first, second = sample_inputs(graph, 8), sample_inputs(graph, 8)
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(first, second, strict=True))
    assert {int(run[0].min()) for run in first[:2]} == {-128, 127}
