"""Every kind whose work can be cut is right however it is cut: parts made by several threads, in phases, deferred,
with output and input as near as a plan has them."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.kernels import library
from diagmem.model.graph import Node
from diagmem.model.schedule import Along, How, Multicore, Phases, Split
from diagmem.planning.cores.split import SharedOp
from diagmem.planning.plan import Plan, findings_of
from diagmem.verification.host import run_on_threads
from tests.ops.deep_nodes import KINDS, deep_nodes
from tests.ops.drawing import CASES, runnable
from tests.ops.fitting import input_values
from tests.ops.test_row_kernels import alone, has_row_kernels
from tests.profiles import some
from tests.row_networks import side_by_side

CORES = 3


def is_cut_inside_rows(case: str) -> bool:
    """Whether cores share the kernel for some node in another way than by its rows."""
    nodes = itertools.islice(runnable(case), 20)
    return any(cut.along is not Along.ROWS for node in nodes for cut in CASES[case].cuts(node, None))


OWN = [case for case in CASES if is_cut_inside_rows(case)]
"""Kinds whose kernels can be cut inside rows."""

SUMMED = ("reduce", "widened_sum")
"""What takes rows into sums has no row of its output to share."""

CUT = [*OWN, *(case for case, kind in CASES.items() if case not in (*OWN, *SUMMED) and has_row_kernels(kind))]
"""Those, and the ones whose rows can be shared, as there is a kernel for one."""

ELEMENT_BY_ELEMENT = ("binary", "unary", "concatenation", "transpose", "strided_slice", "broadcast_to", "reverse")
"""They can nearly always be shared: a few are enough."""


def shared(node: Node, kernels: str) -> Iterator[tuple[Plan, Split]]:
    """The node planned on its own, with each way to share it among cores for which waiting costs nothing."""
    plan = pipeline.plan(alone(node, ""), cores=CORES, kernels=kernels, skip="all").plan
    for cut in library(kernels).cuts(node):
        split = SharedOp(plan, plan.graph.nodes[0], CORES, barrier=0).split(cut) if cut.units > cut.grain else None
        if split is not None:
            yield replace(plan, multicore=Multicore(CORES, (split,))), split


def as_planned(split: Split) -> Split:
    return split


def without_a_barrier(split: Split) -> Split:
    """The first two of several phases become one."""
    phases = list(split.each_phase())
    if {phase.how for phase in phases[:2]} != {How.SHARED} or len(phases) < 2:
        return split
    rows = [phases[0]._replace(end=phases[1].end), *phases[2:]]
    return replace(split, phases=tuple(Phases(phase.end, phase.units, phase.how) for phase in rows))


def check_parts(nodes: Sequence[Node], kernels: str = "diagmem") -> list[Split]:
    """Has all of them made by threads, each by itself in one program, and compares. Returns how they were shared."""
    failure, splits = run_parts(nodes, kernels, as_planned)
    assert failure is None
    return splits


def run_parts(nodes: Sequence[Node], kernels: str, changed: Callable[[Split], Split]) -> tuple[str | None, list[Split]]:
    programs, values, splits = list[Program](), [], list[Split]()
    for number, node in enumerate(nodes):
        found = zip(node.op.inputs, input_values(node, np.random.default_rng(number)), strict=True)
        given = {index: value for index, value in found if value is not None}
        for plan, split in shared(node, kernels):
            assert findings_of(plan) == []
            programs.append(Program.running(plan))
            splits.append(changed(replace(split, op=len(splits))))
            values += [given[index] for index in plan.graph.inputs]
    program = replace(side_by_side(programs), multicore=Multicore(CORES, tuple(splits)))
    return run_on_threads(program, [values], CORES).failure, splits


def hows(splits: Sequence[Split]) -> set[How]:
    return {phases.how for split in splits for phases in split.phases}


def test_kinds_that_can_be_cut_are_found() -> None:
    """Those that take most of the time of a network are among them."""
    assert {"conv_2d", "depthwise_conv_2d", "pool_2d", "binary", "unary", "fully_connected"} <= {*CUT}
    assert {"softmax", "concatenation", "resize", "pad", "transpose_conv", "transpose", "prelu"} <= {*CUT}


@pytest.mark.parametrize("case", CUT)
def test_what_can_be_cut_is_made_element_by_element(case: str) -> None:
    """Phases take the step of an access for the element that is made there."""
    for node in itertools.islice(runnable(case), 30):
        kind = CASES[case]
        if kind.cuts(node, None):
            accesses = kind.cut_accesses(node)
            element, first, last = accesses.writes[0].touches()
            assert accesses.steps == node.output.elems
            assert (np.sort(element) == element).all()
            assert (element == first).all()
            assert (element == last).all()


@pytest.mark.parametrize("case", CUT)
def test_parts_are_right(case: str) -> None:
    """Of all types, with any padding, stride and dilation."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    drawn = (node for node in runnable(case) if next(node.activations(), None) and node.output.elems > 1)
    assert check_parts(list(itertools.islice(drawn, 12 if case in ELEMENT_BY_ELEMENT else 30)))


@pytest.mark.parametrize("kernels", ["diagmem", "diagmem-dsp"])
def test_parts_of_many_channels_are_right(kernels: str) -> None:
    """In every way that there is: pixels and channels, in one phase and in several, shared, deferred and alone."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    found = check_parts([node for kind in KINDS for node in deep_nodes(kind, some(6))], kernels)
    assert {split.cut.along for split in found} == {Along.PIXELS, Along.CHANNELS}
    assert {How.SHARED, How.HELD} <= hows(found)


def test_parts_of_kernels_without_scratch_are_right() -> None:
    """Blocks of channels whose weights two of them share."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    nodes = [node for kind in ("CONV_2D", "FULLY_CONNECTED") for node in deep_nodes(kind, 12)]
    found = check_parts(nodes, "diagmem-dsp/all")
    assert Along.CHANNELS in {split.cut.along for split in found}


def test_a_missing_barrier_is_seen() -> None:
    """Phases that run into each other: the thread sanitizer tells of a race, or an output is wrong. On a busy machine
    threads may happen to run one after the other, so there are several tries."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    nodes = [node for kind in ("POINTWISE", "CONV_2D") for node in deep_nodes(kind, 8)]
    assert any(run_parts(nodes, "diagmem", without_a_barrier)[0] is not None for _ in range(5))
