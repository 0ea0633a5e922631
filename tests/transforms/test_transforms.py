"""Graphs with fewer ops compute the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given

import diagmem
from diagmem.kernels import library
from diagmem.model.graph import Graph
from diagmem.transforms import TRANSFORMS, transformed
from tests.execution import random_inputs, run_planned, run_whole
from tests.profiles import examples
from tests.streams import stream
from tests.transforms.removable_ops import tangle, tangles

DIAGMEM = library("diagmem")

CHANNEL_WISE = (
    *("drop-identities", "narrow-inputs", "narrow-integers", "narrow-state", "narrow-weights", "remove-channels"),
    "tabulate",
)
"""Those that look at values: they have networks of their own, with weights."""


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    """The same bytes, under whatever shape."""
    return all(x.dtype == y.dtype and np.array_equal(x.reshape(-1), y.reshape(-1)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", [*TRANSFORMS, "all"])
@examples(25)
@given(graph=tangles())
def test_the_result_is_the_same_bit_for_bit(name: str, graph: Graph) -> None:
    """Planned, and run in one arena, a graph that was transformed as far as possible gives what the model gives."""
    less, _ = transformed(graph, TRANSFORMS if name == "all" else [name])
    inputs = random_inputs(graph)
    made = diagmem.plan(less, schedule="best", skip="all")
    assert same(run_planned(made.plan, inputs), run_whole(graph, inputs))


@examples(40)
@given(tangles())
def test_a_plan_never_grows(graph: Graph) -> None:
    """What is removed is chosen so that the plan is no larger than without; it gives what the model gives."""
    plain, less = (diagmem.plan(graph, schedule="best", skip=skip) for skip in ("all", ()))
    assert less.arena_bytes <= plain.arena_bytes
    assert less.baseline_bytes == plain.baseline_bytes
    inputs = random_inputs(graph)
    assert same(run_planned(less.plan, inputs), run_whole(graph, inputs))


def test_every_transform_has_something_to_do() -> None:
    """The random graphs hold all that the transforms look for, but for channels, which have graphs of their own."""
    removed: Counter[str] = Counter()
    for seed in range(200):
        for graph in (tangle(seed), stream(seed, 2)):
            for removal in transformed(graph, TRANSFORMS)[1]:
                removed[removal.transform] += len(removal.ops)
    assert all(removed[name] > 5 for name in TRANSFORMS if name not in CHANNEL_WISE), removed
