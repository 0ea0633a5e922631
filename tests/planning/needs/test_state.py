"""State: it survives from run to run wherever a plan puts it, and takes no more than it must."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given

import diagmem
from diagmem.model.graph import Graph
from diagmem.transforms import TRANSFORMS, transformed
from diagmem.verification import reference
from tests.execution import random_inputs, run_in_a_row, with_values
from tests.profiles import examples
from tests.streams import Stream, streams

RUNS = 4


def agrees(graph: Graph, plan: diagmem.Plan) -> bool:
    """Whether runs in a row, planned, give what the model gives."""
    inputs = [random_inputs(graph, seed) for seed in range(RUNS)]
    wanted = [[values[t] for t in graph.outputs] for values in reference.runs(graph, inputs)]
    found = run_in_a_row(plan, inputs)
    pairs = (pair for run in zip(found, wanted, strict=True) for pair in zip(*run, strict=True))
    return all(np.array_equal(a.reshape(-1), b.reshape(-1)) for a, b in pairs)


@pytest.mark.parametrize("names", [[], ["state-in-place"], list(TRANSFORMS)])
@examples(20)
@given(graph=streams(most_moves=2))
def test_runs_in_a_row_give_what_the_model_gives(names: list[str], graph: Graph) -> None:
    """With everything in one arena, and everything but the state forgotten between runs."""
    less, _ = transformed(graph, names)
    assert agrees(graph, diagmem.plan(less, skip="all").plan)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("remembers", [False, True])
def test_what_was_read_may_be_read_again(times: int, remembers: bool) -> None:
    """Copies of copies, of a variable or of what comes in."""
    net = Stream(Random(1))
    image = net.input(1, 2, 3, 4)
    value = net.memory(1, 2, 3, 4) if remembers else image
    for _ in range(times):
        value = net.read(value)
    graph = with_values(net.graph(net.add(value, image)))
    less, _ = transformed(graph, list(TRANSFORMS))
    assert agrees(graph, diagmem.plan(less, skip="all").plan)
