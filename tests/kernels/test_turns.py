"""What the turns of an operation read, and how far an output row may lie over its input rows, against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.kernels import library
from diagmem.kernels.rows import Turns
from diagmem.model.graph import Node, Tensor
from diagmem.ops.accesses import Accesses
from tests.ops.cases import case_modules
from tests.profiles import examples

CASES = case_modules()
DIAGMEM = library("diagmem")


def has_rows(node: Node) -> bool:
    return len(node.outputs) == 1 and node.output.rows > 1 and node.output.elems > 0


@pytest.mark.parametrize("case", CASES)
@examples(40)
@given(data=st.data())
def test_turns_are_what_accesses_say(case: str, data: st.DataObject) -> None:
    """Each output row needs the rows that its steps read, and its separation from each is the least that is safe."""
    node: Node = data.draw(CASES[case])
    accesses = DIAGMEM.accesses(node)
    if accesses is None or not has_rows(node):
        return
    turns = Turns(node, accesses)
    if not turns.are_apart:
        return
    for tensor in {t.index: t for _, t in node.activations()}.values():
        if not tensor.elems:
            continue
        need = turns.need(tensor)
        for turn, found in enumerate(by_brute_force(node, accesses, tensor)):
            for row, apart in found.items():
                assert need.first[turn] <= row < need.end[turn]
                assert need.apart[turn][row - need.first[turn]] == apart
            if found:
                assert (need.first[turn], need.end[turn]) == (min(found), max(found) + 1)


def by_brute_force(node: Node, accesses: Accesses, tensor: Tensor) -> list[dict[int, int]]:
    """For each turn, the rows that it reads, with the separation of each."""
    output = node.output
    row_elems, steps_of = output.elems // output.rows, written_by_step(accesses)
    found: list[dict[int, int]] = []
    begin = 0
    for turn in range(output.rows):
        last = max(step for step, element in steps_of if element // row_elems == turn)
        writes = [(s, (e + 1 - turn * row_elems) * output.dtype.size_bytes) for s, e in steps_of if begin <= s <= last]
        found.append(one_turn(node, accesses, tensor, range(begin, last + 1), writes))
        begin = last + 1
    return found


def written_by_step(accesses: Accesses) -> list[tuple[int, int]]:
    element, step, _ = accesses.writes[0].touches()
    return list(zip(step.tolist(), element.tolist(), strict=True))


def one_turn(
    node: Node, accesses: Accesses, tensor: Tensor, steps: range, writes: list[tuple[int, int]]
) -> dict[int, int]:
    row_elems, size = tensor.elems // tensor.rows, tensor.dtype.size_bytes
    rows: dict[int, int] = {}
    for position, input_tensor in node.activations():
        runs = accesses.reads[position]
        if input_tensor.index != tensor.index or runs is None:
            continue
        for element, first, last in zip(*(column.tolist() for column in runs.touches()), strict=True):
            if last < steps.start or first >= steps.stop:
                continue
            row = element // row_elems
            if first < steps.start or last >= steps.stop:
                apart = node.output.row_bytes
            else:
                written = max((end for step, end in writes if step < last), default=0)
                apart = written - element % row_elems * size if written else -tensor.row_bytes
            rows[row] = max(rows.get(row, -tensor.row_bytes), apart)
    return rows
