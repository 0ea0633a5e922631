"""State in emitted C: set to its first value by a call, and kept from run to run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import diagmem
from diagmem.backends.c import emit
from diagmem.backends.c.program import Program
from diagmem.model.graph import Graph
from diagmem.planning.planner import planned
from diagmem.verification.host import run_on_host
from tests.execution import random_inputs
from tests.streams import stream


def program_of(graph: Graph, **options: object) -> Program:
    return Program.of(planned(graph, diagmem.Options.of({"allocator": "greedy", **options})))


@pytest.mark.parametrize("seed", [5, 7, 9, 11])
def test_runs_in_a_row_on_the_host(seed: int) -> None:
    """Every operation and variable as numpy has it, run after run, with all else poisoned in between."""
    graph = stream(seed, 3)
    run = run_on_host(program_of(graph), [random_inputs(graph, n) for n in range(6)])
    assert run.ok, run.failure


def test_a_wrong_first_value_is_seen() -> None:
    """The comparison would notice a reset that does not do what it should."""
    graph = stream(5, 3)
    wrong = replace(
        graph,
        tensors=tuple(
            replace(t, initial=np.asarray(t.first_values + 1)) if t.is_variable else t for t in graph.tensors
        ),
    )
    program = replace(program_of(wrong), source=graph)
    assert not run_on_host(program, [random_inputs(graph, n) for n in range(3)]).ok


def test_only_models_with_state_have_a_reset() -> None:
    """The header declares it with and without an arena, and says how many bytes are state."""
    graph = stream(5, 3)
    files = emit(program_of(graph), "net")
    state_bytes = sum(t.size_bytes for t in graph.variables)
    header = files["net.h"].decode()
    assert "void net_reset(void);" in header
    assert "void net_reset_in(void *arena);" in header
    assert f"#define NET_STATE_BYTES {state_bytes} " in header
    assert b"net_reset()" in files["README.md"]
    plain = emit(program_of(diagmem.Source("zoo:kws_dscnn_int8").runnable), "net")
    assert not any(b"reset" in content for content in plain.values())
