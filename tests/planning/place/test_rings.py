"""Rows by a rule: rings and pieces where there is space, and nothing else changes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

import diagmem
from diagmem.kernels import library
from diagmem.kernels.rows import row_graph
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.needs.problem import Buffer, Problem
from diagmem.planning.options import Options
from diagmem.planning.order.rows import RowOrders
from diagmem.planning.place import greedy
from diagmem.planning.place.rings import with_rings
from diagmem.planning.plan import Storage
from tests.profiles import examples
from tests.row_networks import has_image_input, image_net


@examples(40)
@given(st.integers(0, 400), st.booleans(), st.sampled_from([1, 4]))
def test_separations_are_kept_in_the_same_arena(seed: int, input_rows: bool, align: int) -> None:
    """Whatever is moved, the offsets solve the problem, and no more tensors need a table than before."""
    graph = image_net(seed)
    rows = row_graph(graph, library("diagmem"))
    order = RowOrders(rows, input_rows and has_image_input(graph)).best()
    problem = build_problem(footprint(graph, Options("diagmem", align)), order.schedule)
    before = greedy(problem)
    after = with_rings(problem, before)
    assert problem.is_met_by(after)
    assert problem.arena_bytes(after) <= problem.arena_bytes(before)
    assert tables(problem, after) <= tables(problem, before)


def tables(problem: Problem, offsets: tuple[int, ...]) -> int:
    rows: dict[int, list[int]] = {}
    for buffer, offset in zip(problem.buffers, offsets, strict=True):
        if buffer.rows is not None:
            rows.setdefault(buffer.tensors[0], []).append(offset)
    return sum(Storage.of(places).table is not None for places in rows.values())


def rows_in_turn(count: int, lives: int) -> list[Buffer]:
    return [Buffer(f"row {r}", 6, r, r + lives, 4, (0,), rows=range(r, r + 1)) for r in range(count)]


def test_a_ring_has_as_many_slots_as_rows_live_at_once() -> None:
    """Rows of 6 bytes on multiples of 4: slots are 8 bytes apart."""
    problem = Problem(tuple(rows_in_turn(7, lives=3)), {}, 4)
    assert with_rings(problem, (40, 0, 8, 24, 32, 16, 48)) == (0, 8, 16, 0, 8, 16, 0)


def test_what_has_no_space_for_a_ring_stays() -> None:
    """Something that lives all the time cuts the arena in two."""
    other = Buffer("other", 8, 0, 9, 4)
    problem = Problem((*rows_in_turn(7, lives=3), other), {}, 4)
    offsets = (0, 8, 24, 0, 8, 24, 0, 16)
    assert problem.is_met_by(offsets)
    assert with_rings(problem, offsets) == offsets


def test_few_tables_are_left_where_there_is_space() -> None:
    """Visual wake words: the input takes most of the arena, and behind it there is space."""
    plan = diagmem.plan("zoo:vww_96_int8", schedule="rows").plan
    forms = Counter(storage.form for storage in plan.storage.values())
    assert plan.arena_bytes <= 27750
    assert forms["ring"] >= 1
    assert forms["table"] <= 6
