"""What a turn of a kernel touches, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.kernels import library
from diagmem.model.graph import Node
from diagmem.ops.accesses import Runs
from diagmem.validation.kernel import Kernel, cut_to_turns, within_rows
from tests.ops.cases import case_modules
from tests.ops.simulation import by_step
from tests.profiles import examples
from tests.validation.shadow_memory import sums_of, turns_of, windows

CASES = case_modules()

RUNS = st.lists(
    st.tuples(*(st.integers(*limits) for limits in ((0, 30), (1, 5), (-3, 9), (0, 20), (0, 3), (1, 6)))), max_size=5
)


def runs_of(columns: list[tuple[int, ...]]) -> Runs:
    start, length, pitch, step, stride, hold = np.array(columns, dtype=np.int64).reshape(-1, 6).T
    return Runs.of(start + 20, length, step, pitch=pitch, stride=stride, hold=hold)


@given(RUNS, st.sets(st.integers(1, 30), min_size=1))
@examples(300)
def test_any_runs_are_cut_where_turns_end(columns: list[tuple[int, ...]], ends: set[int]) -> None:
    """Each turn touches the elements that the runs touch at its steps, at just those steps; what comes after the last
    turn belongs to it."""
    runs = runs_of(columns)
    cut = cut_to_turns(runs, np.array(sorted(ends), dtype=np.int64))
    bounds = [0, *sorted(ends)[:-1], 1000]
    touches = {(step, element) for step, elements in by_step(runs).items() for element in elements}
    for turn in range(len(ends)):
        found = by_step(cut.of_turn(turn))
        expected = {(s, e) for s, e in touches if bounds[turn] <= s < bounds[turn + 1]}
        assert {(step, element) for step, elements in found.items() for element in elements} == expected


@given(RUNS, st.integers(1, 12))
@examples(200)
def test_any_runs_are_cut_where_rows_end(columns: list[tuple[int, ...]], row_elems: int) -> None:
    """No run reaches into a second row, and together they touch what the runs do, when they do."""
    runs = runs_of(columns)
    parts = within_rows(runs, row_elems)
    found = set()
    for part in parts:
        far = part.start + (part.length - 1) * part.pitch
        assert (part.start // row_elems == far // row_elems).all()
        found |= {(step, element) for step, elements in by_step(part).items() for element in elements}
    assert found == {(step, element) for step, elements in by_step(runs).items() for element in elements}


@pytest.mark.parametrize("kernels", ["diagmem", "cmsis-nn-mve"])
@pytest.mark.parametrize("case", CASES)
@examples(25)
@given(data=st.data())
def test_turns_touch_what_accesses_say(case: str, kernels: str, data: st.DataObject) -> None:
    """Over all kinds: how many turns there are, and which elements and rows each reads and writes."""
    node: Node = data.draw(CASES[case])
    if not all(t.elems for t in (*(t for _, t in node.activations()), *node.outputs)):
        return
    kernel, accesses = Kernel(node, library(kernels)), library(kernels).accesses(node)
    assert kernel.turns == turns_of(node, library(kernels))
    if not kernel.turns or accesses is None or sums_of(node) is not None:
        return
    turns = windows(node, accesses)
    for number, window in enumerate(turns):
        written = kernel.writes(0, number)
        assert written is not None
        assert _elements(by_step(written)) == _elements(_within(by_step(accesses.writes[0]), window))
    for tensor in {t.index: t for _, t in node.activations()}.values():
        row_elems = tensor.elems // tensor.rows
        found = kernel.rows_read(tensor, row_elems)
        assert found is not None
        positions = [p for p, t in node.activations() if t.index == tensor.index]
        read = [_elements(*(_within(by_step(accesses.reads[p]), w) for p in positions)) for w in turns]
        rows = {(turn, element // row_elems) for turn, elements in enumerate(read) for element in elements}
        assert set(zip(*(column.tolist() for column in found), strict=True)) == rows


def _within(steps: dict[int, list[int]], window: range) -> dict[int, list[int]]:
    return {step: elements for step, elements in steps.items() if step in window}


def _elements(*steps: dict[int, list[int]]) -> set[int]:
    return {element for found in steps for elements in found.values() for element in elements}
