"""Models that share an arena are run by turns, and what one does to another is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import diagmem
from diagmem.backends.c.program import Program
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType, Graph
from diagmem.verification.host import run_by_turns, turns
from diagmem.verification.reference import restarts, sample_inputs
from tests.backends.c.models import compiler, tiny, with_weights
from tests.cut_models import cut
from tests.streams import stream


def models() -> dict[str, Graph]:
    """With state and without, of two types."""
    return {"ears": tiny(), "eyes": tiny(DType.FLOAT32, "eyes"), "memory": stream(7)}


def simple(size: int) -> Graph:
    """Quick to build."""
    b = Builder("simple", DType.FLOAT32)
    x = b.input(1, size, size, 2)
    return with_weights(b.graph(b.add(x, b.max_pool(x, 1, 1))))


def programs(graphs: dict[str, Graph], **options: Any) -> dict[str, Program]:
    return {name: Program.of(diagmem.plan(graph, **options)) for name, graph in graphs.items()}


def failures(made: dict[str, Program], are_kept: bool) -> dict[str, str | None]:
    compiler("gcc")
    samples = {name: sample_inputs(program.graph, 4) for name, program in made.items()}
    return {name: run.failure for name, run in run_by_turns(made, samples, are_kept).items()}


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "rows"},
        {"together": "keep-outputs", "pools": ("fast:300", "slow:4K:3")},
        {"together": "keep-outputs", "cpu": "cortex-m55"},
    ],
)
def test_models_do_not_harm_each_other(options: dict[str, Any]) -> None:
    """Row by row, in several memories, with the kernels of a core; state and outputs outlive the runs of others."""
    compiler("gcc")
    found = diagmem.verify_together(models(), inputs=4, **options)
    assert {name: verdict.failure for name, verdict in found.items()} == dict.fromkeys(models())


def test_streams_and_wires_take_turns() -> None:
    """An input that comes row by row, and models that are wired, share an arena with another."""
    compiler("gcc")
    front, back, wires = cut(tiny(), 6)
    options: dict[str, Any] = {"schedule": "rows", "input_rows": True, "inputs": 3}
    graphs = {"pipe": diagmem.wired({"front": front, "back": back}, wires), "ears": tiny()}
    assert all(verdict.ok for verdict in diagmem.verify_together(graphs, **options).values())


def test_outputs_that_are_not_kept_are_found_missing() -> None:
    """Planned to run one at a time, outputs do not outlive the others' runs: whoever says that they do is told."""
    graphs = {"ears": simple(4), "nose": simple(5)}
    made = programs(graphs, together="run-one-at-a-time", schedule="best")
    found = failures(made, are_kept=True)
    assert all(failure is not None and "kept while another model ran" in failure for failure in found.values())


def test_what_reaches_beyond_its_part_of_the_arena_is_found() -> None:
    """The arena has room for the larger model; of it the smaller one may touch no more than it has asked for."""
    small, large = simple(4), simple(8)
    made = programs({"small": small, "large": large}, together="run-one-at-a-time")
    layout = made["small"].pools
    less = replace(layout.uses[0], used_bytes=layout.uses[0].used_bytes - 16)
    broken = replace(made["small"], pools=replace(layout, uses=(less, *layout.uses[1:])))
    found = failures({**made, "small": broken}, are_kept=False)["small"]
    assert found is not None
    assert "AddressSanitizer" in found


def test_every_run_has_its_turn() -> None:
    """Each model's runs come in their order, between those of the others; what remembers is reset at first, and again
    half-way."""
    made = programs(models(), together="run-one-at-a-time")
    samples = {name: sample_inputs(program.graph, 5) for name, program in made.items()}
    order = turns(made, samples, seed=1)
    for number, name in enumerate(made):
        own = [turn for turn in order if turn.model == number]
        assert [turn.run for turn in own] == list(range(5))
        resets = {0, *restarts(made[name].graph, 5)} if made[name].states else set()
        assert {turn.run for turn in own if turn.is_reset} == resets
    assert [turn.model for turn in order] != sorted(turn.model for turn in order)
    assert order == turns(made, samples, seed=1) != turns(made, samples, seed=2)
