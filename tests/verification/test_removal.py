"""Emitted C that writes and reads parts of tensors, against the model with all its ops."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.model.graph import DType, Graph
from diagmem.transforms import TRANSFORMS, transformed
from diagmem.verification.cortex_m import CORES, run_on_core
from diagmem.verification.host import run_on_host
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, with_weights
from tests.frontends.zoo.families import densenet, inception_v4, nasnet, squeezenet
from tests.transforms.removable_ops import tangle

MODELS = {
    "squeezenet": partial(squeezenet, width=0.5, resolution=64, dtype=DType.INT8, classes=10),
    "densenet": partial(densenet, layers=(2, 3, 2), width=0.25, resolution=64, dtype=DType.INT8, classes=10),
    "nasnet": partial(nasnet, cells=1, width=0.25, resolution=64, dtype=DType.INT8, classes=10),
    "inception": partial(inception_v4, blocks=(1, 1, 1), width=0.125, resolution=107, classes=10),
}


@pytest.fixture(autouse=True)
def _gcc() -> None:
    compiler("gcc")


def without_all(graph: Graph, schedule: str = "best") -> Program:
    """Planned with every op removed that can be, whether that pays or not."""
    less, _ = transformed(graph, TRANSFORMS)
    return Program.running(pipeline.plan(less, skip="all", schedule=schedule).plan, graph)


@pytest.mark.parametrize("name", MODELS)
def test_models_without_concat_slices_and_copies(name: str) -> None:
    """What is left of each network computes every tensor bit for bit as the whole network does."""
    graph = with_weights(MODELS[name](name))
    program = without_all(graph)
    assert len(program.nodes) < len(graph.ops)
    assert any(t.view is not None and not t.is_in_one_piece for t in program.tensors)
    run = run_on_host(program, sample_inputs(graph, 3))
    assert run.failure is None


@pytest.mark.parametrize("schedule", ["auto", "best"])
@pytest.mark.parametrize("seed", [2, 3, 5, 8, 13, 21, 34, 55])
def test_tangles(seed: int, schedule: str) -> None:
    """Parts of parts on every axis, and what reads and writes them."""
    graph = tangle(seed, most_ops=20)
    run = run_on_host(without_all(graph, schedule), sample_inputs(graph, 3))
    assert run.failure is None


def test_a_part_at_the_wrong_place_is_found() -> None:
    """One element further on, and the comparison fails."""
    graph = with_weights(MODELS["squeezenet"]("squeezenet"))
    program = without_all(graph)
    view = next(t for t in program.tensors if t.view is not None and not t.is_in_one_piece)
    assert view.view is not None
    moved = replace(view, view=replace(view.view, offset_elems=view.view.offset_elems + 1))
    tensors = tuple(moved if t.index == view.index else t for t in program.graph.tensors)
    broken = replace(program, graph=replace(program.graph, tensors=tensors))
    assert run_on_host(broken, sample_inputs(graph, 3)).failure is not None


def test_on_a_core_it_takes_fewer_instructions() -> None:
    """SqueezeNet as firmware, layer by layer: the same bits, less code, nothing copied."""
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        compiler(tool)
    graph = with_weights(MODELS["squeezenet"]("squeezenet"))
    samples = sample_inputs(graph, 1)
    whole = run_on_core(Program.of(pipeline.plan(graph, skip="all", schedule="best")), samples, CORES["cortex-m4"])
    less = run_on_core(Program.of(pipeline.plan(graph, schedule="best")), samples, CORES["cortex-m4"])
    assert (whole.failure, less.failure) == (None, None)
    assert less.arena_bytes <= whole.arena_bytes
    assert less.instructions < whole.instructions  # type: ignore[operator]
    assert less.code_bytes < whole.code_bytes  # type: ignore[operator]
