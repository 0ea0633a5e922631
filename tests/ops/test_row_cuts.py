"""Every kind whose rows can be cut is right however they are cut: columns or channels of each row made by several
threads, in phases, deferred, rows anywhere or over those that they are made of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from diagmem.backends.c.program import Program
from diagmem.kernels import library
from diagmem.model.graph import Node
from diagmem.model.schedule import Along, Cut, How, Multicore, Split
from diagmem.planning.cores.split import SharedTurn, SharedTurns
from diagmem.planning.options import Options
from diagmem.planning.plan import Plan, findings_of
from diagmem.validation import Fault
from diagmem.verification import reference
from diagmem.verification.harness import differences, spans
from diagmem.verification.host import sent_by_threads
from tests.ops.deep_nodes import KINDS, deep_nodes
from tests.ops.fitting import input_values
from tests.ops.test_cuts import OWN
from tests.ops.test_row_kernels import BY_ROWS, alone, anywhere, by_rows, overlapped, row_op
from tests.row_networks import side_by_side

CORES = 3

OF_ONLY_ROWS = {Fault.NOT_IN_ONE_PIECE, Fault.RESULT_LOST}
"""The output's rows lie here and there, and none but the next step looks at them."""


@pytest.fixture(autouse=True)
def _gcc() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")


def shared(node: Node, name: str, kernels: str) -> Iterator[tuple[Program, tuple[Split, ...]]]:
    """The node run row by row in two places, each row shared in every way that there is."""
    for place in (anywhere, overlapped):
        program = place(alone(node, f"{place.__name__} {name}"), kernels)
        more = library(kernels).scratch_bytes(node, CORES)
        program = replace(program, arena_bytes=-(-(program.arena_bytes + more) // 8) * 8)
        options = Options(kernels=kernels, cores=CORES)
        plan = Plan(program.graph, options, program.schedule, program.storage, program.scratch, program.arena_bytes, 0)
        for cut in library(kernels).row_cuts(node):

            def in_phases(turn: SharedTurn, cut: Cut = cut) -> Split | None:
                return turn.split(cut) if cut.units > cut.grain else None

            splits = SharedTurns(plan, program.graph.nodes[0], CORES, barrier=0).splits(in_phases)
            if splits:
                found = {finding.fault for finding in findings_of(replace(plan, multicore=Multicore(CORES, splits)))}
                assert found <= OF_ONLY_ROWS
                yield program, splits


def check_parts_of_rows(nodes: Sequence[Node], kernels: str = "diagmem") -> list[Split]:
    programs, values, splits = list[Program](), [], list[Split]()
    for number, node in enumerate(nodes):
        found = zip(node.op.inputs, input_values(node, np.random.default_rng(number)), strict=True)
        given = {index: value for index, value in found if value is not None}
        for program, ways in shared(node, str(number), kernels):
            splits += (replace(way, op=len(programs)) for way in ways)
            programs.append(program)
            values += [given[index] for index in program.graph.inputs]
    program = replace(side_by_side(programs), multicore=Multicore(CORES, tuple(splits)))
    sent, complaint = sent_by_threads(program, [values], CORES)
    assert not complaint
    wrong = differences(spans(program, is_traced=True), reference.run(program.graph, values), sent)
    assert [text for text in wrong if not text.startswith("output ")] == []
    return splits


SUMMED_ONLY = {"fully_connected"}
"""Kinds that take rows into sums and do nothing else by rows: one core does that."""


@pytest.mark.parametrize("case", sorted(SUMMED_ONLY))
def test_rows_that_are_summed_up_are_not_shared(case: str) -> None:
    assert not any(library("diagmem").row_cuts(node) for node in by_rows(case, 20))


@pytest.mark.parametrize("case", [case for case in BY_ROWS if case in OWN and case not in SUMMED_ONLY])
def test_parts_of_rows_are_right(case: str) -> None:
    """Of all types, with any padding, stride and dilation."""
    assert check_parts_of_rows(by_rows(case, 6))


@pytest.mark.parametrize("kernels", ["diagmem", "diagmem-dsp"])
def test_parts_of_rows_of_many_channels_are_right(kernels: str) -> None:
    """In every way that there is: columns and channels, in one phase and in several, shared and deferred."""
    kinds = [kind for kind in KINDS if not kind.startswith("FULLY_CONNECTED")]
    drawn = (node for kind in kinds for node in deep_nodes(kind, 6))
    nodes = [node for node in drawn if not row_op(alone(node, ""), kernels).is_whole]
    found = check_parts_of_rows(nodes, kernels)
    assert {split.cut.along for split in found} == {Along.PIXELS, Along.CHANNELS}
    assert {How.SHARED, How.HELD} <= {phases.how for split in found for phases in split.phases}
